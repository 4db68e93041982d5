//! What only the inside of a store can arrange: a disk that is full, a database
//! that may not be written to, a transaction that lost its race.

use sqlx::Row as _;

use super::{SqlStore, StoreOptions, metadata, sqlite_url};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        id::NodeId,
        revision::Revision,
    },
    ports::Store as _,
};

async fn open(folder: &tempfile::TempDir) -> SqlStore {
    let url = sqlite_url(&folder.path().join("portcullis.db"));
    let node_id = NodeId::parse("node").expect("a node id");
    SqlStore::open(StoreOptions { url, node_id, lease_clock: None }).await.expect("a database")
}

/// Tells the one connection that writes.
async fn tell_writer(store: &SqlStore, pragma: &'static str) {
    let mut conn = store.writer.acquire().await.expect("the writer");
    sqlx::raw_sql(pragma).execute(&mut *conn).await.expect("the pragma");
}

async fn write(store: &SqlStore, source_revision: &str) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.advance_revision();
    tx.save_source_revision(source_revision).await?;
    tx.commit().await
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_blocks_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder).await;
    write(&store, "before").await.expect("there is room");
    tell_writer(&store, "PRAGMA max_page_count = 1").await;
    let error = write(&store, &"much ".repeat(100_000)).await.expect_err("there is no room");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
    assert!(error.message.contains("full"), "{}", error.message);
    let snapshot = store.snapshot().await.expect("a snapshot");
    assert_eq!((snapshot.revision, snapshot.source_revision.as_str()), (Revision(1), "before"));

    tell_writer(&store, "PRAGMA max_page_count = 1000000").await;
    write(&store, "after").await.expect("there is room again");
    assert_eq!(store.snapshot().await.expect("a snapshot").source_revision, "after");
}

#[tokio::test]
async fn a_connection_that_is_left_in_a_transaction_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder).await;
    let (mut tx, _) = store.write_transaction().await.expect("a transaction");
    // As SQLite does by itself when the disk is full: the driver does not notice.
    sqlx::raw_sql("ROLLBACK").execute(&mut *tx).await.expect("a rollback");
    drop(tx);
    write(&store, "after").await.expect("a commit");
}

#[tokio::test]
async fn a_database_that_may_not_be_written_to_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder).await;
    tell_writer(&store, "PRAGMA query_only = ON").await;
    let error = store.set_setting("name", "value").await.expect_err("it is read-only");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
    assert!(error.message.contains("read-only"), "{}", error.message);
}

#[tokio::test]
async fn another_process_that_holds_the_lock_is_a_conflict_to_retry() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, other) = (open(&folder).await, open(&folder).await);
    tell_writer(&store, "PRAGMA busy_timeout = 1").await;
    let (held, _) = other.write_transaction().await.expect("the lock");
    let error = store.begin().await.map(drop).expect_err("the lock is taken");
    assert_eq!((error.code, error.retryable), (ErrorCode::SerializationConflict, true));
    held.rollback().await.expect("the lock is given back");
    write(&store, "after").await.expect("a commit");
}

#[tokio::test]
async fn a_reader_cannot_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder).await;
    let mut reader = store.reading().await.expect("a reader");
    let written = sqlx::query("DELETE FROM metadata").execute(&mut *reader).await;
    assert!(Error::from(written.expect_err("it only reads")).message.contains("read-only"));
}

#[tokio::test]
async fn a_commit_is_durable_when_it_is_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder).await;
    let mut conn = store.writer.acquire().await.expect("the writer");
    for (pragma, expected) in
        [("PRAGMA synchronous", "2"), ("PRAGMA foreign_keys", "1"), ("PRAGMA busy_timeout", "5000")]
    {
        let row = sqlx::query(pragma).fetch_one(&mut *conn).await.expect("a pragma");
        assert_eq!(row.try_get::<i64, _>(0).expect("a number").to_string(), expected, "{pragma}");
    }
    let row = sqlx::query("PRAGMA journal_mode").fetch_one(&mut *conn).await.expect("a pragma");
    assert_eq!(row.try_get::<&str, _>(0).expect("a word"), "wal");
}

#[tokio::test]
async fn a_commit_over_a_revision_that_moved_on_is_a_conflict() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder).await;
    write(&store, "source").await.expect("a commit");
    let mut conn = store.writer.acquire().await.expect("the writer");
    let current = metadata::get(&mut conn).await.expect("the counters");
    let mut older = current.clone();
    older.revision = Revision(0);
    assert!(!metadata::replace(&mut conn, store.dialect, &older, &current, &[]).await.expect("an answer"));
    older = current.clone();
    older.event_sequence = 7;
    assert!(!metadata::replace(&mut conn, store.dialect, &older, &current, &[]).await.expect("an answer"));
    assert!(metadata::replace(&mut conn, store.dialect, &current, &current, &[]).await.expect("an answer"));
}
