//! An install from its command to its completion, with the artifact at hand: against
//! the same number of transactions and statements that write the same rows and do
//! nothing else.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis::domain::{id::ConnectorKey, revision::Revision};
use sqlx::{AnyConnection, Row as _};

use super::{
    Bar, Row,
    database::{Database, Kind},
    market::{Market, key, release},
};

pub(crate) const SQLITE: &str = "install, artifact at hand, SQLite";
pub(crate) const POSTGRES: &str = "install with 8 workers, PostgreSQL";

/// Claiming and giving back the operation and the convergence: statements of their own.
const STATEMENTS: u64 = 4;
const WORKERS: usize = 8;
/// Installs a second that 8 workers reach on PostgreSQL.
const RATE: f64 = 200.0;

pub(crate) fn sqlite() -> Row {
    measure(SQLITE, Kind::Sqlite, 1, 200)
}

/// Time is the wall's over all workers, for each install.
pub(crate) fn postgres() -> Row {
    let mut row = measure(POSTGRES, Kind::Postgres, WORKERS, 100);
    let rate = 1.0 / row.measured.as_secs_f64();
    if rate < RATE {
        row.condition = Err(format!("{rate:.0} installs/s instead of {RATE:.0}"));
    }
    row
}

fn measure(name: &'static str, kind: Kind, workers: usize, each: usize) -> Row {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let database = Arc::new(Database::new(kind).await);
        let market = Arc::new(Market::open(database.url()).await);
        let total = workers * each;
        market.offer((0..total + 1).map(|number| release(number, "1.0.0")).collect());
        market.refresh().await;
        let revision = async || market.store.snapshot().await.expect("a snapshot").revision.0;
        let before = revision().await;
        let listed = Revision(before);
        market.install(&key(total), listed).await;
        let transactions = revision().await - before;

        let start = Instant::now();
        let installing: Vec<_> = (0..workers)
            .map(|worker| {
                let market = Arc::clone(&market);
                tokio::spawn(async move {
                    for number in worker * each..(worker + 1) * each {
                        market.install(&key(number), listed).await;
                    }
                })
            })
            .collect();
        for task in installing {
            task.await.expect("installed");
        }
        let measured = start.elapsed() / u32::try_from(total).expect("a small number");

        let done = revision().await - before;
        let condition = if done == transactions * (total as u64 + 1) {
            Ok(())
        } else {
            Err(format!("{done} transactions instead of {transactions} an install"))
        };
        let reference = bare(&database, workers, each, transactions).await;
        Row { name, measured, reference: Some(reference), bar: Bar::Ratio(2.0), condition }
    })
}

/// The bare cost of as many transactions and statements, on as many connections.
async fn bare(database: &Arc<Database>, workers: usize, each: usize, transactions: u64) -> Duration {
    let documents = Arc::new(Documents::read(&mut database.connect().await, &key(workers * each)).await);
    let mut connections = Vec::new();
    for _ in 0..workers {
        connections.push(database.connect().await);
    }
    let start = Instant::now();
    let writing: Vec<_> = connections
        .into_iter()
        .enumerate()
        .map(|(worker, mut conn)| {
            let (database, documents) = (Arc::clone(database), Arc::clone(&documents));
            tokio::spawn(async move {
                for number in 0..each {
                    let id = format!("bare-{worker}-{number}");
                    for step in 0..transactions {
                        documents.write(&database, &mut conn, &id, step).await;
                    }
                    for _ in 0..STATEMENTS {
                        sqlx::query(
                            "UPDATE operations SET lease_token = lease_token + 1 WHERE operation_id = $1",
                        )
                        .bind(&id)
                        .execute(&mut conn)
                        .await
                        .expect("a statement");
                    }
                }
            })
        })
        .collect();
    for task in writing {
        task.await.expect("written");
    }
    start.elapsed() / u32::try_from(workers * each).expect("a small number")
}

/// The rows of one finished install.
struct Documents {
    connector: String,
    operation: String,
    event: String,
}

impl Documents {
    async fn read(conn: &mut AnyConnection, key: &ConnectorKey) -> Self {
        let mut one = async |statement: &'static str, of: &str| -> String {
            sqlx::query(statement).bind(of.to_owned()).fetch_one(&mut *conn).await.expect("a row").get(0)
        };
        Self {
            connector: one("SELECT document FROM connectors WHERE connector_key = $1", key.as_str()).await,
            operation: one("SELECT document FROM operations WHERE lane = $1 LIMIT 1", key.as_str()).await,
            event: one("SELECT document FROM outbox WHERE document <> $1 LIMIT 1", "").await,
        }
    }

    /// One transaction of an install: its turn, the connector, the operation, two
    /// events, the counters.
    async fn write(&self, database: &Database, conn: &mut AnyConnection, id: &str, step: u64) {
        let turn = database.take_turn();
        sqlx::raw_sql(database.begin()).execute(&mut *conn).await.expect("it begins");
        sqlx::query(turn).fetch_one(&mut *conn).await.expect("its turn");
        sqlx::query(
            "INSERT INTO connectors (connector_key, document) VALUES ($1, $2) \
             ON CONFLICT (connector_key) DO UPDATE SET document = excluded.document",
        )
        .bind(id)
        .bind(&self.connector)
        .execute(&mut *conn)
        .await
        .expect("a connector");
        sqlx::query(
            "INSERT INTO operations (operation_id, client_request_id, owner, visibility, lane, kind, state, \
             lease_token, updated_at, document) \
             VALUES ($1, $1, 'ada', 'account', $1, 'install', 'running', 0, 0, $2) \
             ON CONFLICT (operation_id) DO UPDATE SET document = excluded.document",
        )
        .bind(id)
        .bind(&self.operation)
        .execute(&mut *conn)
        .await
        .expect("an operation");
        for _ in 0..2 {
            sqlx::query("INSERT INTO outbox (sequence, document) SELECT MAX(sequence) + 1, $1 FROM outbox")
                .bind(&self.event)
                .execute(&mut *conn)
                .await
                .expect("an event");
        }
        sqlx::query("UPDATE metadata SET revision = revision + 1 WHERE id = 1 AND $1 >= 0")
            .bind(i64::try_from(step).expect("a small number"))
            .execute(&mut *conn)
            .await
            .expect("the counters");
        sqlx::raw_sql("COMMIT").execute(&mut *conn).await.expect("it commits");
    }
}
