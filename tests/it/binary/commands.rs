//! Bad commands: each is refused by its code, names what was wrong, and leaves
//! the market exactly as it was.

use serde_json::{Value, json};

use super::{
    Daemon, Shared,
    http::{Asked, send},
    neighbor::beside,
    shop::{Shop, echo, manifest, marked},
    site::Site,
};

const ECHO: &str = "/v1/connector-market/connectors/echo";
const REFRESH: &str = "/v1/connector-market:refresh";

/// A daemon with `echo` installed and `other` not, whose state no test here changes.
static STILL: Shared<Daemon> = Shared::new();

fn still() -> Daemon {
    let daemon = Daemon::with_catalog();
    daemon.install("echo");
    daemon
}

/// Everything that a command could change.
fn all(daemon: &Daemon) -> [Value; 3] {
    [daemon.snapshot(), daemon.see("/v1/capabilities"), daemon.see("/v1/routes")]
}

/// Does what must be refused, beside a neighbor, and sees that nothing changed.
#[track_caller]
fn unchanged<T>(daemon: &Daemon, work: impl FnOnce() -> T) -> T {
    let before = all(daemon);
    let result = beside(daemon, work);
    // Calls of the neighbor come and go.
    let quiet = |mut seen: [Value; 3]| {
        for route in seen[2]["routes"].as_array_mut().unwrap() {
            route.as_object_mut().unwrap().remove("callsInFlight");
        }
        seen
    };
    assert_eq!(quiet(before), quiet(all(daemon)));
    result
}

