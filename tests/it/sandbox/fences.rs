//! A fence ends everything of a generation, at once and for sure.

use std::time::{Duration, Instant};

use portcullis::{
    domain::{
        capability::CallResponse,
        error::{Error, ErrorCode},
    },
    ports::{ImplementationHost as _, RouteStatus},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    calls::until,
    world::{Connector, SOON, World, call},
};

const ENDLESS: &str = "cpuMs";

async fn running(
    world: &World,
    capability: &'static str,
    input: Value,
    count: usize,
) -> JoinSet<Result<CallResponse, Error>> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let (host, input) = (world.host.clone(), input.clone());
        calls.spawn(async move { host.call(call(capability, input)).await });
    }
    until(|| world.host.routes().iter().any(|route| route.calls_in_flight == count)).await;
    calls
}

async fn all_fenced(calls: JoinSet<Result<CallResponse, Error>>) {
    for outcome in calls.join_all().await {
        assert_eq!(outcome.expect_err("a refusal").code, ErrorCode::CapabilityFenced);
    }
}

fn endless() -> Connector {
    Connector::misbehave().limits(json!({ENDLESS: 120_000, "wallMs": 120_000, "concurrentCalls": 100}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_endless_loops_end_with_the_fence() {
    let world = World::new();
    world.activate(&endless()).await.expect("a route");
    let calls = running(&world, "bad.loop", json!({}), 100).await;
    let begun = Instant::now();
    world.deactivate("bad", 1).await.expect("all are gone");
    let took = begun.elapsed();
    assert!(world.host.routes().is_empty());
    assert!(took < Duration::from_millis(500), "it took {took:?}");
    println!("fencing 100 endless loops took {took:?}");
    all_fenced(calls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbor_answers_while_a_hundred_loops_run() {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a route");
    world.activate(&endless()).await.expect("a route");
    let calls = running(&world, "bad.loop", json!({}), 100).await;
    let begun = Instant::now();
    for _ in 0..10 {
        world.call("echo.echo", json!({"message": "x"})).await.expect("an answer");
    }
    let took = begun.elapsed() / 10;
    assert!(took < Duration::from_millis(250), "a call took {took:?}");
    println!("a call beside 100 endless loops took {took:?}");
    world.deactivate("bad", 1).await.expect("all are gone");
    all_fenced(calls).await;
    world.call("echo.echo", json!({"message": "x"})).await.expect("an answer");
}

#[tokio::test]
async fn a_newer_generation_fences_the_older_one() {
    let world = World::new();
    world.activate(&endless()).await.expect("a route");
    let calls = running(&world, "bad.slow", json!({"ms": 60_000}), 3).await;
    world.activate(&endless().generation(2)).await.expect("a newer route");
    all_fenced(calls).await;
    let routes = world.host.routes();
    assert_eq!(routes.len(), 1);
    assert_eq!((routes[0].generation.number, routes[0].status), (2, RouteStatus::Active));
    let stale = world.host.reconcile(&world.request(&endless())).await.expect_err("a refusal");
    assert_eq!(stale.code, ErrorCode::RevisionConflict);
    assert_eq!(world.host.routes().len(), 1);
}

#[tokio::test]
async fn a_fenced_number_never_comes_back() {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a route");
    world.deactivate("echo", 5).await.expect("gone");
    let error =
        world.host.reconcile(&world.request(&Connector::echo().generation(5))).await.expect_err("fenced");
    assert_eq!(error.code, ErrorCode::RevisionConflict);
    assert_eq!(world.refusal("echo.echo", json!({"message": "x"})).await.0, ErrorCode::CapabilityNotFound);
    world.activate(&Connector::echo().generation(6)).await.expect("a later route");
}

#[tokio::test]
async fn a_fenced_call_stores_nothing() {
    let world = World::new();
    world.activate(&endless()).await.expect("a route");
    let calls = running(&world, "bad.state_set_then_loop", json!({"key": "k", "value": "v"}), 5).await;
    world.deactivate("bad", 1).await.expect("gone");
    all_fenced(calls).await;
    assert!(world.ledger.state.lock().expect("state").is_empty());
}

#[tokio::test]
async fn failing_closed_ends_everything_and_publishes_nothing() {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a route");
    world.activate(&endless()).await.expect("a route");
    let calls = running(&world, "bad.loop", json!({}), 4).await;
    world.host.fail_closed(SOON).await.expect("closed");
    all_fenced(calls).await;
    assert!(world.host.routes().is_empty() && world.host.capabilities(None).is_empty());
    let again = world.host.reconcile(&world.request(&Connector::echo())).await.expect_err("fenced");
    assert_eq!(again.code, ErrorCode::RevisionConflict);
    world.activate(&Connector::echo().generation(2)).await.expect("a later route");
    assert!(world.host.capabilities(None).is_empty(), "publication is still off");
    world.host.set_publication(true);
    world.call("echo.echo", json!({"message": "x"})).await.expect("an answer");
}

#[tokio::test]
async fn a_closed_host_stays_closed() {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a route");
    world.host.close(SOON).await.expect("closed");
    assert!(world.host.routes().is_empty());
    let error =
        world.host.reconcile(&world.request(&Connector::echo().generation(9))).await.expect_err("closed");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
    world.host.set_publication(true);
    assert_eq!(world.refusal("echo.echo", json!({"message": "x"})).await.0, ErrorCode::Unavailable);
    world.host.close(SOON).await.expect("closing again is fine");
}

#[tokio::test]
async fn deactivating_another_release_keeps_the_route() {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a route");
    let other = Connector { version: "2.0.0", ..Connector::echo() };
    let request = portcullis::domain::runtime::DeactivateRequest {
        scope: Default::default(),
        connection_id: Some(other.connection()),
        connector_key: "echo".parse().expect("a key"),
        release_digest: Some(other.release().release_digest),
        generation: super::world::generation(3),
    };
    let error = world.host.deactivate(&request, SOON).await.expect_err("a refusal");
    assert_eq!(error.code, ErrorCode::RevisionConflict);
    world.call("echo.echo", json!({"message": "x"})).await.expect("an answer");
}
