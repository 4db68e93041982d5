//! Who is let in: the token, the names, the origin.

use axum::{
    body::Body,
    http::{Request, StatusCode},
};

use super::fakes::{Api, Asked, FakeMarket, HOST, TOKEN, mutation, request};

/// Every route, with a method it takes.
const ROUTES: [(&str, &str); 13] = [
    ("GET", "/readyz"),
    ("GET", "/v1/connector-market"),
    ("POST", "/v1/connector-market:refresh"),
    ("GET", "/v1/connector-market/categories"),
    ("GET", "/v1/connector-market/catalog?sectionId=tools"),
    ("GET", "/v1/connector-market/connectors/feeds"),
    ("POST", "/v1/connector-market/connectors/feeds:install"),
    ("PUT", "/v1/connector-market/connectors/feeds/runtime"),
    ("GET", "/v1/connector-market/operations/op-1"),
    ("GET", "/v1/capabilities"),
    ("GET", "/v1/capabilities/feeds.read"),
    ("POST", "/v1/capabilities/feeds.read:call"),
    ("GET", "/v1/routes"),
];

#[tokio::test]
async fn every_route_but_healthz_wants_the_token() {
    let api = Api::default();
    let wrong = format!("Bearer {TOKEN}x");
    let short = format!("Bearer {}", &TOKEN[1..]);
    let basic = format!("Basic {TOKEN}");
    for (method, path) in ROUTES.into_iter().chain([("GET", "/nowhere")]) {
        for token in [None, Some(""), Some("Bearer "), Some(TOKEN), Some(&wrong), Some(&short), Some(&basic)]
        {
            let mut request = Request::builder().method(method).uri(path).header("host", HOST);
            if let Some(token) = token {
                request = request.header("authorization", token);
            }
            let answer = api.send(request.body(Body::empty()).unwrap()).await;
            answer.refused(401, "unauthenticated");
            assert_eq!(answer.header("www-authenticate"), "Bearer", "{method} {path} {token:?}");
            assert!(!answer.text.contains(TOKEN), "{}", answer.text);
        }
    }
    assert!(api.host.calls.lock().unwrap().is_empty());
    assert!(api.market.unwrap().asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn healthz_answers_without_a_token_and_says_nothing_else() {
    let request = Request::builder().uri("/healthz").header("host", HOST).body(Body::empty()).unwrap();
    let answer = Api::default().send(request).await;
    assert_eq!(answer.ok(200), &serde_json::json!({ "status": "ok" }));
}

#[tokio::test]
async fn two_tokens_are_no_token() {
    let request = request("GET", "/v1/routes").header("authorization", "Bearer other");
    let answer = Api::default().send(request.body(Body::empty()).unwrap()).await;
    answer.refused(403, "origin_refused");
}

#[tokio::test]
async fn a_foreign_host_name_is_refused_even_with_the_token() {
    let api = Api::default();
    for host in ["evil.example", "evil.example:7480", "127.0.0.1", "127.0.0.1:1", "10.1.2.3:7480", ""] {
        for path in ["/v1/routes", "/healthz"] {
            let request = Request::builder()
                .uri(path)
                .header("host", host)
                .header("authorization", format!("Bearer {TOKEN}"))
                .body(Body::empty())
                .unwrap();
            api.send(request).await.refused(403, "origin_refused");
        }
    }
    for host in ["localhost:7480", "[::1]:7480", "gate.example", "gate.example:8443"] {
        let request = Request::builder()
            .uri("/v1/routes")
            .header("host", host)
            .header("authorization", format!("Bearer {TOKEN}"))
            .body(Body::empty())
            .unwrap();
        api.send(request).await.ok(200);
    }
}

#[tokio::test]
async fn a_request_must_say_once_whom_it_is_for() {
    let api = Api::default();
    let bearer = format!("Bearer {TOKEN}");
    let none = Request::builder().uri("/v1/routes").header("authorization", &bearer);
    api.send(none.body(Body::empty()).unwrap()).await.refused(403, "origin_refused");
    let twice = request("GET", "/v1/routes").header("host", "evil.example");
    api.send(twice.body(Body::empty()).unwrap()).await.refused(403, "origin_refused");
    let differing = request("GET", "http://evil.example/v1/routes");
    api.send(differing.body(Body::empty()).unwrap()).await.refused(403, "origin_refused");
}

#[tokio::test]
async fn only_our_own_origin_is_let_in() {
    let api = Api::default();
    for origin in [
        "http://evil.example",
        "null",
        "http://127.0.0.1:8080",
        "http://localhost:7480",
        "file://127.0.0.1:7480",
        "",
    ] {
        let mut request = request("POST", "/v1/connector-market/connectors/feeds:install");
        request = request.header("origin", origin).header("content-type", "application/json");
        let answer = api.send(request.body(Body::from(mutation().to_string())).unwrap()).await;
        answer.refused(403, "origin_refused");
    }
    assert!(api.market.as_ref().unwrap().asked.lock().unwrap().is_empty());
    let own = request("GET", "/v1/routes").header("origin", format!("http://{HOST}"));
    api.send(own.body(Body::empty()).unwrap()).await.ok(200);
}

#[tokio::test]
async fn unknown_paths_verbs_and_methods_are_told_apart() {
    let api = Api::default();
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/v2/capabilities"),
        ("GET", "/v1/connector-market/"),
        ("POST", "/v1/connector-market:reset"),
        ("POST", "/v1/connector-market/connectors/feeds:explode"),
        ("GET", "/v1/connector-market/connectors/feeds:explode"),
        ("POST", "/v1/connector-market/connectors/feeds:"),
        ("POST", "/v1/connector-market/connectors/feeds/install"),
        ("POST", "/v1/capabilities/feeds.read:install"),
        ("GET", "/v1/connector-market/operations/op-1:cancel"),
    ] {
        let answer = api.ask(method, path, None).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method} {path}: {}", answer.text);
        answer.refused(404, "route_not_found");
    }
    for (method, path) in [
        ("DELETE", "/v1/connector-market"),
        ("GET", "/v1/connector-market:refresh"),
        ("GET", "/v1/connector-market/connectors/feeds:install"),
        ("POST", "/v1/connector-market/connectors/feeds"),
        ("DELETE", "/v1/connector-market/connectors/feeds"),
        ("POST", "/v1/connector-market/connectors/feeds/runtime"),
        ("GET", "/v1/capabilities/feeds.read:call"),
        ("POST", "/v1/capabilities/feeds.read"),
        ("POST", "/healthz"),
    ] {
        let answer = api.ask(method, path, None).await;
        answer.refused(405, "method_not_allowed");
        assert!(!answer.header("allow").is_empty(), "{method} {path}");
    }
}

