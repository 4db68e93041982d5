//! The databases that are measured, and plain connections to them for what the market
//! is compared with.

use std::sync::atomic::{AtomicU32, Ordering};

use portcullis::store::sqlite_url;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, any::install_default_drivers};

/// Where `benches/run` says that a PostgreSQL server is, with commits that last.
const SERVER: &str = "PORTCULLIS_BENCH_POSTGRES";

/// Which database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// An empty database, which is gone with this.
pub(crate) struct Database {
    kind: Kind,
    folder: tempfile::TempDir,
    url: String,
}

impl Database {
    pub(crate) async fn new(kind: Kind) -> Self {
        install_default_drivers();
        let folder = tempfile::tempdir().expect("a folder");
        let url = match kind {
            Kind::Sqlite => sqlite_url(&folder.path().join("portcullis.db")),
            Kind::Postgres => {
                static NEXT: AtomicU32 = AtomicU32::new(1);
                let server = std::env::var(SERVER).unwrap_or_else(|_| {
                    panic!("{SERVER} names no server; use benches/run, which starts one")
                });
                let schema = format!("bench_{}", NEXT.fetch_add(1, Ordering::Relaxed));
                let mut conn = AnyConnection::connect(&server).await.expect("a connection");
                let create = format!("CREATE SCHEMA {schema}");
                sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut conn).await.expect("a schema");
                format!("{server}?options[search_path]={schema}")
            }
        };
        Self { kind, folder, url }
    }

    /// What a store is opened with.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A plain connection, as durable as the store's.
    pub(crate) async fn connect(&self) -> AnyConnection {
        debug_assert!(self.folder.path().exists());
        let mut conn = AnyConnection::connect(&self.url).await.expect("a connection");
        if self.kind == Kind::Sqlite {
            let session = "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL";
            sqlx::raw_sql(session).execute(&mut conn).await.expect("the session");
        }
        conn
    }

    /// Begins a transaction that takes its turn among writers.
    pub(crate) fn begin(&self) -> &'static str {
        match self.kind {
            Kind::Sqlite => "BEGIN IMMEDIATE",
            Kind::Postgres => "BEGIN",
        }
    }

    /// Reads the counters as the first thing that a writer does.
    pub(crate) fn take_turn(&self) -> &'static str {
        match self.kind {
            Kind::Sqlite => "SELECT revision FROM metadata WHERE id = 1",
            Kind::Postgres => "SELECT revision FROM metadata WHERE id = 1 FOR UPDATE",
        }
    }
}
