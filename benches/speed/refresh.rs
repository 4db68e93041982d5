//! A refresh of a large catalog of which little changed, against reading and decoding
//! what is stored and writing as many rows as changed.

use std::time::Instant;

use portcullis::domain::{connector::Connector, revision::Revision};
use sqlx::Row as _;

use super::{
    Bar, Row,
    database::{Database, Kind},
    market::{Market, release},
    percentile,
};

pub(crate) const NAME: &str = "refresh of 10,000 releases, 1% changed";

const CONNECTORS: usize = 10_000;
const CHANGED: usize = CONNECTORS / 100;
const ROUNDS: usize = 5;

pub(crate) fn measure() -> Row {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let database = Database::new(Kind::Sqlite).await;
        let market = Market::open(database.url()).await;
        let mut releases: Vec<_> = (0..CONNECTORS).map(|number| release(number, "1.0.0")).collect();
        market.offer(releases.clone());
        market.refresh().await;
        let mut conn = database.connect().await;
        let (mut ours, mut direct) = (Vec::new(), Vec::new());
        let mut condition = Ok(());
        for round in 1..=ROUNDS {
            for (number, offered) in releases.iter_mut().enumerate().take(CHANGED) {
                *offered = release(number, &format!("1.0.{round}"));
            }
            market.offer(releases.clone());
            let accepted = market.accept_refresh().await;
            let before = market.store.snapshot().await.expect("a snapshot").revision;
            let start = Instant::now();
            market.run(&accepted).await;
            ours.push(start.elapsed());
            let after = market.store.snapshot().await.expect("a snapshot");
            let stamped = after.connectors.iter().filter(|one| one.revision > before).count();
            // Begun and applied: the rows are of the last.
            if after.revision != Revision(before.0 + 2)
                || stamped != CHANGED
                || after.connectors.iter().any(|one| one.revision > before && one.revision != after.revision)
            {
                condition = Err(format!("{stamped} rows at revisions {before} to {}", after.revision));
            }

            let start = Instant::now();
            let rows = sqlx::query("SELECT connector_key, document FROM connectors ORDER BY connector_key")
                .fetch_all(&mut conn)
                .await
                .expect("rows");
            let connectors: Vec<Connector> = rows
                .iter()
                .map(|row| serde_json::from_str(row.get::<&str, _>(1)).expect("a connector"))
                .collect();
            sqlx::raw_sql(database.begin()).execute(&mut conn).await.expect("it begins");
            for connector in &connectors[..CHANGED] {
                sqlx::query("UPDATE connectors SET document = $2 WHERE connector_key = $1")
                    .bind(connector.key.as_str())
                    .bind(serde_json::to_string(connector).expect("a document"))
                    .execute(&mut conn)
                    .await
                    .expect("a row");
            }
            sqlx::raw_sql("COMMIT").execute(&mut conn).await.expect("it commits");
            direct.push(start.elapsed());
        }
        Row {
            name: NAME,
            measured: percentile(&mut ours, 50),
            reference: Some(percentile(&mut direct, 50)),
            bar: Bar::Ratio(3.0),
            condition,
        }
    })
}
