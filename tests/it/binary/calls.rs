//! Bad calls, and guests that misbehave in one: each ends by its code, costs no
//! more than its limits, keeps nothing, and holds up nobody else.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Daemon, Shared, eventually,
    neighbor::beside,
    shop::{Shop, manifest},
};
use crate::guests;

/// `bad` has little CPU, memory and output; `hasty` has little time and one call
/// at a time. Both are the same component.
struct Bench {
    daemon: Daemon,
    listener: TcpListener,
    _shop: Shop,
}

static BENCH: Shared<Bench> = Shared::new();

fn bench() -> Bench {
    let misbehave = fs::read(guests::component("hostile/misbehave", &[])).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let little = json!({
        "cpuMs": 300, "wallMs": 60_000, "memoryBytes": 8 << 20, "responseBytes": 10_000,
    });
    let hasty = json!({ "cpuMs": 60_000, "wallMs": 500, "concurrentCalls": 1 });
    let hosts = ["api.example.com", "localhost.localdomain", "dev.example.com"];
    let mut shop = Shop::with_echo();
    shop.offer_component("bad", "1.0.0", &manifest(little, &hosts), &misbehave);
    shop.offer_component("hasty", "1.0.0", &manifest(hasty, &[]), &misbehave);
    shop.publish();
    let development = format!("dev.example.com={}", listener.local_addr().unwrap());
    let daemon = Daemon::start(&["--catalog", shop.location(), "--development-host", &development]);
    daemon.run(&["refresh"]).ok();
    for key in ["echo", "bad", "hasty"] {
        daemon.install(key);
    }
    Bench { daemon, listener, _shop: shop }
}

/// Calls, and is refused beside a neighbor; the message.
#[track_caller]
fn refused(daemon: &Daemon, capability: &str, input: &Value, status: u16, code: &str) -> String {
    let (answered, answer) = beside(daemon, || daemon.call(capability, input));
    assert_eq!((answered, &answer["code"]), (status, &json!(code)), "{capability}: {answer}");
    assert!(answer["requestId"].is_string(), "{answer}");
    answer["message"].as_str().unwrap().to_owned()
}

/// The structured answer of a call that succeeds.
#[track_caller]
fn asked(daemon: &Daemon, capability: &str, input: &Value) -> Value {
    let (status, mut answer) = daemon.call(capability, input);
    assert_eq!(status, 200, "{capability}: {answer}");
    answer["structuredContent"].take()
}

#[test]
fn a_guest_that_uses_up_what_it_has_ends_by_the_limit_that_it_met() {
    let bench = BENCH.get(bench);
    let daemon = &bench.daemon;
    for (capability, input, status, code, says) in [
        ("bad.trap", json!({}), 502, "capability_trapped", "unreachable"),
        ("bad.loop", json!({}), 502, "capability_cpu_exhausted", "300"),
        ("bad.recurse", json!({}), 502, "capability_stack_exhausted", "stack"),
        ("bad.allocate", json!({}), 502, "capability_memory_exhausted", "memory"),
        ("bad.big_output", json!({ "bytes": 10_001 }), 502, "capability_output_too_large", "10000"),
        ("bad.big_output", json!({ "bytes": 4 << 20 }), 502, "capability_output_too_large", "10000"),
        ("hasty.slow", json!({ "ms": 60_000 }), 504, "capability_deadline_exceeded", "deadline"),
        ("hasty.loop", json!({}), 504, "capability_deadline_exceeded", "deadline"),
    ] {
        let message = refused(daemon, capability, &input, status, code);
        assert!(message.contains(says), "{capability}: {says:?} is not in {message:?}");
        let connector = capability.split_once('.').unwrap().0;
        // The next call finds a fresh instance.
        assert_eq!(asked(daemon, &format!("{connector}.count"), &json!({})), json!({ "count": 1 }));
    }
    assert_eq!(daemon.routes("bad").len(), 1, "the route is the same");
}

