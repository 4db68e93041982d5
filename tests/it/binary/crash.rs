//! A power cut at any moment: what was accepted goes on after the next start,
//! is done once, and leaves nothing lying about.

use std::{
    hash::{BuildHasher as _, RandomState},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Daemon, eventually,
    shop::{Shop, echo, manifest, marked},
    site::Site,
};

const ROUNDS: u64 = 15;

/// Random moments; the seed is printed, and can be given again.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let given = std::env::var("CRASH_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0) | 1);
        println!("CRASH_SEED={seed}");
        Self(seed)
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        most.mul_f64((self.0 >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

/// A connector for each round, each with a component of its own, so that each
/// round fetches, unpacks, compiles and starts.
fn shop(version: &str) -> Shop {
    let mut shop = Shop::with_echo();
    offer(&mut shop, version);
    shop
}

fn offer(shop: &mut Shop, version: &str) {
    for round in 0..=ROUNDS {
        let component = marked(&echo(), &format!("{round} {version}"));
        shop.offer_component(&key(round), version, &manifest(json!({}), &[]), &component);
    }
    shop.publish();
}

fn key(round: u64) -> String {
    format!("round-{round}")
}

/// How long the whole command takes when nothing is in its way.
fn uninterrupted(daemon: &Daemon, key: &str, verb: &str) -> Duration {
    let begun = Instant::now();
    let (status, accepted) = daemon.command(key, verb, &format!("uninterrupted {verb}"));
    assert_eq!(status, 202, "{accepted}");
    assert_eq!(daemon.ended(&accepted["operation"]["operationId"])["state"], "completed");
    begun.elapsed()
}

/// Sends the command, kills the daemon `after` that, and starts it again. Answers
/// with the operation when it has ended; none when it was never accepted.
fn interrupted(
    daemon: &mut Daemon,
    key: &str,
    verb: &str,
    after: Duration,
    catalog: &[&str],
) -> Option<Value> {
    // While it is being started its revision moves on.
    let connector = eventually("the connector is at rest", || {
        let connector = daemon.connector(key);
        let starting = connector["runtime"]["state"] == "starting";
        (!starting).then_some(connector)
    });
    let body = json!({
        "clientRequestId": format!("{verb} {key}"),
        "expectedRevision": 0,
        "expectedConnectorRevision": connector["revision"],
    });
    let path = format!("/v1/connector-market/connectors/{key}:{verb}");
    let accepted = thread::scope(|scope| {
        let command = {
            let (endpoint, headers, body) = (daemon.endpoint(), daemon.headers(), body.to_string());
            let path = &path;
            scope.spawn(move || {
                let asked = super::http::Asked { method: "POST", path, headers, body: body.as_bytes() };
                super::http::send(&endpoint, &asked)
            })
        };
        // The moment is the point here, so this is no waiting for something.
        thread::sleep(after);
        daemon.kill();
        command.join().unwrap()
    });
    daemon.start_again(catalog);
    let request_id = body["clientRequestId"].clone();
    let known: Vec<Value> =
        daemon.operations(key).into_iter().filter(|one| one["clientRequestId"] == request_id).collect();
    if let Some((409, answer)) = &accepted
        && answer["code"] == "connector_market_revision_conflict"
    {
        // The connector came to rest a moment later than it looked.
        assert!(known.is_empty(), "what was refused left something: {known:?}");
        return interrupted(daemon, key, verb, after, catalog);
    }
    if let Some((status, answer)) = accepted {
        assert_eq!(status, 202, "{answer}");
        assert_eq!(known.len(), 1, "what was accepted is not lost");
        assert_eq!(known[0]["operationId"], answer["operation"]["operationId"]);
    }
    let operation = daemon.ended(&known.first()?["operationId"]);
    assert_eq!(
        operation["state"],
        "completed",
        "{key} killed after {after:?}: {operation}\n{}",
        daemon.log()
    );
    // The same command again is not another one.
    let (status, again) = daemon.ask("POST", &path, Some(&body));
    assert_eq!((status, &again["operation"]["operationId"]), (202, &operation["operationId"]), "{again}");
    Some(operation)
}

#[track_caller]
fn answers(daemon: &Daemon, key: &str, version: &str) {
    let (status, answer) = daemon.call_when_started(&format!("{key}.echo"), &json!({ "message": key }));
    assert_eq!((status, &answer["structuredContent"]["message"]), (200, &json!(key)), "{answer}");
    assert_eq!(answer["version"], version, "{answer}");
    let routes = daemon.routes(key);
    assert_eq!(routes.len(), 1, "{routes:?}");
}

#[track_caller]
fn tidy(daemon: &Daemon) {
    assert_eq!(daemon.artifacts("staging"), [""; 0]);
    let mut known: Vec<String> = daemon.snapshot()["connectors"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|connector| connector["installation"].get("installedVersion").is_some())
        .map(|connector| connector["key"].as_str().unwrap().to_owned())
        .collect();
    known.sort();
    assert_eq!(daemon.artifacts("releases"), known, "what lies there is what is installed");
}

#[test]
fn an_installation_that_is_killed_goes_on_after_the_next_start() {
    let shop = shop("1.0.0");
    let catalog = ["--catalog", shop.location()];
    let mut daemon = Daemon::start(&catalog);
    daemon.run(&["refresh"]).ok();
    let whole = uninterrupted(&daemon, &key(0), "install");
    let mut dice = Dice::new();
    let mut taken_up = 0;
    for round in 1..=ROUNDS {
        let (key, after) = (key(round), dice.up_to(whole.mul_f64(1.1)));
        match interrupted(&mut daemon, &key, "install", after, &catalog) {
            Some(operation) if operation["attempt"].as_u64() > Some(1) => taken_up += 1,
            Some(_) => {}
            // Killed before it was accepted: nothing of it is there, and it can be asked for anew.
            None => {
                assert_eq!(daemon.connector(&key)["installation"], json!({ "state": "not_installed" }));
                tidy(&daemon);
                daemon.install(&key);
            }
        }
        tidy(&daemon);
        answers(&daemon, &key, "1.0.0");
        answers(&daemon, &self::key(round - 1), "1.0.0");
    }
    assert!(taken_up > 0, "no round of {ROUNDS} met an installation at work within {whole:?}");
    for round in 0..=ROUNDS {
        answers(&daemon, &key(round), "1.0.0");
    }
}

#[test]
fn an_update_and_a_removal_that_are_killed_go_on_as_well() {
    const ROUNDS: u64 = 4;
    let mut shop = shop("1.0.0");
    let location = shop.location().to_owned();
    let catalog = ["--catalog", location.as_str()];
    let mut daemon = Daemon::start(&catalog);
    daemon.run(&["refresh"]).ok();
    for round in 0..=ROUNDS {
        daemon.install(&key(round));
    }
    offer(&mut shop, "2.0.0");
    daemon.run(&["refresh"]).ok();
    let mut dice = Dice::new();
    let whole = uninterrupted(&daemon, &key(0), "install");
    for round in 1..=ROUNDS {
        let key = key(round);
        let done = interrupted(&mut daemon, &key, "install", dice.up_to(whole), &catalog).is_some();
        answers(&daemon, &key, if done { "2.0.0" } else { "1.0.0" });
        tidy(&daemon);
    }
    let whole = uninterrupted(&daemon, &key(0), "uninstall");
    for round in 1..=ROUNDS {
        let key = key(round);
        if interrupted(&mut daemon, &key, "uninstall", dice.up_to(whole), &catalog).is_some() {
            assert_eq!(daemon.connector(&key)["installation"], json!({ "state": "not_installed" }));
            assert_eq!(daemon.call(&format!("{key}.echo"), &json!({ "message": "x" })).0, 404);
            assert!(daemon.routes(&key).is_empty());
        } else {
            let version = daemon.connector(&key)["installation"]["installedVersion"].clone();
            answers(&daemon, &key, version.as_str().unwrap());
        }
        tidy(&daemon);
    }
}

#[test]
fn a_download_that_is_killed_half_way_begins_again() {
    let shop = shop("1.0.0");
    let site = Site::over(shop.path());
    let catalog = ["--catalog", site.url.as_str()];
    let mut daemon = Daemon::start(&catalog);
    daemon.run(&["refresh"]).ok();
    daemon.install("echo");
    let key = key(1);
    let artifact = format!("artifacts/{key}/1.0.0/{key}-1.0.0.tar.gz");
    site.hold(&artifact);
    let (status, accepted) = daemon.command(&key, "install", "held");
    assert_eq!(status, 202, "{accepted}");
    site.await_asked(&artifact);
    assert_eq!(daemon.artifacts("staging").len(), 1, "the download lies in staging");
    daemon.kill();
    assert_eq!(daemon.artifacts("staging").len(), 1, "nobody cleaned up");
    // Whoever waited has gone with the process; from now on the file is served.
    site.release();
    daemon.start_again(&catalog);
    answers(&daemon, "echo", "1.0.0");
    let operation = daemon.ended(&accepted["operation"]["operationId"]);
    assert_eq!(operation["state"], "completed", "{operation}");
    assert!(operation["attempt"].as_u64() > Some(1), "{operation}");
    answers(&daemon, &key, "1.0.0");
    eventually("staging is empty", || daemon.artifacts("staging").is_empty().then_some(()));
    tidy(&daemon);
}
