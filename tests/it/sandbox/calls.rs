//! Honest calls, and the promises around each.

use std::time::Duration;

use portcullis::{
    domain::{
        capability::{CallRequest, Content},
        error::ErrorCode,
        id::AccountId,
        timestamp::Timestamp,
    },
    ports::{Clock as _, ImplementationHost as _, SystemClock},
};
use serde_json::json;

use super::world::{Connector, World, call, generation, with_progress};

#[tokio::test]
async fn echo_answers_with_text_and_structure() {
    let world = World::new();
    let receipt = world.activate(&Connector::echo()).await.expect("a route");
    assert_eq!(receipt.summary.expect("a summary").name, "echo");
    let response = world.call("echo.echo", json!({"message": "hello"})).await.expect("an answer");
    assert_eq!(response.result.content, [Content::Text { text: "hello".into() }]);
    assert_eq!(response.result.structured_content, Some(json!({"message": "hello"})));
    assert_eq!((response.version.as_str(), response.generation), ("1.0.0", generation(1)));
    let capabilities = world.host.capabilities(None);
    assert_eq!(capabilities.len(), 1);
    assert_eq!(capabilities[0].id.to_string(), "echo.echo");
}

#[tokio::test]
async fn input_outside_the_schema_never_reaches_the_guest() {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a route");
    let before = world.host.counts().instances;
    let (code, message) = world.refusal("echo.echo", json!({"message": 5})).await;
    assert_eq!(code, ErrorCode::CapabilityInputInvalid);
    assert!(message.contains("/message") && message.contains("type"), "{message}");
    let (code, message) = world.refusal("echo.echo", json!({"message": "x", "secret": "s3cr3t"})).await;
    assert_eq!(code, ErrorCode::CapabilityInputInvalid);
    assert!(message.contains("additionalProperties") && !message.contains("s3cr3t"), "{message}");
    assert_eq!(world.refusal("echo.echo", json!([])).await.0, ErrorCode::CapabilityInputInvalid);
    assert_eq!(world.host.counts().instances, before, "no instance was made");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a route");
    assert_eq!(world.refusal("echo.other", json!({})).await.0, ErrorCode::CapabilityNotFound);
    assert_eq!(world.refusal("other.echo", json!({})).await.0, ErrorCode::CapabilityNotFound);
}

#[tokio::test]
async fn no_memory_outlives_a_call() {
    let world = World::new();
    world.activate(&Connector::misbehave()).await.expect("a route");
    for _ in 0..5 {
        assert_eq!(world.ask("bad.count", json!({})).await, json!({"count": 1}));
    }
}

#[tokio::test]
async fn a_guest_sees_no_environment_and_no_files() {
    let world = World::new();
    world.activate(&Connector::misbehave()).await.expect("a route");
    let seen = world.ask("bad.env", json!({})).await;
    assert_eq!(seen, json!({"environment": {}, "arguments": [], "preopens": 0}));
}

#[tokio::test]
async fn asking_the_caller_is_refused_with_a_type() {
    let world = World::new();
    world.activate(&Connector::misbehave()).await.expect("a route");
    assert_eq!(world.ask("bad.elicit", json!({})).await["outcome"], "unsupported");
    assert_eq!(world.ask("bad.sample", json!({})).await["outcome"], "unsupported");
}

#[tokio::test]
async fn errors_of_the_connector_keep_their_kind() {
    let world = World::new();
    world.activate(&Connector::misbehave()).await.expect("a route");
    for (kind, code) in [
        ("invalid-input", ErrorCode::ConnectorInvalidInput),
        ("unauthorized", ErrorCode::ConnectorUnauthorized),
        ("forbidden", ErrorCode::ConnectorForbidden),
        ("not-found", ErrorCode::ConnectorTargetNotFound),
        ("conflict", ErrorCode::ConnectorConflict),
        ("rate-limited", ErrorCode::ConnectorRateLimited),
        ("upstream", ErrorCode::ConnectorUpstream),
        ("internal", ErrorCode::ConnectorInternal),
    ] {
        let (found, message) = world.refusal("bad.fail", json!({"kind": kind, "retry_after": 1500})).await;
        assert_eq!(found, code);
        assert!(message.contains(kind), "{message}");
        assert_eq!(message.contains("1500"), kind == "rate-limited", "{message}");
    }
}

