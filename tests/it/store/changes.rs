//! The hint that something was committed.

use std::time::Duration;

use portcullis::{
    domain::{error::Error, event::ChangedEvent, id::NodeId},
    ports::Store as _,
    store::{SqlStore, StoreOptions},
};
use sqlx::Row as _;
use tokio::sync::watch;

use super::postgres::Schema;

/// What must come comes within this.
const PATIENCE: Duration = Duration::from_secs(30);

async fn commit(store: &SqlStore, announced: bool) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    let revision = tx.advance_revision();
    if announced {
        tx.enqueue_changed(&ChangedEvent { revision, ..ChangedEvent::default() }).await?;
    }
    tx.commit().await
}

async fn changed(changes: &mut watch::Receiver<u64>) {
    tokio::time::timeout(PATIENCE, changes.changed()).await.expect("in time").expect("the store is there");
}

/// A store that listens already.
async fn listening(schema: &Schema) -> (SqlStore, watch::Receiver<u64>) {
    let store = schema.open().await.expect("a store");
    let mut changes = store.changes();
    let begun = tokio::time::timeout(PATIENCE, changes.wait_for(|count| *count > 0)).await;
    drop(begun.expect("in time").expect("the store is there"));
    (store, changes)
}

#[tokio::test]
async fn a_commit_with_an_event_is_told_and_no_other() {
    let node_id = NodeId::parse("node").expect("a node id");
    let options = StoreOptions { url: "sqlite::memory:".into(), node_id, lease_clock: None };
    let store = SqlStore::open(options).await.expect("a store");
    let mut changes = store.changes();
    commit(&store, false).await.expect("a commit");
    let mut tx = store.begin().await.expect("a transaction");
    tx.enqueue_changed(&ChangedEvent::default()).await.expect("a step");
    drop(tx);
    assert!(!changes.has_changed().expect("the store is there"));
    commit(&store.for_node(NodeId::parse("other").expect("a node id")), true).await.expect("a commit");
    changed(&mut changes).await;
    drop(store);
    changes.changed().await.expect_err("it ends with the store");
}

#[tokio::test]
async fn every_daemon_on_a_server_is_told() {
    let schema = Schema::new().await;
    let (here, mut changes) = listening(&schema).await;
    let there = schema.open().await.expect("another daemon");
    for store in [&there, &here] {
        commit(store, true).await.expect("a commit");
        changed(&mut changes).await;
    }
}

#[tokio::test]
async fn what_is_not_announced_or_in_another_schema_is_not_told() {
    let (schema, elsewhere) = (Schema::new().await, Schema::new().await);
    let (store, mut changes) = listening(&schema).await;
    let before = *changes.borrow_and_update();
    commit(&elsewhere.open().await.expect("a store"), true).await.expect("a commit");
    commit(&store, false).await.expect("a commit");
    let mut tx = store.begin().await.expect("a transaction");
    tx.enqueue_changed(&ChangedEvent::default()).await.expect("a step");
    drop(tx);
    commit(&store, true).await.expect("a commit");
    changed(&mut changes).await;
    // The server tells in the order of the commits.
    assert_eq!(*changes.borrow_and_update(), before + 1);
}

#[tokio::test]
async fn a_listener_that_lost_its_connection_comes_back() {
    let schema = Schema::new().await;
    let (store, mut changes) = listening(&schema).await;
    changes.mark_unchanged();
    assert!(schema.disconnect("idle").await >= 3, "the listener, a reader, a writer");
    changed(&mut changes).await;
    commit(&store, true).await.expect("a commit");
    changed(&mut changes).await;
}

#[tokio::test]
async fn nothing_stays_connected_after_the_store() {
    let schema = Schema::new().await;
    let (store, changes) = listening(&schema).await;
    store.close().await;
    drop((store, changes));
    let mut conn = schema.connect().await;
    let connected = "SELECT COUNT(*) FROM pg_stat_activity \
         WHERE application_name = current_schema() AND pid <> pg_backend_pid()";
    let gone = async {
        while sqlx::query(connected).fetch_one(&mut conn).await.expect("a count").get::<i64, _>(0) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("all connections end with the store");
}
