//! The contract, on SQLite in memory and in a file, and on PostgreSQL.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use portcullis::{
    domain::{error::Error, id::NodeId, timestamp::Timestamp},
    ports::Clock,
    store::{
        SqlStore, StoreOptions,
        contract::{Opened, StoreFactory},
        sqlite_url,
    },
};
use tempfile::TempDir;

use super::postgres::Schema;

portcullis::store_contract! {
    sqlite_memory => Arc::new(Memory::new().await),
    sqlite_file => Arc::new(File::new()),
    postgres => Arc::new(Server::new().await),
}

/// A clock that stands still until it is told to go on.
pub(super) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_800_000_000_000)))
    }

    fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).expect("a short time"), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

fn opened(store: SqlStore) -> Opened {
    let store = Arc::new(store);
    Opened { store: store.clone(), ledger: store }
}

/// One database in memory; it has one connection, so its handles share it.
struct Memory {
    store: SqlStore,
    clock: Arc<ManualClock>,
}

impl Memory {
    async fn new() -> Self {
        let clock = ManualClock::new();
        let node_id = NodeId::parse("first").expect("a node id");
        let options =
            StoreOptions { url: "sqlite::memory:".into(), node_id, lease_clock: Some(clock.clone()) };
        Self { store: SqlStore::open(options).await.expect("a database in memory"), clock }
    }
}

#[async_trait]
impl StoreFactory for Memory {
    async fn open(&self, node: &NodeId) -> Result<Opened, Error> {
        Ok(opened(self.store.for_node(node.clone())))
    }

    fn advance_clock(&self, by: Duration) {
        self.clock.advance(by);
    }
}

/// One database file; each handle has connections of its own, as a second daemon would.
struct File {
    folder: TempDir,
    clock: Arc<ManualClock>,
}

impl File {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), clock: ManualClock::new() }
    }
}

#[async_trait]
impl StoreFactory for File {
    async fn open(&self, node: &NodeId) -> Result<Opened, Error> {
        let url = sqlite_url(&self.folder.path().join("portcullis.db"));
        let options = StoreOptions { url, node_id: node.clone(), lease_clock: Some(self.clock.clone()) };
        Ok(opened(SqlStore::open(options).await?))
    }

    fn advance_clock(&self, by: Duration) {
        self.clock.advance(by);
    }
}

/// One schema of a server; each handle has connections of its own, as a second daemon
/// would.
struct Server {
    schema: Schema,
    clock: Arc<ManualClock>,
}

impl Server {
    async fn new() -> Self {
        Self { schema: Schema::new().await, clock: ManualClock::new() }
    }
}

#[async_trait]
impl StoreFactory for Server {
    async fn open(&self, node: &NodeId) -> Result<Opened, Error> {
        let options = StoreOptions {
            url: self.schema.url(),
            node_id: node.clone(),
            lease_clock: Some(self.clock.clone()),
        };
        Ok(opened(SqlStore::open(options).await?))
    }

    fn advance_clock(&self, by: Duration) {
        self.clock.advance(by);
    }
}