#[test]
fn an_answer_outside_the_schema_is_not_passed_on() {
    let bench = BENCH.get(bench);
    for (capability, says) in [
        ("bad.bad_output", "/count"),
        ("bad.no_structured", "structured"),
        ("bad.invalid_json", "JSON"),
        ("bad.not_an_object", "object"),
    ] {
        let message = refused(&bench.daemon, capability, &json!({}), 502, "capability_output_invalid");
        assert!(message.contains(says), "{capability}: {says:?} is not in {message:?}");
        assert!(!message.contains("many"), "what the guest said is not repeated: {message}");
    }
}

#[test]
fn input_outside_the_schema_never_reaches_the_guest() {
    let bench = BENCH.get(bench);
    let write = json!({ "key": "guarded", "value": "x", "more": true });
    let message = refused(&bench.daemon, "bad.state_set", &write, 422, "capability_input_invalid");
    assert!(message.contains("additionalProperties"), "{message}");
    for (capability, input) in [
        ("bad.state_set", json!({ "key": "guarded" })),
        ("bad.state_set", json!({ "key": "guarded", "value": 7 })),
        ("bad.slow", json!({ "ms": -1 })),
        ("bad.slow", json!({ "ms": "100" })),
        ("bad.trap", json!([])),
        ("bad.trap", json!(null)),
        ("bad.trap", json!("text")),
    ] {
        refused(&bench.daemon, capability, &input, 422, "capability_input_invalid");
    }
    assert_eq!(asked(&bench.daemon, "bad.state_get", &json!({ "key": "guarded" })), json!({ "value": null }));
}

#[test]
fn what_a_failed_call_wrote_is_not_kept() {
    let bench = BENCH.get(bench);
    let daemon = &bench.daemon;
    let entry = |value: &str| json!({ "key": "kept", "value": value });
    asked(daemon, "bad.state_set", &entry("one"));
    for (capability, status, code) in [
        ("bad.state_set_then_fail", 409, "connector_conflict"),
        ("bad.state_set_then_trap", 502, "capability_trapped"),
        ("bad.state_set_then_loop", 502, "capability_cpu_exhausted"),
    ] {
        refused(daemon, capability, &entry("two"), status, code);
        assert_eq!(asked(daemon, "bad.state_get", &json!({ "key": "kept" })), json!({ "value": "one" }));
    }
}

