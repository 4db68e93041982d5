//! How a daemon stops: softly on the first signal, at once on the second.

use std::{
    fs,
    process::ExitStatus,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Daemon, eventually,
    http::{Asked, send},
    shop::{Shop, echo, manifest, marked},
    site::Site,
};
use crate::guests;

/// A daemon whose connector `bad` can wait for as long as it is asked to.
fn patient(drain_deadline: &str) -> (Daemon, Shop) {
    let misbehave = fs::read(guests::component("hostile/misbehave", &[])).unwrap();
    let mut shop = Shop::with_echo();
    let long = json!({ "cpuMs": 60_000, "wallMs": 100_000 });
    shop.offer_component("bad", "1.0.0", &manifest(long, &[]), &misbehave);
    shop.publish();
    let daemon = Daemon::start(&["--catalog", shop.location(), "--drain-deadline", drain_deadline]);
    daemon.run(&["refresh"]).ok();
    daemon.install("echo");
    daemon.install("bad");
    (daemon, shop)
}

/// A call of `bad` that is running when this returns.
fn running<'scope>(
    daemon: &Daemon,
    scope: &'scope thread::Scope<'scope, '_>,
    capability: &'static str,
    input: Value,
) -> ScopedJoinHandle<'scope, Option<(u16, Value)>> {
    let (endpoint, headers) = (daemon.endpoint(), daemon.headers());
    let call = scope.spawn(move || {
        let path = format!("/v1/capabilities/{capability}:call");
        let body = json!({ "input": input }).to_string();
        send(&endpoint, &Asked { method: "POST", path: &path, headers, body: body.as_bytes() })
    });
    eventually("the call runs", || (daemon.routes("bad")[0]["callsInFlight"] == 1).then_some(()));
    call
}

/// Waits for the end of the process, at most `most`.
#[track_caller]
fn ends_within(daemon: &mut Daemon, most: Duration) -> ExitStatus {
    let begun = Instant::now();
    let status = eventually("the process ends", || daemon.process.try_wait().unwrap());
    assert!(begun.elapsed() < most, "it took {:?}\n{}", begun.elapsed(), daemon.log());
    status
}

#[test]
fn a_running_call_is_answered_before_the_daemon_goes() {
    let (mut daemon, _shop) = patient("60");
    let endpoint = daemon.endpoint();
    thread::scope(|scope| {
        let call = running(&daemon, scope, "bad.slow", json!({ "ms": 2_000 }));
        daemon.terminate();
        // Nobody else is let in meanwhile.
        eventually("the door is closed", || {
            let asked = Asked { method: "GET", path: "/healthz", headers: vec![], body: b"" };
            send(&endpoint, &asked).is_none().then_some(())
        });
        assert!(!call.is_finished(), "the call still runs");
        let (status, answer) = call.join().unwrap().unwrap();
        assert_eq!(status, 200, "{answer}");
    });
    assert_eq!(ends_within(&mut daemon, Duration::from_secs(20)).code(), Some(0), "{}", daemon.log());
    assert!(!daemon.data_dir().join("daemon.json").exists());
    assert!(daemon.log().contains("stopped"), "{}", daemon.log());
}

#[test]
fn a_call_that_does_not_end_is_fenced_at_the_deadline() {
    let (mut daemon, shop) = patient("1");
    for (capability, input) in [("bad.slow", json!({ "ms": 90_000 })), ("bad.loop", json!({}))] {
        thread::scope(|scope| {
            let call = running(&daemon, scope, capability, input);
            let begun = Instant::now();
            daemon.terminate();
            let (status, answer) = call.join().unwrap().expect("the caller is told");
            assert_eq!((status, &answer["code"]), (409, &json!("capability_fenced")), "{answer}");
            assert!(begun.elapsed() >= Duration::from_secs(1), "it had its second");
        });
        assert_eq!(ends_within(&mut daemon, Duration::from_secs(20)).code(), Some(0), "{}", daemon.log());
        // Nothing of it stands in the way of the next start.
        daemon.start_again(&["--catalog", shop.location(), "--drain-deadline", "1"]);
        assert_eq!(daemon.call_when_started("bad.count", &json!({})).0, 200);
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let (mut daemon, shop) = patient("600");
    thread::scope(|scope| {
        let call = running(&daemon, scope, "bad.slow", json!({ "ms": 90_000 }));
        daemon.terminate();
        eventually("the first signal is heard", || {
            daemon.log().contains("a second signal stops at once").then_some(())
        });
        assert!(daemon.process.try_wait().unwrap().is_none(), "it waits for the call");
        daemon.terminate();
        ends_within(&mut daemon, Duration::from_secs(10));
        call.join().unwrap();
    });
    assert!(!daemon.data_dir().join("daemon.json").exists());
    daemon.start_again(&["--catalog", shop.location()]);
    assert_eq!(daemon.call_when_started("echo.echo", &json!({ "message": "x" })).0, 200);
}

#[test]
fn an_installation_at_work_is_left_to_the_next_start() {
    let mut shop = Shop::with_echo();
    shop.offer_component("slow", "1.0.0", &manifest(json!({}), &[]), &marked(&echo(), "slow"));
    shop.publish();
    let site = Site::over(shop.path());
    let catalog = ["--catalog", site.url.as_str()];
    let mut daemon = Daemon::start(&catalog);
    daemon.run(&["refresh"]).ok();
    let artifact = "artifacts/slow/1.0.0/slow-1.0.0.tar.gz";
    site.hold(artifact);
    let (status, accepted) = daemon.command("slow", "install", "left");
    assert_eq!(status, 202, "{accepted}");
    site.await_asked(artifact);
    daemon.terminate();
    let ended = ends_within(&mut daemon, Duration::from_secs(20));
    assert_eq!(ended.code(), Some(0), "{}", daemon.log());
    site.release();
    daemon.start_again(&catalog);
    let operation = daemon.ended(&accepted["operation"]["operationId"]);
    assert_eq!(operation["state"], "completed", "{operation}");
    assert_eq!(daemon.call("slow.echo", &json!({ "message": "x" })).0, 200);
    eventually("staging is empty", || daemon.artifacts("staging").is_empty().then_some(()));
}

#[test]
fn a_second_daemon_takes_nothing_from_the_first() {
    let mut daemon = Daemon::with_catalog();
    daemon.install("echo");
    let (endpoint, token) = (daemon.endpoint(), daemon.token());
    for _ in 0..3 {
        daemon.run(&["serve", "--listen", "127.0.0.1:0"]).failed(5, "another daemon");
    }
    let address = endpoint.strip_prefix("http://").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = elsewhere.path().join("data");
    super::portcullis(&["serve", "--data-dir", other.to_str().unwrap(), "--listen", address], "")
        .failed(5, "in use");
    assert_eq!((daemon.endpoint(), daemon.token()), (endpoint, token));
    assert_eq!(daemon.call("echo.echo", &json!({ "message": "x" })).0, 200);
    assert_eq!(daemon.stop(), 0);
}