#[tokio::test]
async fn a_request_id_comes_back_and_a_bad_one_is_replaced() {
    let api = Api::default();
    let sent = request("GET", "/v1/routes").header("x-request-id", "mine-1").body(Body::empty()).unwrap();
    assert_eq!(api.send(sent).await.header("x-request-id"), "mine-1");
    let long = "x".repeat(129);
    for bad in ["", " ", long.as_str()] {
        let sent = request("GET", "/nowhere").header("x-request-id", bad).body(Body::empty()).unwrap();
        let answer = api.send(sent).await;
        assert_eq!(answer.header("x-request-id").len(), 32, "{bad:?}");
        assert_eq!(answer.body["requestId"], answer.header("x-request-id"));
    }
}

#[tokio::test]
async fn the_account_is_the_daemons_and_never_the_callers() {
    let api = Api::with_market(FakeMarket::default());
    let mut body = mutation();
    body["accountId"] = "other".into();
    let path = "/v1/connector-market/connectors/feeds:install";
    api.post(path, body).await.refused(400, "connector_market_invalid_request");
    api.post(path, mutation()).await.ok(202);
    let asked = api.market.as_ref().unwrap().asked.lock().unwrap().clone();
    let [Asked::Install(command)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(command.mutation.scope.account_id.as_ref().unwrap().as_str(), "local");
}
