//! The API of a real daemon, spoken to as any program would.

use serde_json::{Value, json};

use super::Daemon;

fn install(request_id: &str, revision: &Value) -> Value {
    json!({ "clientRequestId": request_id, "expectedRevision": 0, "expectedConnectorRevision": revision })
}

const INSTALL_ECHO: &str = "/v1/connector-market/connectors/echo:install";

#[test]
fn the_same_command_is_done_once_and_a_reused_id_or_stale_revision_is_refused() {
    let daemon = Daemon::with_catalog();
    let revision = daemon.connector("echo")["revision"].clone();
    let command = install("mine", &revision);
    let (status, first) = daemon.ask("POST", INSTALL_ECHO, Some(&command));
    assert_eq!(status, 202, "{first}");
    let (status, second) = daemon.ask("POST", INSTALL_ECHO, Some(&command));
    assert_eq!(status, 202, "{second}");
    assert_eq!(first["operation"]["operationId"], second["operation"]["operationId"]);

    let other = "/v1/connector-market/connectors/feeds:install";
    let (status, reused) = daemon.ask("POST", other, Some(&command));
    assert_eq!((status, &reused["code"]), (400, &json!("connector_market_invalid_request")));
    let (status, stale) = daemon.ask("POST", other, Some(&install("stale", &json!(999_999))));
    assert_eq!((status, &stale["code"]), (409, &json!("connector_market_revision_conflict")));
    assert_eq!(stale["revision"], daemon.connector("feeds")["revision"]);
    assert_eq!(daemon.connector("feeds")["installation"]["state"], "not_installed");
}

#[test]
fn readiness_tells_what_each_task_does_and_health_nothing() {
    let daemon = Daemon::start(&[]);
    let (status, ready) = daemon.ask("GET", "/readyz", None);
    assert_eq!((status, &ready["ready"]), (200, &json!(true)), "{ready}");
    assert!(ready["tasks"].as_array().is_some_and(|tasks| !tasks.is_empty()), "{ready}");
    assert_eq!(daemon.ask("GET", "/healthz", None), (200, json!({ "status": "ok" })));
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
        let (answered, answer) = daemon.ask("POST", call, Some(&body));
        assert_eq!((answered, &answer["code"]), (status, &json!(code)), "{answer}");
    }
    let (status, answer) = daemon.ask("POST", call, Some(&json!({ "input": { "message": "still here" } })));
    assert_eq!((status, &answer["structuredContent"]["message"]), (200, &json!("still here")), "{answer}");
    assert!(answer["generation"]["generation"].as_u64().is_some_and(|number| number > 0));
}
