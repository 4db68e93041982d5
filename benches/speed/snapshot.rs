//! A snapshot of a large market, against reading and decoding the same rows.

use std::time::{Duration, Instant};

use portcullis::domain::{connector::Connector, operation::Operation};
use sqlx::{AnyConnection, Row as _};

use super::{
    Bar, Row,
    database::{Database, Kind},
    market::{Market, account, release},
    percentile,
};

pub(crate) const SQLITE: &str = "snapshot, 10,000 connectors, SQLite";
pub(crate) const POSTGRES: &str = "snapshot, 10,000 connectors, PostgreSQL";

const CONNECTORS: usize = 10_000;
const OPERATIONS: usize = 1_000;
const SAMPLES: usize = 9;

pub(crate) fn sqlite() -> Row {
    measure(SQLITE, Kind::Sqlite)
}

pub(crate) fn postgres() -> Row {
    measure(POSTGRES, Kind::Postgres)
}

fn measure(name: &'static str, kind: Kind) -> Row {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let database = Database::new(kind).await;
        let market = Market::open(database.url()).await;
        market.offer((0..CONNECTORS).map(|number| release(number, "1.0.0")).collect());
        market.refresh().await;
        fill(&market, &mut database.connect().await).await;
        let mut conn = database.connect().await;
        let (mut ours, mut direct) = (Vec::new(), Vec::new());
        let mut condition = Ok(());
        // The first round of each warms caches.
        for round in 0..=SAMPLES {
            let start = Instant::now();
            let snapshot = market.application.snapshot(&account()).await.expect("a snapshot");
            let took = start.elapsed();
            if (snapshot.connectors.len(), snapshot.operations.len()) != (CONNECTORS, OPERATIONS + 1) {
                condition = Err("the snapshot is not whole".to_owned());
            }
            let plain = read(&mut conn).await;
            if round > 0 {
                ours.push(took);
                direct.push(plain);
            }
        }
        Row {
            name,
            measured: percentile(&mut ours, 50),
            reference: Some(percentile(&mut direct, 50)),
            bar: Bar::Ratio(3.0),
            condition,
        }
    })
}

/// Operations like the one that the refresh left behind.
async fn fill(market: &Market, conn: &mut AnyConnection) {
    let operation = market.store.snapshot().await.expect("a snapshot").operations.remove(0);
    let pattern = serde_json::to_string(&operation).expect("a document");
    for number in 0..OPERATIONS {
        let id = format!("filled-{number:06}");
        sqlx::query(
            "INSERT INTO operations (operation_id, client_request_id, owner, visibility, lane, kind, state, \
             lease_token, updated_at, document) \
             VALUES ($1, $1, 'ada', 'account', '', 'refresh_catalog', 'completed', 0, 0, $2)",
        )
        .bind(&id)
        .bind(pattern.replace(operation.operation_id.as_str(), &id))
        .execute(&mut *conn)
        .await
        .expect("an operation");
    }
}

async fn read(conn: &mut AnyConnection) -> Duration {
    let start = Instant::now();
    let connectors: Vec<Connector> = sqlx::query("SELECT document FROM connectors")
        .fetch_all(&mut *conn)
        .await
        .expect("rows")
        .iter()
        .map(|row| serde_json::from_str(row.get::<&str, _>(0)).expect("a connector"))
        .collect();
    let operations: Vec<Operation> = sqlx::query("SELECT document FROM operations")
        .fetch_all(conn)
        .await
        .expect("rows")
        .iter()
        .map(|row| serde_json::from_str(row.get::<&str, _>(0)).expect("an operation"))
        .collect();
    let took = start.elapsed();
    assert!(connectors.len() == CONNECTORS && operations.len() > OPERATIONS, "not the same rows");
    took
}