#[track_caller]
fn refuses(answered: (u16, Value), status: u16, code: &str, says: &str) {
    let (answered, answer) = answered;
    assert_eq!((answered, &answer["code"]), (status, &json!(code)), "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains(says), "{says:?} is not in {message:?}");
    assert!(answer["requestId"].is_string() && answer["retryable"].is_boolean(), "{answer}");
}

/// A good body for every route that takes one, at the revisions of now.
fn bodies(daemon: &Daemon) -> Vec<(&'static str, String, Value)> {
    let revision = daemon.connector("echo")["revision"].clone();
    let command = json!({
        "clientRequestId": "never", "expectedRevision": 0, "expectedConnectorRevision": revision,
    });
    let mut switch = command.clone();
    switch["enabled"] = json!(false);
    let refresh = json!({ "clientRequestId": "never", "expectedRevision": daemon.snapshot()["revision"] });
    vec![
        ("POST", format!("{ECHO}:install"), command.clone()),
        ("POST", format!("{ECHO}:uninstall"), command),
        ("PUT", format!("{ECHO}/runtime"), switch),
        ("POST", REFRESH.to_owned(), refresh),
        ("POST", "/v1/capabilities/echo.echo:call".to_owned(), json!({ "input": { "message": "x" } })),
    ]
}

#[test]
fn without_the_token_nothing_is_told_and_nothing_is_done() {
    let daemon = STILL.get(still);
    let token = daemon.token();
    let wrong = [
        None,
        Some(format!("Bearer {}", "x".repeat(token.len()))),
        Some(format!("Bearer {}", &token[1..])),
        Some(format!("Bearer {token}x")),
        Some("Bearer ".to_owned()),
        Some(token.clone()),
        Some(format!("Basic {token}")),
    ];
    let reads = ["/v1/connector-market", "/v1/connector-market/categories", ECHO, "/v1/capabilities"];
    let more = ["/v1/routes", "/readyz", "/v1/connector-market/operations/none", "/nowhere"];
    let mut asked: Vec<_> =
        reads.iter().chain(&more).map(|path| ("GET", (*path).to_owned(), Value::Null)).collect();
    asked.extend(bodies(&daemon));
    unchanged(&daemon, || {
        for (method, path, body) in &asked {
            for shown in &wrong {
                let mut headers = vec![("Content-Type", "application/json".to_owned())];
                headers.extend(shown.iter().map(|shown| ("Authorization", shown.clone())));
                let body = if body.is_null() { String::new() } else { body.to_string() };
                let request = Asked { method, path, headers, body: body.as_bytes() };
                let answered = send(&daemon.endpoint(), &request).unwrap();
                assert!(!answered.1.to_string().contains(&token[1..]), "the token is told");
                refuses(answered, 401, "unauthenticated", "Authorization: Bearer");
            }
        }
    });
    assert!(!daemon.log().contains(&token[1..]), "the token is in the log");
}

#[test]
fn another_sites_page_is_refused_even_with_the_token() {
    let daemon = STILL.get(still);
    let endpoint = daemon.endpoint();
    let port = endpoint.rsplit_once(':').unwrap().1;
    unchanged(&daemon, || {
        for (name, value) in [
            ("Host", "evil.example".to_owned()),
            ("Host", format!("evil.example:{port}")),
            ("Origin", "https://evil.example".to_owned()),
            ("Origin", "null".to_owned()),
            ("Origin", format!("http://localhost.evil.example:{port}")),
        ] {
            for (method, path, body) in bodies(&daemon) {
                let mut headers = daemon.headers();
                headers.push((name, value.clone()));
                let body = body.to_string();
                let request = Asked { method, path: &path, headers, body: body.as_bytes() };
                let answered = send(&endpoint, &request).unwrap();
                refuses(answered, 403, "origin_refused", value.trim_start_matches("http://"));
            }
        }
    });
}

#[test]
fn a_body_that_is_not_the_routes_is_refused_and_told_why() {
    let daemon = STILL.get(still);
    let invalid = "connector_market_invalid_request";
    unchanged(&daemon, || {
        for (method, path, good) in bodies(&daemon) {
            let fields: Vec<String> = good.as_object().unwrap().keys().cloned().collect();
            let mut more = good.clone();
            more["unheardOf"] = json!(1);
            refuses(daemon.ask(method, &path, Some(&more)), 400, invalid, "unheardOf");
            for field in &fields {
                let mut less = good.clone();
                less.as_object_mut().unwrap().remove(field);
                let mut other = good.clone();
                other[field] = json!([]);
                let mut twice = good.to_string();
                twice.insert_str(1, &format!("{:?}:{},", field, good[field]));
                if field == "input" {
                    // Any JSON may be an input; the capability's schema judges it.
                    refuses(daemon.ask(method, &path, Some(&less)), 400, invalid, field);
                } else {
                    if field != "expectedConnectorRevision" {
                        refuses(daemon.ask(method, &path, Some(&less)), 400, invalid, field);
                    }
                    refuses(daemon.ask(method, &path, Some(&other)), 400, invalid, "");
                }
                let doubled = daemon.ask_raw(method, &path, twice.as_bytes()).unwrap();
                refuses(doubled, 400, invalid, field);
            }
            for (raw, says) in [
                (&b""[..], "JSON body is required"),
                (b"{", "EOF"),
                (b"[]", ""),
                (b"\"text\"", ""),
                (b"{} {}", ""),
                (b"\xff\xfe", ""),
            ] {
                refuses(daemon.ask_raw(method, &path, raw).unwrap(), 400, invalid, says);
            }
            let body = good.to_string();
            for media_type in ["text/plain", "application/x-www-form-urlencoded", ""] {
                let mut headers = daemon.headers();
                headers[1].1 = media_type.to_owned();
                let request = Asked { method, path: &path, headers, body: body.as_bytes() };
                let answered = send(&daemon.endpoint(), &request).unwrap();
                refuses(answered, 415, "unsupported_media_type", "application/json");
            }
            let padded = format!("{body}{}", " ".repeat(2 << 20));
            let answered = daemon.ask_raw(method, &path, padded.as_bytes()).unwrap();
            refuses(answered, 413, "body_too_large", "bytes");
        }
    });
}

#[test]
fn what_can_be_no_revision_id_or_key_is_refused() {
    let daemon = STILL.get(still);
    unchanged(&daemon, || {
        let revision = daemon.connector("echo")["revision"].clone();
        for (field, value) in [
            ("clientRequestId", json!("")),
            ("clientRequestId", json!("   ")),
            ("clientRequestId", json!("x".repeat(10_000))),
            ("expectedRevision", json!(-1)),
            ("expectedRevision", json!(1.5)),
            ("expectedRevision", json!("1")),
            ("expectedConnectorRevision", json!(-1)),
        ] {
            let mut body = json!({
                "clientRequestId": "never", "expectedRevision": 0, "expectedConnectorRevision": revision,
            });
            body[field] = value;
            let answered = daemon.ask("POST", &format!("{ECHO}:uninstall"), Some(&body));
            refuses(answered, 400, "connector_market_invalid_request", "");
        }
        let body = json!({ "clientRequestId": "never", "expectedRevision": 0 });
        for (key, status, code) in [
            ("Echo", 400, "connector_market_invalid_request"),
            ("a%2Fb", 400, "connector_market_invalid_request"),
            ("%2e%2e", 400, "connector_market_invalid_request"),
            ("nobody", 404, "connector_not_found"),
        ] {
            let path = format!("/v1/connector-market/connectors/{key}:install");
            refuses(daemon.ask("POST", &path, Some(&body)), status, code, "");
        }
    });
}

#[test]
fn paths_and_methods_that_are_not_there_are_told_apart() {
    let daemon = STILL.get(still);
    unchanged(&daemon, || {
        for (method, path, status, code) in [
            ("GET", "/", 404, "route_not_found"),
            ("GET", "/v2/connector-market", 404, "route_not_found"),
            ("GET", "/v1/connector-market/", 404, "route_not_found"),
            ("DELETE", ECHO, 405, "method_not_allowed"),
            ("PUT", "/v1/connector-market", 405, "method_not_allowed"),
            ("GET", "/v1/connector-market:refresh", 405, "method_not_allowed"),
        ] {
            refuses(daemon.ask(method, path, None), status, code, "");
        }
    });
}

#[test]
fn a_command_at_a_stale_revision_is_refused() {
    let daemon = STILL.get(still);
    unchanged(&daemon, || {
        let current = daemon.snapshot()["revision"].as_u64().unwrap();
        let own = daemon.connector("echo")["revision"].as_u64().unwrap();
        let conflict = "connector_market_revision_conflict";
        for (method, path, good) in bodies(&daemon).into_iter().take(4) {
            let of_connector = good.get("expectedConnectorRevision").is_some();
            for stale in [0, current - 1, current + 1, u64::MAX] {
                let mut body = good.clone();
                body.as_object_mut().unwrap().remove("expectedConnectorRevision");
                body["expectedRevision"] = json!(stale);
                refuses(daemon.ask(method, &path, Some(&body)), 409, conflict, &current.to_string());
            }
            for stale in [0, own - 1, own + 1] {
                let mut body = good.clone();
                if of_connector {
                    // The connector's own revision is judged, whatever the global one says.
                    body["expectedRevision"] = json!(current);
                    body["expectedConnectorRevision"] = json!(stale);
                    let (status, answer) = daemon.ask(method, &path, Some(&body));
                    assert_eq!(answer["revision"], own, "it tells the revision that holds: {answer}");
                    refuses((status, answer), 409, conflict, "echo");
                }
            }
        }
    });
}

#[test]
fn a_request_id_stands_for_one_command() {
    let daemon = Daemon::with_catalog();
    let (status, installed) = daemon.command("echo", "install", "mine");
    assert_eq!(status, 202, "{installed}");
    daemon.ended(&installed["operation"]["operationId"]);
    unchanged(&daemon, || {
        let invalid = "connector_market_invalid_request";
        refuses(daemon.command("echo", "uninstall", "mine"), 400, invalid, "mine");
        refuses(daemon.command("feeds", "install", "mine"), 400, invalid, "mine");
        let refresh = json!({ "clientRequestId": "mine", "expectedRevision": daemon.snapshot()["revision"] });
        refuses(daemon.ask("POST", REFRESH, Some(&refresh)), 400, invalid, "mine");
        // The same command again is the same operation, long after it has ended,
        // and at whatever revision.
        for revision in [json!(0), daemon.connector("echo")["revision"].clone()] {
            let body = json!({
                "clientRequestId": "mine", "expectedRevision": 0, "expectedConnectorRevision": revision,
            });
            let (status, again) = daemon.ask("POST", &format!("{ECHO}:install"), Some(&body));
            assert_eq!(status, 202, "{again}");
            assert_eq!(again["operation"]["operationId"], installed["operation"]["operationId"]);
            assert_eq!(again["operation"]["state"], "completed");
        }
    });
}

#[test]
fn a_second_operation_waits_for_the_first_in_its_lane_only() {
    let mut shop = Shop::with_echo();
    for key in ["slow", "quick"] {
        // Bytes of its own, so that they are fetched.
        shop.offer_component(key, "1.0.0", &manifest(json!({}), &[]), &marked(&echo(), key));
    }
    shop.publish();
    let site = Site::over(shop.path());
    let daemon = Daemon::start(&["--catalog", &site.url]);
    daemon.run(&["refresh"]).ok();
    daemon.install("echo");

    let artifact = "artifacts/slow/1.0.0/slow-1.0.0.tar.gz";
    site.hold(artifact);
    let (status, first) = daemon.command("slow", "install", "first");
    assert_eq!(status, 202, "{first}");
    site.await_asked(artifact);
    let in_progress = "connector_operation_in_progress";
    unchanged(&daemon, || {
        refuses(daemon.command("slow", "install", "second"), 409, in_progress, "slow");
        refuses(daemon.command("slow", "uninstall", "third"), 409, in_progress, "slow");
        daemon.run(&["install", "slow", "--yes"]).failed(5, in_progress);
        assert_eq!(daemon.connector("slow")["installation"], json!({ "state": "installing" }));
        assert!(daemon.routes("slow").is_empty());
    });
    // Other lanes are free: another connector's, and the catalog's.
    daemon.install("quick");
    daemon.run(&["refresh"]).ok();

    site.hold("catalog.json");
    let refresh = |id: &str| {
        let body = json!({ "clientRequestId": id, "expectedRevision": daemon.snapshot()["revision"] });
        daemon.ask("POST", REFRESH, Some(&body))
    };
    let (status, reading) = refresh("reading");
    assert_eq!(status, 202, "{reading}");
    site.await_asked("catalog.json");
    unchanged(&daemon, || {
        refuses(refresh("reading-too"), 409, in_progress, "catalog");
        daemon.run(&["refresh"]).failed(5, in_progress);
    });
    site.release();
    for operation in [first, reading] {
        let ended = daemon.ended(&operation["operation"]["operationId"]);
        assert_eq!((&ended["state"], &ended["attempt"]), (&json!("completed"), &json!(1)), "{ended}");
    }
    assert_eq!(daemon.call("slow.echo", &json!({ "message": "x" })).0, 200);
    assert_eq!(daemon.operations("slow").len(), 1, "the refused ones left no trace");
}
