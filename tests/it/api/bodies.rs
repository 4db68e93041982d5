//! Bodies: JSON only, bounded, exact.

use axum::body::Body;
use serde_json::json;

use super::fakes::{Api, mutation, request};

const INSTALL: &str = "/v1/connector-market/connectors/feeds:install";
const COMMANDS: [(&str, &str); 4] = [
    ("POST", "/v1/connector-market:refresh"),
    ("POST", INSTALL),
    ("POST", "/v1/connector-market/connectors/feeds:uninstall"),
    ("PUT", "/v1/connector-market/connectors/feeds/runtime"),
];

#[tokio::test]
async fn a_command_without_a_body_is_refused() {
    let api = Api::default();
    for (method, path) in COMMANDS {
        api.ask(method, path, None).await.refused(400, "connector_market_invalid_request");
    }
}

#[tokio::test]
async fn negative_missing_fractional_and_unknown_fields_are_refused() {
    let api = Api::default();
    let base = json!({ "clientRequestId": "one", "expectedRevision": 7 });
    for (method, path) in COMMANDS {
        for (field, value) in [
            ("expectedRevision", json!(-1)),
            ("expectedRevision", json!(1.5)),
            ("expectedRevision", json!("7")),
            ("expectedRevision", json!(null)),
            ("expectedConnectorRevision", json!(-1)),
            ("clientRequestId", json!("")),
            ("clientRequestId", json!(" padded ")),
            ("clientRequestId", json!("x".repeat(257))),
            ("clientRequestId", json!(7)),
            ("surprise", json!(true)),
        ] {
            let mut body = base.clone();
            if method == "PUT" {
                body["enabled"] = true.into();
            }
            body[field] = value;
            let answer = api.ask(method, path, Some(body.clone())).await;
            assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text);
            answer.refused(400, "connector_market_invalid_request");
        }
        for missing in ["clientRequestId", "expectedRevision"] {
            let mut body = base.clone();
            if method == "PUT" {
                body["enabled"] = true.into();
            }
            body.as_object_mut().unwrap().remove(missing);
            api.ask(method, path, Some(body)).await.refused(400, "connector_market_invalid_request");
        }
    }
    let without_switch = api.ask("PUT", COMMANDS[3].1, Some(base)).await;
    without_switch.refused(400, "connector_market_invalid_request");
    assert!(api.market.unwrap().asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_not_one_json_object_is_refused() {
    let api = Api::default();
    let twice = r#"{"clientRequestId":"a","clientRequestId":"b","expectedRevision":1}"#;
    let deep = "[".repeat(10_000);
    for text in ["{", "[]", "null", "7", "{} {}", "\u{feff}{}", twice, deep.as_str()] {
        let request = request("POST", INSTALL).header("content-type", "application/json");
        let answer = api.send(request.body(Body::from(text.to_owned())).unwrap()).await;
        answer.refused(400, "connector_market_invalid_request");
        assert!(answer.text.len() < 1000, "{}", answer.text);
    }
}

#[tokio::test]
async fn another_media_type_is_refused() {
    let api = Api::default();
    for media_type in
        [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/jsonp")]
    {
        let mut request = request("POST", INSTALL);
        if let Some(media_type) = media_type {
            request = request.header("content-type", media_type);
        }
        let answer = api.send(request.body(Body::from(mutation().to_string())).unwrap()).await;
        answer.refused(415, "unsupported_media_type");
    }
    let request = request("POST", INSTALL).header("content-type", "Application/JSON; charset=utf-8");
    api.send(request.body(Body::from(mutation().to_string())).unwrap()).await.ok(202);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_declared_or_not() {
    let api = Api::default();
    for (path, limit) in [(INSTALL, 64 << 10), ("/v1/capabilities/feeds.read:call", 1 << 20)] {
        let text = format!("{{\"input\":{{\"text\":\"{}\"}}}}", "x".repeat(limit));
        let declared = request("POST", path).header("content-type", "application/json");
        api.send(declared.body(Body::from(text.clone())).unwrap()).await.refused(413, "body_too_large");
        let streamed = request("POST", path).header("content-type", "application/json");
        let chunks = text
            .into_bytes()
            .chunks(8192)
            .map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec()))
            .collect::<Vec<_>>();
        let body = Body::from_stream(futures::stream::iter(chunks));
        api.send(streamed.body(body).unwrap()).await.refused(413, "body_too_large");
    }
    assert!(api.host.calls.lock().unwrap().is_empty());
    let fits = json!({ "input": { "text": "x".repeat(1_000_000) } });
    api.post("/v1/capabilities/feeds.read:call", fits).await.ok(200);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    let api = Api::default();
    let request = request("POST", INSTALL).header("content-type", "application/json");
    let body = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    api.send(request.body(body).unwrap()).await.refused(400, "connector_market_invalid_request");
}
