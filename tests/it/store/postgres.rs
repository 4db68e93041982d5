//! A PostgreSQL schema of its own for every test that asks for one.

use portcullis::{
    domain::{error::Error, id::NodeId},
    ports::{IdSource as _, RandomIds},
    store::{SqlStore, StoreOptions},
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

/// The URL of the server that `tests/run` starts.
pub(crate) fn server_url() -> String {
    std::env::var("PORTCULLIS_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("PORTCULLIS_TEST_POSTGRES names no PostgreSQL server; run the tests with tests/run, which starts one")
    })
}

/// An empty schema, which is dropped with this. Its connections bear its name.
pub(crate) struct Schema {
    server: String,
    name: String,
}

impl Schema {
    /// One on the server of the tests.
    pub(crate) async fn new() -> Self {
        Self::on(server_url()).await
    }

    /// One on the server that `server` names.
    pub(crate) async fn on(server: String) -> Self {
        let name = format!("test_{}", RandomIds.fresh().expect("randomness"));
        let schema = Self { server, name };
        schema.run(&format!("CREATE SCHEMA {}", schema.name)).await;
        schema
    }

    /// What a store is opened with.
    pub(crate) fn url(&self) -> String {
        format!("{0}?application_name={1}&options[search_path]={1}", self.server, self.name)
    }

    /// A store as a daemon opens it.
    pub(crate) async fn open(&self) -> Result<SqlStore, Error> {
        let node_id = NodeId::parse("node").expect("a node id");
        SqlStore::open(StoreOptions { url: self.url(), node_id, lease_clock: None }).await
    }

    /// A connection behind the store's back.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.expect("a connection to the server")
    }

    /// Runs statements behind the store's back.
    pub(crate) async fn run(&self, statements: &str) {
        let mut conn = self.connect().await;
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
            .execute(&mut conn)
            .await
            .expect("the statements run");
        conn.close().await.expect("the connection ends");
    }

    /// Ends the connections to this schema that are in `state`, as an administrator or
    /// a broken network does, and tells how many.
    pub(crate) async fn disconnect(&self, state: &'static str) -> i64 {
        let mut conn = self.connect().await;
        let ended = sqlx::query(
            "SELECT COUNT(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity \
             WHERE application_name = current_schema() AND state = $1 AND pid <> pg_backend_pid()",
        )
        .bind(state)
        .fetch_one(&mut conn)
        .await
        .expect("the connections end");
        conn.close().await.expect("the connection ends");
        ended.get(0)
    }

    /// Everything that is stored: each table's columns, and its rows as text.
    pub(crate) async fn contents(&self) -> Vec<String> {
        let mut conn = self.connect().await;
        let mut contents = Vec::new();
        let columns = "SELECT CAST(relname AS TEXT), string_agg(attname || ' ' || atttypid::regtype, ', ' ORDER BY attnum) \
             FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 \
             WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' GROUP BY relname ORDER BY relname";
        for table in sqlx::query(columns).fetch_all(&mut conn).await.expect("the tables") {
            let (name, columns): (String, String) = (table.get(0), table.get(1));
            contents.push(format!("{name}: {columns}"));
            let rows = AssertSqlSafe(format!("SELECT CAST(t AS TEXT) FROM {name} t ORDER BY 1"));
            for row in sqlx::query(rows).fetch_all(&mut conn).await.expect("the rows") {
                contents.push(format!("{name}: {}", row.get::<String, _>(0)));
            }
        }
        conn.close().await.expect("the connection ends");
        contents
    }
}

impl Drop for Schema {
    /// A schema that is still in use stays; it ends with the server.
    fn drop(&mut self) {
        let url = self.url();
        let statement = format!("SET lock_timeout = '1s'; DROP SCHEMA {} CASCADE", self.name);
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut conn = PgConnection::connect(&url).await?;
                sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut conn).await?;
                conn.close().await
            })
        });
        let _ = dropping.join();
    }
}