#[tokio::test]
async fn progress_arrives_in_order_and_a_flood_is_merged() {
    let world = World::new();
    world.activate(&Connector::misbehave()).await.expect("a route");
    let (request, reports) = with_progress(call("bad.progress_steps", json!({"steps": 3})));
    world.host.call(request).await.expect("an answer");
    let done: Vec<f64> = reports.lock().expect("reports").iter().map(|one| one.done).collect();
    assert!(done.is_sorted() && done.first() == Some(&1.0) && done.last() == Some(&3.0), "{done:?}");

    let (request, reports) = with_progress(call("bad.flood_progress", json!({"reports": 50_000})));
    world.host.call(request).await.expect("an answer");
    let reports = reports.lock().expect("reports");
    assert!(reports.len() < 1_000, "{} reports came through", reports.len());
    assert_eq!(reports.last().map(|one| one.done), Some(49_999.0), "the last one is never lost");
    assert!(world.host.counts().progress_merged > 40_000);
}

#[tokio::test]
async fn nothing_is_published_while_publication_is_off() {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a route");
    world.host.set_publication(false);
    assert!(world.host.capabilities(None).is_empty());
    assert_eq!(world.refusal("echo.echo", json!({"message": "x"})).await.0, ErrorCode::Unavailable);
    world.host.set_publication(true);
    assert!(world.call("echo.echo", json!({"message": "x"})).await.is_ok());
}

#[tokio::test]
async fn a_connection_serves_its_own_account_only() {
    let world = World::new();
    world.activate(&Connector::echo().account("ada")).await.expect("a route");
    let of = |account: Option<&str>| CallRequest {
        account: account.map(|account| AccountId::parse(account).expect("an account")),
        ..call("echo.echo", json!({"message": "x"}))
    };
    assert!(world.host.call(of(Some("ada"))).await.is_ok());
    for other in [None, Some("bob")] {
        let refusal = world.host.call(of(other)).await.expect_err("a refusal");
        assert_eq!(refusal.code, ErrorCode::CapabilityNotFound);
        assert!(world.host.capabilities(of(other).account.as_ref()).is_empty());
    }
}

#[tokio::test]
async fn the_callers_deadline_counts_when_it_is_sooner() {
    let world = World::new();
    world.activate(&Connector::misbehave()).await.expect("a route");
    let now = SystemClock.now();
    let soon = CallRequest {
        deadline: Some(now.plus(Duration::from_millis(200))),
        ..call("bad.slow", json!({"ms": 20_000}))
    };
    let error = world.host.call(soon).await.expect_err("a refusal");
    assert_eq!(error.code, ErrorCode::CapabilityDeadlineExceeded);
    let past = CallRequest { deadline: Some(Timestamp(now.0 - 1)), ..call("bad.count", json!({})) };
    let error = world.host.call(past).await.expect_err("a refusal");
    assert_eq!(error.code, ErrorCode::CapabilityDeadlineExceeded);
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_call() {
    let world = World::new();
    world.activate(&Connector::misbehave()).await.expect("a route");
    let running = tokio::spawn({
        let host = world.host.clone();
        async move { host.call(call("bad.slow", json!({"ms": 20_000}))).await }
    });
    until(|| world.host.routes()[0].calls_in_flight == 1).await;
    running.abort();
    until(|| world.host.routes()[0].calls_in_flight == 0).await;
}

/// Waits for what another thread is about to bring about.
pub(super) async fn until(holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waited).await.expect("it happens in time");
}
