//! A backlog of what has ended long ago goes batch by batch, and commands are served
//! meanwhile (J.12, 266). The store's contract bounds a batch.

use std::sync::Arc;

use portcullis::{
    daemon::{
        driver::Task as _,
        tasks::{Cleanup, CleanupPolicy},
    },
    market::{ConnectorMutation, Mutation},
    store::sqlite_url,
};
use sqlx::{AnyConnection, Connection as _, Row as _};

use super::world::{World, ada, key, release, request_id};
use crate::store::postgres::Schema;

const BACKLOG: i64 = 100_000;

/// Ended operations and published events, all older than what is kept.
const FILL: &str = "
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000),
        pattern(id, text) AS (SELECT operation_id, document FROM operations)
    INSERT INTO operations (operation_id, client_request_id, owner, visibility, lane, kind, state,
        lease_token, updated_at, document)
    SELECT 'old-' || n, 'old-' || n, 'ada', 'account', '', 'refresh_catalog', 'completed', 0, n,
        REPLACE(text, id, 'old-' || n)
    FROM numbers, pattern;
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000),
        pattern(text) AS (SELECT document FROM outbox WHERE sequence = 1)
    INSERT INTO outbox (sequence, document, published_at) SELECT -n, text, n FROM numbers, pattern";

async fn count(conn: &mut AnyConnection, statement: &'static str) -> i64 {
    sqlx::query(statement).fetch_one(conn).await.expect("a count").get(0)
}

/// A command at the connector's own revision: a snapshot would read the backlog.
async fn command(world: &World, number: i64) -> ConnectorMutation {
    ConnectorMutation {
        mutation: Mutation {
            client_request_id: request_id(&format!("command-{number}")),
            expected_revision: Default::default(),
            scope: ada(),
        },
        connector_key: key("echo"),
        expected_connector_revision: Some(world.stored("echo").await.revision),
    }
}

async fn commands_are_served_while_a_backlog_drains(url: String) {
    let world = World::over(url.clone()).await;
    world.offer(&[release("echo", "1.0.0"), release("feeds", "1.0.0")]).await;
    let mut conn = AnyConnection::connect(&url).await.expect("a connection");
    sqlx::raw_sql(FILL).execute(&mut conn).await.expect("a backlog");

    let cleanup = Cleanup::new(world.store.clone(), world.clock.clone(), CleanupPolicy::default());
    let draining = tokio::spawn(async move { cleanup.activate().await });
    let mut served = 0;
    while !draining.is_finished() {
        let accepted = world.app.install(command(&world, served).await).await.expect("accepted");
        world.run(&accepted).await.expect("installed");
        let accepted = world.app.uninstall(command(&world, served + 1).await).await.expect("accepted");
        world.run(&accepted).await.expect("uninstalled");
        served += 2;
    }
    let forgotten = draining.await.expect("no panic").expect("drained");
    assert_eq!(forgotten, 2 * BACKLOG as u64);
    // A batch is a two-hundredth of it, so commands find many gaps.
    assert!(served >= 10, "only {served} commands were served while the backlog drained");
    assert_eq!(count(&mut conn, "SELECT COUNT(*) FROM operations WHERE operation_id LIKE 'old-%'").await, 0);
    let kept = count(&mut conn, "SELECT COUNT(*) FROM operations").await;
    assert_eq!(kept, served + 1, "what has just ended is kept");
    assert_eq!(count(&mut conn, "SELECT COUNT(*) FROM outbox WHERE published_at IS NOT NULL").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    sqlx::any::install_default_drivers();
    commands_are_served_while_a_backlog_drains(sqlite_url(&folder.path().join("portcullis.db"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    let schema = Arc::new(Schema::new().await);
    sqlx::any::install_default_drivers();
    commands_are_served_while_a_backlog_drains(schema.url()).await;
}
