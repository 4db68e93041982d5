//! The API of a real daemon, spoken to as any program would.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use serde_json::{Value, json};

use super::Daemon;

/// Sends a request with the token and answers status and body.
fn ask(daemon: &Daemon, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let endpoint = daemon.endpoint();
    let address = endpoint.strip_prefix("http://").unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        daemon.token(),
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn connector(daemon: &Daemon, key: &str) -> Value {
    let (status, body) = ask(daemon, "GET", &format!("/v1/connector-market/connectors/{key}"), None);
    assert_eq!(status, 200, "{body}");
    body
}

fn install(request_id: &str, revision: &Value) -> Value {
    json!({ "clientRequestId": request_id, "expectedRevision": 0, "expectedConnectorRevision": revision })
}

const INSTALL_ECHO: &str = "/v1/connector-market/connectors/echo:install";

#[test]
fn the_same_command_is_done_once_and_a_reused_id_or_stale_revision_is_refused() {
    let daemon = Daemon::with_catalog();
    let revision = connector(&daemon, "echo")["revision"].clone();
    let command = install("mine", &revision);
    let (status, first) = ask(&daemon, "POST", INSTALL_ECHO, Some(&command));
    assert_eq!(status, 202, "{first}");
    let (status, second) = ask(&daemon, "POST", INSTALL_ECHO, Some(&command));
    assert_eq!(status, 202, "{second}");
    assert_eq!(first["operation"]["operationId"], second["operation"]["operationId"]);

    let other = "/v1/connector-market/connectors/feeds:install";
    let (status, reused) = ask(&daemon, "POST", other, Some(&command));
    assert_eq!((status, &reused["code"]), (400, &json!("connector_market_invalid_request")));
    let (status, stale) = ask(&daemon, "POST", other, Some(&install("stale", &json!(999_999))));
    assert_eq!((status, &stale["code"]), (409, &json!("connector_market_revision_conflict")));
    assert_eq!(stale["revision"], connector(&daemon, "feeds")["revision"]);
    assert_eq!(connector(&daemon, "feeds")["installation"]["state"], "not_installed");
}

#[test]
fn readiness_tells_what_each_task_does_and_health_nothing() {
    let daemon = Daemon::start(&[]);
    let (status, ready) = ask(&daemon, "GET", "/readyz", None);
    assert_eq!((status, &ready["ready"]), (200, &json!(true)), "{ready}");
    assert!(ready["tasks"].as_array().is_some_and(|tasks| !tasks.is_empty()), "{ready}");
    assert_eq!(ask(&daemon, "GET", "/healthz", None), (200, json!({ "status": "ok" })));
}

#[test]
fn a_refused_call_leaves_the_daemon_serving() {
    let daemon = Daemon::with_catalog();
    daemon.run(&["install", "echo", "--yes"]).ok();
    let call = "/v1/capabilities/echo.echo:call";
    for (body, status, code) in [
        (json!({ "input": { "message": 7 } }), 422, "capability_input_invalid"),
        (json!({ "input": { "message": "x", "more": 1 } }), 422, "capability_input_invalid"),
        (json!({ "input": { "message": "x" }, "extra": 1 }), 400, "connector_market_invalid_request"),
        (json!({ "input": { "message": "x".repeat(1 << 20) } }), 413, "body_too_large"),
    ] {
        let (answered, answer) = ask(&daemon, "POST", call, Some(&body));
        assert_eq!((answered, &answer["code"]), (status, &json!(code)), "{answer}");
    }
    let (status, answer) = ask(&daemon, "POST", call, Some(&json!({ "input": { "message": "still here" } })));
    assert_eq!((status, &answer["structuredContent"]["message"]), (200, &json!("still here")), "{answer}");
    assert!(answer["generation"]["generation"].as_u64().is_some_and(|number| number > 0));
}