#[test]
fn a_flood_is_cut_and_the_log_stays_readable() {
    let bench = BENCH.get(bench);
    let daemon = &bench.daemon;
    let line = "x".repeat(97);
    let (status, answer) =
        beside(daemon, || daemon.call("hasty.flood_log", &json!({ "lines": 10_000, "bytes": 97 })));
    assert_eq!(status, 200, "{answer}");
    let logged = || daemon.log().lines().filter(|logged| logged.contains(&line)).count();
    eventually("the lines are in the log", || (logged() > 0).then_some(()));
    assert!(logged() <= 1_000, "{} lines of one call", logged());
    let before = daemon.log().len();
    let (status, answer) =
        beside(daemon, || daemon.call("hasty.flood_log", &json!({ "lines": 100, "bytes": 100_000 })));
    assert_eq!(status, 200, "{answer}");
    assert!(daemon.log().len() - before < 1 << 20, "{} bytes of one call", daemon.log().len() - before);
    let (status, answer) =
        beside(daemon, || daemon.call("bad.flood_progress", &json!({ "reports": 10_000 })));
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn a_host_that_was_not_granted_is_never_reached() {
    let bench = BENCH.get(bench);
    let (daemon, listener) = (&bench.daemon, &bench.listener);
    let port = listener.local_addr().unwrap().port();
    let endpoint = daemon.endpoint();
    let own = endpoint.rsplit_once(':').unwrap().1;
    for url in [
        "https://other.example.com/".to_owned(),
        "https://sub.api.example.com/".to_owned(),
        "http://api.example.com/".to_owned(),
        "https://api.example.com:8443/".to_owned(),
        "https://someone@api.example.com/".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://127.0.0.1:{own}/healthz"),
        format!("https://dev.example.com.other.example.com:{port}/"),
    ] {
        let answer = beside(daemon, || asked(daemon, "bad.fetch", &json!({ "url": url })));
        assert_eq!(answer["error"], "HTTP-request-denied", "{url}: {answer}");
        assert_eq!(answer["status"], Value::Null, "{url}");
    }
    let knocked = listener.accept().map(drop).map_err(|cause| cause.kind());
    assert_eq!(knocked, Err(ErrorKind::WouldBlock), "nothing left");

    // The listener is there: a host that was granted reaches it.
    let answer = thread::scope(|scope| {
        let call = scope.spawn(|| asked(daemon, "bad.fetch", &json!({ "url": "http://dev.example.com/" })));
        let (mut stream, _) = eventually("the guest comes", || listener.accept().ok());
        stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
        call.join().unwrap()
    });
    assert_eq!(answer["status"], 204, "{answer}");
}

#[test]
fn more_calls_at_once_than_a_connector_takes_are_told_to_come_back() {
    let bench = BENCH.get(bench);
    let daemon = &bench.daemon;
    let mut seen: Vec<(u16, Value)> = beside(daemon, || {
        thread::scope(|scope| {
            let calls: Vec<_> =
                (0..6).map(|_| scope.spawn(|| daemon.call("hasty.slow", &json!({ "ms": 300 })))).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        })
    });
    seen.retain(|(status, _)| *status != 200);
    let busy: Vec<_> = seen.iter().filter(|(_, answer)| answer["code"] == "capability_busy").collect();
    assert!(!busy.is_empty(), "{seen:?}");
    for (status, answer) in busy {
        assert_eq!((*status, &answer["retryable"]), (429, &json!(true)), "{answer}");
    }
    eventually("there is room again", || (daemon.call("hasty.count", &json!({})).0 == 200).then_some(()));
}

#[test]
fn the_caller_may_wait_for_less_but_not_for_ever() {
    let bench = BENCH.get(bench);
    let call = |deadline: Value| {
        let body = json!({ "input": { "ms": 60_000 }, "deadlineMs": deadline });
        beside(&bench.daemon, || bench.daemon.ask("POST", "/v1/capabilities/bad.slow:call", Some(&body)))
    };
    let begun = Instant::now();
    let (status, answer) = call(json!(200));
    assert_eq!((status, &answer["code"]), (504, &json!("capability_deadline_exceeded")), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    for deadline in [json!(0), json!(-1), json!(600_001), json!("soon"), json!(1.5)] {
        let (status, answer) = call(deadline);
        assert_eq!((status, &answer["code"]), (400, &json!("connector_market_invalid_request")), "{answer}");
    }
}

#[test]
fn a_caller_that_goes_away_takes_its_call_along() {
    let bench = BENCH.get(bench);
    let daemon = &bench.daemon;
    let endpoint = daemon.endpoint();
    let address = endpoint.strip_prefix("http://").unwrap();
    let body = json!({ "input": { "ms": 60_000 } }).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    let call = "POST /v1/capabilities/bad.slow:call HTTP/1.1";
    write!(
        stream,
        "{call}\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        daemon.token(),
        body.len()
    )
    .unwrap();
    // Other tests call `bad` as well, but none of their calls lasts.
    let begun = Instant::now();
    eventually("the call runs", || (daemon.routes("bad")[0]["callsInFlight"] != 0).then_some(()));
    drop(stream);
    eventually("it has ended", || (daemon.routes("bad")[0]["callsInFlight"] == 0).then_some(()));
    assert!(begun.elapsed() < Duration::from_secs(55), "it ended before its own time");
}

#[test]
fn a_person_is_told_what_became_of_a_call() {
    let bench = BENCH.get(bench);
    let daemon = &bench.daemon;
    daemon.run(&["call", "bad.trap", "{}"]).failed(7, "capability_trapped");
    daemon.run(&["call", "bad.loop", "{}"]).failed(7, "capability_cpu_exhausted");
    daemon.run(&["call", "bad.bad_output", "{}"]).failed(7, "capability_output_invalid");
    daemon.run(&["call", "bad.fail", r#"{"kind":"unauthorized"}"#]).failed(7, "connector_unauthorized");
    daemon.run(&["call", "bad.slow", r#"{"ms":60000}"#, "--deadline-ms", "200"]).failed(7, "deadline");
    daemon.run(&["call", "bad.slow", r#"{"ms":-1}"#]).failed(4, "portcullis capabilities bad.slow");
    daemon.run(&["call", "bad.nothing", "{}"]).failed(3, "capability_not_found");
}
