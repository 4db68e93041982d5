//! Capabilities, calls and routes.

use axum::body::Body;
use portcullis::domain::{error::ErrorCode, timestamp::Timestamp};
use serde_json::json;

use super::fakes::{Api, NOW, OnCall, request};

const CALL: &str = "/v1/capabilities/feeds.read:call";

#[tokio::test]
async fn a_call_answers_with_content_and_what_answered() {
    let api = Api::default();
    let sent = request("POST", CALL)
        .header("content-type", "application/json")
        .header("x-request-id", "call-1")
        .body(Body::from(
            json!({ "input": { "url": "https://api.example" }, "deadlineMs": 1500 }).to_string(),
        ))
        .unwrap();
    let answer = api.send(sent).await;
    let body = answer.ok(200);
    assert_eq!(body["content"], json!([{ "type": "text", "text": "two entries" }]));
    assert_eq!(body["structuredContent"], json!({ "entries": [1, 2] }));
    assert_eq!(body["version"], "1.0.0");
    assert_eq!(body["releaseDigest"].as_str().unwrap().len(), 64);
    assert_eq!(body["generation"], json!({ "bootEpoch": "boot", "generation": 3 }));
    assert!(body.get("connectionId").is_none());

    let calls = api.host.calls.lock().unwrap();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].request_id.as_str(), "call-1");
    assert_eq!(calls[0].account.as_ref().unwrap().as_str(), "local");
    assert_eq!(calls[0].input, json!({ "url": "https://api.example" }));
    assert_eq!(calls[0].deadline, Some(Timestamp(NOW.0 + 1500)));
}

#[tokio::test]
async fn a_call_must_bring_an_input_and_a_sane_deadline() {
    let api = Api::default();
    for body in [
        json!({}),
        json!({ "input": {}, "deadlineMs": 0 }),
        json!({ "input": {}, "deadlineMs": -5 }),
        json!({ "input": {}, "deadlineMs": 600_001 }),
        json!({ "input": {}, "deadlineMs": "soon" }),
        json!({ "input": {}, "account": "other" }),
    ] {
        let answer = api.post(CALL, body.clone()).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        answer.refused(400, "connector_market_invalid_request");
    }
    assert!(api.host.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_name_that_no_connector_offers_is_not_found() {
    let api = Api::default();
    for name in ["feeds.write", "other.read", "feeds", "FEEDS.read", "..", "feeds.", "%20"] {
        let path = format!("/v1/capabilities/{name}:call");
        api.post(&path, json!({ "input": {} })).await.refused(404, "capability_not_found");
        api.get(&format!("/v1/capabilities/{name}")).await.refused(404, "capability_not_found");
    }
    assert_eq!(api.get("/v1/capabilities/feeds.read").await.ok(200)["id"], "feeds.read");
}

#[tokio::test]
async fn a_failed_call_keeps_its_code_and_gets_the_status_of_its_meaning() {
    for (code, status) in [
        (ErrorCode::CapabilityInputInvalid, 422),
        (ErrorCode::CapabilityBusy, 429),
        (ErrorCode::CapabilityFenced, 409),
        (ErrorCode::CapabilityDeadlineExceeded, 504),
        (ErrorCode::CapabilityCpuExhausted, 502),
        (ErrorCode::CapabilityMemoryExhausted, 502),
        (ErrorCode::CapabilityTrapped, 502),
        (ErrorCode::CapabilityStackExhausted, 502),
        (ErrorCode::CapabilityOutputInvalid, 502),
        (ErrorCode::ConnectorRateLimited, 429),
        (ErrorCode::ConnectorTargetNotFound, 404),
        (ErrorCode::ConnectorUpstream, 502),
        (ErrorCode::Unavailable, 503),
    ] {
        let answer = Api::on_call(OnCall::Fail(code)).post(CALL, json!({ "input": {} })).await;
        answer.refused(status, code.as_str());
        assert_eq!(answer.body["retryable"], code.retryable(), "{code}");
    }
}

#[tokio::test]
async fn a_panic_ends_its_own_request_and_tells_nothing_of_itself() {
    let api = Api::on_call(OnCall::Panic);
    let answer = api.post(CALL, json!({ "input": {} })).await;
    answer.refused(503, "connector_market_unavailable");
    assert!(!answer.text.contains("as told"), "{}", answer.text);
    api.get("/v1/routes").await.ok(200);
}

#[tokio::test]
async fn lists_are_arrays_under_their_names() {
    let api = Api::default();
    let capabilities = api.get("/v1/capabilities").await;
    let one = &capabilities.ok(200)["capabilities"][0];
    assert_eq!(one["id"], "feeds.read");
    assert_eq!(one["inputSchema"], json!({ "type": "object" }));
    assert_eq!(one["annotations"]["readOnly"], true);
    let routes = api.get("/v1/routes").await;
    let route = &routes.ok(200)["routes"][0];
    assert_eq!(route["status"], "active");
    assert_eq!(route["generation"], json!({ "bootEpoch": "boot", "generation": 3 }));
}

#[tokio::test]
async fn readiness_says_why_not() {
    assert_eq!(Api::default().get("/readyz").await.ok(200)["ready"], true);
    let starting = Api { ready: false, ..Api::default() };
    assert_eq!(starting.get("/readyz").await.ok(503)["bootstrapped"], false);
}
