//! What is particular to a database in a file: how it is created and opened, what is
//! refused, and that readers do not wait.

use std::{fs, path::Path};

use portcullis::{
    domain::{
        catalog::CatalogState,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        id::NodeId,
        manifest::Manifest,
        release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
        revision::Revision,
        timestamp::Timestamp,
    },
    ports::Store,
    store::{SqlStore, StoreOptions, sqlite_url},
};
use sqlx::{Connection as _, SqliteConnection};
use tempfile::tempdir;

async fn open_url(url: &str) -> Result<SqlStore, Error> {
    let node_id = NodeId::parse("node").expect("a node id");
    SqlStore::open(StoreOptions { url: url.to_owned(), node_id, lease_clock: None }).await
}

async fn open(path: &Path) -> Result<SqlStore, Error> {
    open_url(&sqlite_url(path)).await
}

/// Runs statements behind the store's back.
async fn run(path: &Path, statements: &'static str) {
    let url = format!("{}?mode=rwc", sqlite_url(path));
    let mut conn = SqliteConnection::connect(&url).await.expect("a connection");
    sqlx::raw_sql(statements).execute(&mut conn).await.expect("the statements run");
    conn.close().await.expect("the connection ends");
}

async fn advance(store: &SqlStore) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.advance_revision();
    tx.commit().await
}

#[tokio::test]
async fn a_new_database_and_its_folders_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("new/deeper/portcullis.db");
    let store = open(&path).await.expect("a new database");
    advance(&store).await.expect("a commit");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("new")), 0o700);
    assert_eq!(mode(path.parent().expect("a parent")), 0o700);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_file_name("portcullis.db-wal")), 0o600);
}

#[tokio::test]
async fn any_path_can_be_named() {
    let folder = tempdir().expect("a folder");
    for name in ["with space.db", "100% ?#&+.db", "ü✓.db", ":memory:"] {
        let path = folder.path().join(name);
        let store = open(&path).await.expect("a database");
        advance(&store).await.expect("a commit");
        store.close().await;
        assert!(path.is_file(), "{name} is the file that was named");
        let again = open(&path).await.expect("the same database");
        assert_eq!(again.snapshot().await.expect("a snapshot").revision, Revision(1));
    }
}

#[tokio::test]
async fn a_url_that_names_no_database_is_refused() {
    let missing = tempdir().expect("a folder").path().join("p.db");
    let with_parameters = format!("{}?mode=memory", sqlite_url(&missing));
    for url in ["", "portcullis.db", "mysql://localhost/x", "sqlite:", "sqlite://", &with_parameters] {
        let error = open_url(url).await.expect_err("this names no database");
        assert_eq!(error.code, ErrorCode::InvalidRequest, "{url}: {error:?}");
    }
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "in the way").expect("a file");
    let error = open(&file.join("portcullis.db")).await.expect_err("a file is no folder");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
    assert!(error.message.contains("file"), "{}", error.message);
}

#[tokio::test]
async fn opening_again_changes_nothing() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("portcullis.db");
    let store = open(&path).await.expect("a new database");
    let mut tx = store.begin().await.expect("a transaction");
    tx.advance_revision();
    tx.set_catalog_state(CatalogState::Ready).await.expect("a step");
    tx.commit().await.expect("a commit");
    let before = store.snapshot().await.expect("a snapshot");
    store.close().await;
    for _ in 0..2 {
        let again = open(&path).await.expect("the same database");
        assert_eq!(again.snapshot().await.expect("a snapshot"), before);
        again.close().await;
    }
}

#[tokio::test]
async fn daemons_that_start_at_once_migrate_once() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("portcullis.db");
    open(&path).await.expect("a new database").close().await;
    run(
        &path,
        "DELETE FROM portcullis_migrations WHERE version = 3; DROP TABLE authorization_projections; \
         DROP TABLE authorization_revisions; DROP INDEX operations_session_open; \
         ALTER TABLE operations DROP COLUMN session_open",
    )
    .await;
    let (one, two, three) = tokio::join!(open(&path), open(&path), open(&path));
    for store in [one, two, three] {
        let store = store.expect("the database is brought up to date by one of them");
        advance(&store).await.expect("a commit");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn daemons_that_create_a_database_at_once_share_it() {
    for _ in 0..20 {
        let folder = tempdir().expect("a folder");
        let path = folder.path().join("new/portcullis.db");
        let opening: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                tokio::spawn(async move { open(&path).await })
            })
            .collect();
        for store in opening {
            let store = store.await.expect("no panic").expect("the database of one of them");
            advance(&store).await.expect("a commit");
        }
    }
}

#[tokio::test]
async fn a_release_is_found_by_the_pointer_alone() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("portcullis.db");
    let store = open(&path).await.expect("a new database");
    let release = release();
    let mut conn = SqliteConnection::connect(&sqlite_url(&path)).await.expect("a connection");
    sqlx::query("INSERT INTO installed_releases VALUES ($1, $2, $3)")
        .bind(release.connector_key.as_str())
        .bind(release.release_digest.to_string())
        .bind(serde_json::to_string(&release).expect("a document"))
        .execute(&mut conn)
        .await
        .expect("a row");
    let found = store.installed_release(&release.connector_key, &release.release_digest).await;
    assert_eq!(found.expect("an answer"), Some(release));
}

