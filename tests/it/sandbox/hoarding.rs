//! Guests that make the host hold or send more than their limits say.

use std::time::Duration;

use portcullis::domain::error::ErrorCode;
use serde_json::{Value, json};

use super::world::{Connector, World};

const LIMIT: u64 = 100_000;

async fn world() -> World {
    let world = World::new();
    world.activate(&Connector::misbehave().limits(json!({"responseBytes": LIMIT}))).await.expect("a route");
    world
}

/// The largest answer of a capability that passes, in bytes of JSON; `step` bytes of
/// JSON come with one of `input`.
async fn largest(world: &World, capability: &str, input: &str, step: u64) -> u64 {
    let name = format!("bad.{capability}");
    let mut passed = None;
    // From clearly too much down to what passes: the bound is where it is expected.
    for count in (0..=LIMIT / step + 100).rev().step_by(20) {
        match world.call(&name, json!({input: count})).await {
            Ok(answer) => {
                passed = Some(serde_json::to_vec(&answer.result).expect("JSON").len() as u64);
                break;
            }
            Err(error) => assert_eq!(error.code, ErrorCode::CapabilityOutputTooLarge, "{error}"),
        }
    }
    passed.expect("a small answer passes")
}

#[tokio::test]
async fn an_answer_in_json_stays_within_its_limit() {
    let world = world().await;
    let link = r#"{"type":"resource_link","uri":"","name":"","title":"","description":"","mimeType":""},"#;
    for (capability, input, step) in
        [("links", "count", link.len() as u64), ("escapes", "bytes", 6), ("numbers", "count", 19)]
    {
        let size = largest(&world, capability, input, step).await;
        assert!(size <= LIMIT + 1_100, "{capability}: {size} bytes were sent");
        assert!(size >= LIMIT - 3_000, "{capability}: what fits is not refused, {size}");
    }
}

#[tokio::test]
async fn bytes_count_as_the_base64_that_is_sent() {
    let world = world().await;
    world.call("bad.image", json!({"bytes": 75_000})).await.expect("an answer");
    let (code, message) = world.refusal("bad.image", json!({"bytes": 80_000})).await;
    assert_eq!(code, ErrorCode::CapabilityOutputTooLarge);
    assert!(message.contains("100000"), "{message}");
}

#[tokio::test]
async fn very_many_empty_links_are_refused() {
    let world = world().await;
    let (code, _) = world.refusal("bad.links", json!({"count": 100_000})).await;
    assert_eq!(code, ErrorCode::CapabilityOutputTooLarge);
}

#[tokio::test]
async fn header_fields_are_bounded_in_size_and_number() {
    let world = world().await;
    let fields = async |count: u64, bytes: u64| {
        world.call("bad.fields", json!({"count": count, "bytes": bytes})).await
    };
    let structured = |answer: portcullis::domain::capability::CallResponse| {
        answer.result.structured_content.expect("a structured answer")
    };
    let usual = fields(200, 8_000).await.expect("an answer");
    assert_eq!(structured(usual), json!({"kept": 200}));
    let long = fields(1, 17_000).await.expect_err("a refusal");
    assert_eq!(long.code, ErrorCode::CapabilityTrapped);
    let many = fields(2_000, 16_000).await.expect_err("a refusal");
    assert_eq!(many.code, ErrorCode::CapabilityTrapped);
    world.call("bad.count", json!({})).await.expect("the host goes on");
}

#[tokio::test]
async fn parts_of_a_request_are_bounded() {
    let world = world().await;
    let all = |accepted: bool| -> Value {
        json!({"method": accepted, "scheme": accepted, "authority": accepted, "path": accepted})
    };
    assert_eq!(world.ask("bad.request_parts", json!({"bytes": 60})).await, all(true));
    let one = world.ask("bad.request_parts", json!({"bytes": 500})).await;
    assert_eq!(one, json!({"method": false, "scheme": false, "authority": true, "path": true}));
    let two = world.ask("bad.request_parts", json!({"bytes": 8_000})).await;
    assert_eq!(two, json!({"method": false, "scheme": false, "authority": false, "path": true}));
    assert_eq!(world.ask("bad.request_parts", json!({"bytes": 8_192})).await, all(false));
}

#[tokio::test]
async fn all_calls_together_keep_to_one_budget_of_memory() {
    let world = World::with(|settings| settings.memory_budget_bytes = 16 << 20);
    let greedy = Connector::misbehave().limits(json!({"memoryBytes": 256 << 20}));
    world.activate(&greedy).await.expect("a route");
    for _ in 0..3 {
        let (code, message) = world.refusal("bad.allocate", json!({})).await;
        assert_eq!(code, ErrorCode::CapabilityMemoryExhausted);
        assert!(message.contains("this host"), "it is not the connector's own limit: {message}");
        // The answer goes out before its instance is taken apart.
        let again = async {
            while let Err(error) = world.call("bad.count", json!({})).await {
                assert_eq!((error.code, error.retryable), (ErrorCode::CapabilityMemoryExhausted, true));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), again).await.expect("the memory was given back");
    }
}
