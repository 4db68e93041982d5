//! Whose clock leases are judged by on PostgreSQL: the server's, whatever the nodes
//! think the time is.

use std::time::Duration;

use portcullis::{
    domain::{
        id::{NodeId, OperationId, WorkerId},
        lease::LeaseToken,
    },
    ports::{Clock as _, Store as _, SystemClock},
    store::{SqlStore, StoreOptions},
};

use super::{operation, postgres::Schema};

const HOUR: Duration = Duration::from_secs(3_600);

/// Gives the server a clock of its own that stands at a moment: seconds since 1970.
async fn server_says(schema: &Schema, seconds: i64) {
    schema
        .run(&format!(
            "CREATE OR REPLACE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql \
             AS 'SELECT to_timestamp({seconds})'"
        ))
        .await;
}

#[tokio::test]
async fn the_servers_clock_judges_and_a_nodes_does_not() {
    let schema = Schema::new().await;
    // The schema's function comes before the server's own.
    let url = format!("{},pg_catalog", schema.url());
    let open = async |node: &str| {
        let node_id = NodeId::parse(node).expect("a node id");
        let options = StoreOptions { url: url.clone(), node_id, lease_clock: None };
        SqlStore::open(options).await.expect("a database")
    };
    // To the server, the nodes' clocks are ten years ahead.
    let start = SystemClock.now().0 / 1_000 - 10 * 365 * 86_400;
    server_says(&schema, start).await;
    let (first, second) = (open("first").await, open("second").await);
    let id = OperationId::parse("one").expect("an id");
    let (w1, w2) = (WorkerId::parse("w1").expect("an id"), WorkerId::parse("w2").expect("an id"));
    let mut tx = first.begin().await.expect("a transaction");
    tx.save_operation(&operation(id.clone(), "alpha")).await.expect("a step");
    tx.commit().await.expect("a commit");

    let claimed = first.claim_operation(&id, &w1, HOUR).await.expect("an answer").expect("it is free");
    let lease = claimed.lease.expect("a lease");
    assert_eq!(lease.expires_at.0, (start + 3_600) * 1_000, "an hour of the server's");
    assert_eq!(second.claim_operation(&id, &w2, HOUR).await.expect("an answer"), None, "nothing is stolen");
    server_says(&schema, start + 3_599).await;
    assert_eq!(second.claim_operation(&id, &w2, HOUR).await.expect("an answer"), None);
    server_says(&schema, start + 3_600).await;
    let taken = second.claim_operation(&id, &w2, HOUR).await.expect("an answer").expect("it is over");
    assert_eq!(taken.lease_token, LeaseToken(2));
    first.close().await;
    second.close().await;
}