fn release() -> Release {
    let manifest = serde_json::json!({
        "schemaVersion": "1",
        "displayName": "Sample",
        "iconUrl": "https://example.com/icon.png",
        "implementation": {"kind": "wasm_component", "world": "portcullis:connector/connector@0.1.0"},
        "authorizationKind": "none",
    });
    let artifact = Artifact {
        key: "alpha/1.0.0.tar.gz".into(),
        sha256: Sha256Digest::of(b"alpha"),
        size_bytes: 5,
        media_type: MEDIA_TYPE_BUNDLE.into(),
        object_version: None,
    };
    Release::assemble(
        "alpha".parse().expect("a key"),
        "1.0.0".parse().expect("a version"),
        Manifest::parse(manifest.to_string().as_bytes()).expect("a manifest"),
        artifact,
        Timestamp(1_700_000_000_000),
    )
    .expect("a release")
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_alone() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("portcullis.db");
    let text = "dear diary, ".repeat(1_000);
    fs::write(&path, &text).expect("a file");
    let error = open(&path).await.expect_err("a diary is no database");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
    assert!(error.message.contains("not a database"), "{}", error.message);
    assert_eq!(fs::read_to_string(&path).expect("the file"), text);
}

#[tokio::test]
async fn another_programs_database_is_refused_and_left_alone() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("portcullis.db");
    run(&path, "CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine')").await;
    let before = fs::read(&path).expect("the file");
    let error = open(&path).await.expect_err("this is another program's");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
    assert!(error.message.contains("another program"), "{}", error.message);
    assert_eq!(fs::read(&path).expect("the file"), before);
}

#[tokio::test]
async fn a_newer_programs_database_is_refused_and_left_alone() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("portcullis.db");
    open(&path).await.expect("a new database").close().await;
    run(&path, "INSERT INTO portcullis_migrations VALUES (4, 'future', 'x', 0)").await;
    let before = fs::read(&path).expect("the file");
    let error = open(&path).await.expect_err("this is a newer program's");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
    assert!(error.message.contains("newer portcullis"), "{}", error.message);
    assert!(error.message.contains("schema 4"), "{}", error.message);
    assert_eq!(fs::read(&path).expect("the file"), before);
}

#[tokio::test]
async fn an_altered_history_is_refused() {
    for statement in [
        "UPDATE portcullis_migrations SET checksum = 'other' WHERE version = 1",
        "DELETE FROM portcullis_migrations WHERE version = 1",
    ] {
        let folder = tempdir().expect("a folder");
        let path = folder.path().join("portcullis.db");
        open(&path).await.expect("a new database").close().await;
        run(&path, statement).await;
        let before = fs::read(&path).expect("the file");
        let error = open(&path).await.expect_err("this is not what was applied");
        assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
        assert!(error.message.contains("migration 1 (market)"), "{}", error.message);
        assert_eq!(fs::read(&path).expect("the file"), before);
    }
}

#[tokio::test]
async fn a_damaged_database_is_told_from_a_busy_one() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("portcullis.db");
    open(&path).await.expect("a new database").close().await;
    let mut bytes = fs::read(&path).expect("the file");
    for byte in bytes.iter_mut().skip(4096) {
        *byte = 0xa5;
    }
    fs::write(&path, bytes).expect("the file");
    let error = match open(&path).await {
        Ok(store) => store.snapshot().await.expect_err("most pages are gone"),
        Err(error) => error,
    };
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
    assert!(error.message.contains("damaged"), "{}", error.message);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("portcullis.db");
    let store = open(&path).await.expect("a new database");
    let key = "alpha".parse().expect("a key");
    for (statement, column) in [
        ("INSERT INTO connectors VALUES ('alpha', '{\"secret\": 1}')", "document"),
        ("UPDATE connectors SET document = X'00ff'", "document"),
    ] {
        run(&path, statement).await;
        let error = store.connector(&key).await.expect_err("this is no connector");
        assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
        assert!(
            error.message.contains(&format!("connectors.{column} of row \"alpha\"")),
            "{}",
            error.message
        );
        assert!(!error.message.contains("secret"), "{}", error.message);
        store.snapshot().await.expect_err("nor is there a snapshot without it");
    }
    run(&path, "DELETE FROM connectors; UPDATE metadata SET catalog_state = 'open'").await;
    let error = store.snapshot().await.expect_err("this is no state of a catalog");
    assert!(error.message.contains("metadata.catalog_state"), "{}", error.message);
    run(&path, "DELETE FROM metadata").await;
    let error = store.begin().await.map(drop).expect_err("the counters are gone");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
}

#[tokio::test]
async fn readers_do_not_wait_for_the_writer_and_see_what_was_committed() {
    let folder = tempdir().expect("a folder");
    let store = open(&folder.path().join("portcullis.db")).await.expect("a new database");
    let mut tx = store.begin().await.expect("a transaction");
    tx.advance_revision();
    tx.set_catalog_state(CatalogState::Ready).await.expect("a step");
    assert_eq!(store.snapshot().await.expect("a snapshot").revision, Revision(0));
    tx.commit().await.expect("a commit");
    assert_eq!(store.snapshot().await.expect("a snapshot").revision, Revision(1));
}

#[tokio::test]
async fn a_transaction_that_is_given_up_while_it_waits_blocks_nobody() {
    let folder = tempdir().expect("a folder");
    let store = open(&folder.path().join("portcullis.db")).await.expect("a new database");
    for _ in 0..20 {
        let tx = store.begin().await.expect("a transaction");
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.begin().await.map(drop) }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        drop(tx);
        let mut begun = store.begin().await.expect("a transaction");
        begun.advance_revision();
        let half_done = begun.set_catalog_state(CatalogState::Ready);
        drop(half_done);
        drop(begun);
    }
    advance(&store).await.expect("a commit");
    assert_eq!(store.snapshot().await.expect("a snapshot").revision, Revision(1));
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let folder = tempdir().expect("a folder");
    let store = open(&folder.path().join("portcullis.db")).await.expect("a new database");
    store.close().await;
    let error = store.begin().await.map(drop).expect_err("it is closed");
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert_eq!(store.snapshot().await.expect_err("it is closed").code, ErrorCode::Unavailable);
}
