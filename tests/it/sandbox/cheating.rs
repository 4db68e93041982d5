//! Guests that misbehave, each refused by its own code; the next call works.

use std::time::{Duration, Instant};

use portcullis::{
    domain::{
        capability::CallRequest,
        error::ErrorCode,
        id::{AccountId, ConnectorKey},
    },
    ports::{ImplementationHost as _, StateScope},
};
use serde_json::{Value, json};

use super::world::{Connector, World, call};

async fn world(limits: Value) -> World {
    let world = World::new();
    world.activate(&Connector::misbehave().limits(limits)).await.expect("a route");
    world
}

async fn expect(world: &World, capability: &str, input: Value, code: ErrorCode) -> String {
    let (found, message) = world.refusal(&format!("bad.{capability}"), input).await;
    assert_eq!(found, code, "{capability}: {message}");
    assert_eq!(world.ask("bad.count", json!({})).await, json!({"count": 1}), "the host goes on");
    message
}

#[tokio::test]
async fn a_trap_is_named() {
    let world = world(json!({})).await;
    let message = expect(&world, "trap", json!({}), ErrorCode::CapabilityTrapped).await;
    assert!(message.contains("unreachable"), "{message}");
}

#[tokio::test]
async fn an_endless_loop_ends_with_its_cpu() {
    let world = world(json!({"cpuMs": 100, "wallMs": 20_000})).await;
    let begun = Instant::now();
    expect(&world, "loop", json!({}), ErrorCode::CapabilityCpuExhausted).await;
    let took = begun.elapsed();
    assert!((Duration::from_millis(100)..Duration::from_secs(5)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn cpu_within_its_budget_is_fine() {
    let world = world(json!({"cpuMs": 5_000})).await;
    world.call("bad.spin_ms", json!({"ms": 50})).await.expect("an answer");
}

#[tokio::test]
async fn waiting_ends_with_the_deadline_and_costs_no_cpu() {
    let world = world(json!({"cpuMs": 50, "wallMs": 300})).await;
    expect(&world, "slow", json!({"ms": 60_000}), ErrorCode::CapabilityDeadlineExceeded).await;
    world.call("bad.slow", json!({"ms": 150})).await.expect("an answer");
}

#[tokio::test]
async fn computing_past_the_deadline_is_the_deadlines() {
    let world = world(json!({"cpuMs": 60_000, "wallMs": 200})).await;
    expect(&world, "loop", json!({}), ErrorCode::CapabilityDeadlineExceeded).await;
}

#[tokio::test]
async fn endless_recursion_exhausts_the_stack() {
    let world = world(json!({})).await;
    expect(&world, "recurse", json!({}), ErrorCode::CapabilityStackExhausted).await;
}

#[tokio::test]
async fn memory_without_end_is_refused_at_the_limit() {
    let world = world(json!({"memoryBytes": 8 << 20})).await;
    expect(&world, "allocate", json!({}), ErrorCode::CapabilityMemoryExhausted).await;
}

#[tokio::test]
async fn a_flood_of_log_lines_is_cut_and_dropped() {
    let world = world(json!({})).await;
    let before = world.host.counts();
    world.call("bad.flood_log", json!({"lines": 5_000, "bytes": 10})).await.expect("an answer");
    let after = world.host.counts();
    assert_eq!(after.log_lines - before.log_lines, 1_000);
    assert_eq!(after.log_lines_dropped - before.log_lines_dropped, 4_000);
    world.call("bad.flood_log", json!({"lines": 100, "bytes": 20_000})).await.expect("an answer");
    let long = world.host.counts();
    assert_eq!(long.log_lines - after.log_lines, 32, "256 KiB of lines cut at 8 KiB");
    assert_eq!(long.log_lines_cut - after.log_lines_cut, 32);
}

#[tokio::test]
async fn an_answer_outside_its_schema_is_refused() {
    let world = world(json!({})).await;
    let message = expect(&world, "bad_output", json!({}), ErrorCode::CapabilityOutputInvalid).await;
    assert!(message.contains("/count"), "{message}");
    expect(&world, "no_structured", json!({}), ErrorCode::CapabilityOutputInvalid).await;
    expect(&world, "invalid_json", json!({}), ErrorCode::CapabilityOutputInvalid).await;
    expect(&world, "not_an_object", json!({}), ErrorCode::CapabilityOutputInvalid).await;
}

#[tokio::test]
async fn an_answer_over_its_limit_is_refused() {
    let world = world(json!({"responseBytes": 1_000})).await;
    world.call("bad.big_output", json!({"bytes": 1_000})).await.expect("an answer");
    let message =
        expect(&world, "big_output", json!({"bytes": 1_001}), ErrorCode::CapabilityOutputTooLarge).await;
    assert!(message.contains("1001") && message.contains("1000"), "{message}");
    expect(&world, "big_output", json!({"bytes": 20 << 20}), ErrorCode::CapabilityOutputTooLarge).await;
}

#[tokio::test]
async fn calls_beyond_the_connectors_own_limit_wait_and_then_are_refused() {
    let world = world(json!({"concurrentCalls": 1, "wallMs": 400})).await;
    let slow = || call("bad.slow", json!({"ms": 250}));
    let all = futures::future::join_all((0..3).map(|_| world.host.call(slow()))).await;
    let codes: Vec<_> = all.iter().map(|one| one.as_ref().err().map(|error| error.code)).collect();
    assert!(codes.contains(&None), "one runs: {codes:?}");
    assert!(codes.contains(&Some(ErrorCode::CapabilityBusy)), "the queue is full: {codes:?}");
}

#[tokio::test]
async fn state_is_kept_only_when_the_call_succeeds() {
    let world = world(json!({"cpuMs": 200})).await;
    let entry = |value: &str| json!({"key": "k", "value": value});
    let value = async || world.ask("bad.state_get", json!({"key": "k"})).await["value"].clone();
    assert_eq!(value().await, Value::Null);
    world.call("bad.state_set", entry("one")).await.expect("an answer");
    assert_eq!(value().await, "one");
    expect(&world, "state_set_then_fail", entry("two"), ErrorCode::ConnectorConflict).await;
    expect(&world, "state_set_then_trap", entry("two"), ErrorCode::CapabilityTrapped).await;
    expect(&world, "state_set_then_loop", entry("two"), ErrorCode::CapabilityCpuExhausted).await;
    assert_eq!(value().await, "one");
    assert_eq!(world.ask("bad.state_list", json!({})).await, json!({"keys": ["k"]}));
    world.call("bad.state_delete", json!({"key": "k"})).await.expect("an answer");
    assert_eq!(value().await, Value::Null);
}

#[tokio::test]
async fn state_stops_at_its_quota() {
    let world = world(json!({})).await;
    let filled = world.ask("bad.state_fill", json!({"bytes": 100_000})).await;
    assert_eq!(filled["written"], 10, "{filled}");
    assert!(filled["error"].to_string().contains("quota"), "{filled}");
    let scope = StateScope {
        account: None,
        connector_key: ConnectorKey::parse("bad").expect("a key"),
        connection_id: Connector::misbehave().connection(),
    };
    let size: usize = world.ledger.state.lock().expect("state")[&scope].values().map(Vec::len).sum();
    assert_eq!(size, 1_000_000);
    let one = world.ask("bad.state_fill", json!({"bytes": 300_000})).await;
    assert_eq!(one["written"], 0, "a value has a limit of its own: {one}");
}

#[tokio::test]
async fn state_of_one_account_is_not_anothers() {
    let world = world(json!({})).await;
    let of = |account: &str, capability: &str, input: Value| CallRequest {
        account: Some(AccountId::parse(account).expect("an account")),
        ..call(capability, input)
    };
    world.host.call(of("ada", "bad.state_set", json!({"key": "k", "value": "v"}))).await.expect("an answer");
    let read = world.host.call(of("bob", "bad.state_get", json!({"key": "k"}))).await.expect("an answer");
    assert_eq!(read.result.structured_content, Some(json!({"value": null})));
}

#[tokio::test]
async fn removals_of_what_is_not_there_are_bounded() {
    let world = world(json!({})).await;
    assert_eq!(world.ask("bad.state_delete_many", json!({"count": 1_024})).await, json!({"deleted": 1_024}));
    let many = world.ask("bad.state_delete_many", json!({"count": 600_000})).await;
    assert_eq!(many["deleted"], 1_024, "{many}");
    assert!(many["error"].to_string().contains("quota"), "{many}");
}
