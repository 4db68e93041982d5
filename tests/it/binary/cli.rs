//! The commands, one after the other as a person uses them, and how they refuse.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{Daemon, fixtures, portcullis, site::Site};

/// A catalog that is moved from edition to edition under a running daemon.
struct Shelf(tempfile::TempDir);

impl Shelf {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn catalog(&self) -> PathBuf {
        self.0.path().join("catalog")
    }

    fn daemon(&self) -> Daemon {
        let daemon = Daemon::start(&["--catalog", self.catalog().to_str().unwrap()]);
        daemon.run(&["refresh"]).ok();
        daemon
    }

    /// Offers echo at `version`, its manifest changed by `change`, and nothing else.
    fn offer(&self, version: &str, change: impl FnOnce(&mut Value)) {
        let work = self.0.path().join("work");
        let _ = fs::remove_dir_all(&work);
        let _ = fs::remove_dir_all(self.catalog());
        fs::create_dir_all(&work).unwrap();
        let bundle = fixtures("catalog/v1/artifacts/echo/1.0.0/echo-1.0.0.tar.gz");
        let tar = Command::new("tar").args(["xzf", &bundle, "-C"]).arg(&work).status().unwrap();
        assert!(tar.success());
        let manifest = work.join("connector.json");
        let mut document: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        change(&mut document);
        fs::write(&manifest, document.to_string()).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let (component, out) = (text(&work.join("component.wasm")), text(&work.join("out")));
        let mut pack = vec!["connector", "pack", &component, "--key", "echo", "--version", version];
        let manifest = text(&manifest);
        pack.extend(["--manifest", &manifest, "--published-at", "2026-11-30T00:00:00Z", "--out", &out]);
        portcullis(&pack, "").ok();
        let release = format!("{out}/echo-{version}.release.json");
        portcullis(&["catalog", "build", &release, "--out", &text(&self.catalog())], "").ok();
    }
}

fn unchanged(_: &mut Value) {}

/// The state of echo, as `list` shows it.
fn listed(daemon: &Daemon) -> String {
    daemon.run(&["list"]).ok().lines().find(|line| line.starts_with("echo")).unwrap().to_owned()
}

#[test]
fn from_catalog_to_answer_and_back() {
    let mut daemon = Daemon::start(&[]);
    let empty = daemon.run(&["list"]);
    empty.ok();
    assert!(empty.stderr.contains("portcullis refresh"), "{}", empty.stderr);

    assert!(daemon.run(&["refresh"]).ok().contains("2 connectors"));
    let listed = daemon.run(&["list"]);
    assert!(listed.ok().contains("echo") && listed.stdout.contains("not installed"), "{}", listed.stdout);

    let shown = daemon.run(&["show", "feeds"]);
    for promised in
        ["says it needs  network", "feeds.localhost, over https only", "64 MiB memory", "sha256:", "1.0.0"]
    {
        assert!(shown.ok().contains(promised), "{promised} is not in {}", shown.stdout);
    }

    assert!(daemon.run(&["install", "echo", "--yes"]).ok().contains("verified sha256:"));
    let again = daemon.run(&["install", "echo", "--yes"]);
    assert!(again.ok().contains("installed already"), "{}", again.stdout);

    assert!(daemon.run(&["capabilities"]).ok().contains("echo.echo"));
    assert!(daemon.run(&["routes"]).ok().contains("active"));
    assert_eq!(daemon.run(&["call", "echo.echo", "--input", "message=007"]).ok(), "007\n");
    assert_eq!(daemon.run(&["call", "echo.echo", r#"{"message":"as JSON"}"#]).ok(), "as JSON\n");
    assert_eq!(daemon.run_with(&["call", "echo.echo", "-"], r#"{"message":"piped"}"#).ok(), "piped\n");

    let operations = daemon.run(&["operations"]);
    assert!(operations.ok().contains("install") && operations.stdout.contains("completed"));
    assert!(daemon.run(&["uninstall", "echo"]).ok().contains("uninstalled echo"));
    daemon.run(&["call", "echo.echo", "{}"]).failed(3, "capability_not_found");
    assert_eq!(daemon.stop(), 0, "{}", daemon.log());
    assert!(!daemon.data_dir().join("daemon.json").exists());
}

#[test]
fn json_is_one_document_and_so_is_a_failure() {
    let daemon = Daemon::with_catalog();
    let list = daemon.run(&["list", "--json"]).json();
    assert_eq!(list["connectors"].as_array().unwrap().len(), 2);
    assert_eq!(daemon.run(&["--json", "show", "echo"]).json()["key"], "echo");
    let installed = daemon.run(&["--json", "install", "echo", "--yes"]).json();
    assert_eq!(installed["operation"]["state"], "completed");
    assert_eq!(installed["connector"]["installation"]["state"], "installed");
    let operation = installed["operation"]["operationId"].as_str().unwrap();
    assert_eq!(daemon.run(&["--json", "operations", operation]).json()["kind"], "install");
    assert_eq!(daemon.run(&["--json", "list", "--installed"]).json()["connectors"][0]["key"], "echo");
    assert_eq!(daemon.run(&["--json", "routes"]).json()["routes"][0]["connectorKey"], "echo");
    let answer = daemon.run(&["--json", "call", "echo.echo", r#"{"message":"hi"}"#]).json();
    assert_eq!(answer["structuredContent"]["message"], "hi");

    let failed = daemon.run(&["--json", "call", "echo.echo", r#"{"message":7}"#]);
    assert_eq!((failed.exit, failed.stdout.as_str()), (4, ""));
    let document: serde_json::Value = serde_json::from_str(&failed.stderr).unwrap();
    assert_eq!(document["code"], "capability_input_invalid");
    assert_eq!(document["exit"], 4);
    assert!(document["requestId"].is_string());
}

#[test]
fn nothing_is_installed_without_consent() {
    let daemon = Daemon::with_catalog();
    for args in [&["install", "feeds"][..], &["--json", "install", "feeds"]] {
        daemon.run_with(args, "y\n").failed(2, "portcullis show feeds --data-dir");
    }
    assert_eq!(daemon.run(&["--json", "list", "--installed"]).json()["connectors"], serde_json::json!([]));
    let shown = daemon.run(&["install", "feeds"]);
    assert!(shown.stderr.contains("says it needs  network"), "{}", shown.stderr);
}

#[test]
fn what_is_not_there_is_said_with_what_to_do() {
    let daemon = Daemon::with_catalog();
    daemon.run(&["show", "nope"]).failed(3, "connector_not_found");
    daemon.run(&["install", "nope", "--yes"]).failed(3, "connector_not_found");
    daemon.run(&["uninstall", "echo"]).failed(3, "not installed");
    daemon.run(&["operations", "nope"]).failed(3, "connector_not_found");
    daemon.run(&["capabilities", "nope"]).failed(3, "portcullis list --data-dir");
    daemon.run(&["call", "nope.nope", "{}"]).failed(3, "portcullis capabilities");
    daemon.run(&["show", "Not/A Key"]).failed(4, "connector_market_invalid_request");
    daemon.run(&["call", "echo.echo", "{not json"]).failed(2, "not JSON");
    daemon.run(&["call", "echo.echo", "{}", "--input", "a=b"]).failed(2, "cannot be used with");
    daemon.run(&["install"]).failed(2, "Usage");
    daemon.run(&["refresh", "--no-wait", "--timeout", "1"]).failed(2, "cannot be used with");
}

#[test]
fn a_command_need_not_be_waited_for() {
    let daemon = Daemon::with_catalog();
    let accepted = daemon.run(&["--json", "install", "echo", "--yes", "--no-wait"]).json();
    let id = accepted["operation"]["operationId"].as_str().unwrap();
    // The same release again would be another operation in the same lane.
    let state = daemon.run(&["--json", "operations", id]).json()["state"].clone();
    assert!(["accepted", "running", "completed"].iter().any(|known| state == *known), "{state}");
}

#[test]
fn without_a_daemon_the_way_to_start_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    portcullis(&["--data-dir", data_dir, "list"], "").failed(6, "portcullis serve --data-dir");
    let token = folder.path().join("token");
    std::fs::write(&token, "x".repeat(43)).unwrap();
    let gone = ["--endpoint", "http://127.0.0.1:1", "--token-file", token.to_str().unwrap(), "list"];
    portcullis(&gone, "").failed(6, "portcullis serve");
    portcullis(&["--endpoint", "http://127.0.0.1:1", "list"], "").failed(2, "--token-file");
    portcullis(&["--endpoint", "nowhere", "--token-file", token.to_str().unwrap(), "list"], "")
        .failed(2, "http://");
}

#[test]
fn a_wrong_token_is_refused_and_never_shown() {
    let daemon = Daemon::start(&[]);
    let file = daemon.folder.path().join("other-token");
    std::fs::write(&file, "wrong-token-wrong-token-wrong-token-wrong").unwrap();
    let refused = daemon.run(&["--token-file", file.to_str().unwrap(), "list"]);
    refused.failed(4, "unauthenticated");
    assert!(refused.stderr.contains(file.to_str().unwrap()), "{}", refused.stderr);
    assert!(!refused.stderr.contains("wrong-token"), "{}", refused.stderr);
    assert!(!daemon.log().contains(&daemon.token()), "the token is in the log");
}

#[test]
fn a_second_daemon_on_the_same_directory_does_not_start() {
    let daemon = Daemon::start(&[]);
    let second = daemon.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_ne!(second.exit, 0);
    assert!(second.stderr.contains("another daemon"), "{}", second.stderr);
    daemon.run(&["list"]).ok();
}

#[test]
fn authors_commands_need_no_daemon() {
    let bundle = fixtures("catalog/v1/artifacts/echo/1.0.0/echo-1.0.0.tar.gz");
    let inspected = portcullis(&["connector", "inspect", &bundle], "");
    assert!(inspected.ok().contains("portcullis:connector"), "{}", inspected.stdout);
    assert!(portcullis(&["--json", "connector", "inspect", &bundle], "").json().is_object());
    assert_ne!(portcullis(&["connector", "inspect", "/nowhere.tar.gz"], "").exit, 0);
}

#[test]
fn help_tells_the_exit_codes() {
    let help = portcullis(&["--help"], "");
    for told in ["Exit codes", "6  the daemon cannot be reached", "serve", "demo", "install", "call"] {
        assert!(help.ok().contains(told), "{told}");
    }
}

#[test]
fn what_is_enforced_comes_first_and_what_is_more_is_marked() {
    let shelf = Shelf::new();
    shelf.offer("1.0.0", |manifest| {
        manifest["implementation"]["allowedHosts"] = json!(["api.example.com"]);
        manifest["permissions"] = json!(["network"]);
    });
    let daemon = shelf.daemon();
    let first = daemon.run(&["install", "echo"]);
    first.failed(2, "reaches        api.example.com, over https only\n");
    let place = |what: &str| first.stderr.find(what).unwrap();
    assert!(place("reaches") < place("credential") && place("credential") < place("limits"));
    assert!(place("limits") < place("says it needs  network"));
    assert!(!first.stderr.contains("(new)"), "{}", first.stderr);
    daemon.run(&["install", "echo", "--yes"]).ok();

    shelf.offer("1.1.0", |manifest| {
        manifest["implementation"]["allowedHosts"] = json!(["api.example.com", "other.example.com"]);
        manifest["implementation"]["limits"]["memoryBytes"] = json!(64 << 20);
        manifest["permissions"] = json!(["network", "calendar"]);
    });
    assert!(daemon.run(&["refresh"]).ok().contains("1 connector in the catalog\nupdates: echo"));
    assert!(listed(&daemon).contains("1.0.0 → 1.1.0 (update)"));
    let more = daemon.run(&["install", "echo"]);
    more.failed(2, "echo 1.0.0 → 1.1.0 (update)");
    for marked in [
        "api.example.com, other.example.com (new), over https only",
        "64 MiB memory (raised from 16 MiB)",
        "calendar (new)",
    ] {
        assert!(more.stderr.contains(marked), "{marked} is not in {}", more.stderr);
    }
    let access = daemon.run(&["--json", "show", "echo"]).json()["installation"]["installedAccess"].clone();
    assert_eq!(access["allowedHosts"], json!(["api.example.com"]));
    assert_eq!(access["permissions"], json!(["network"]));
    daemon.run(&["install", "echo", "--yes"]).ok();
    assert!(!daemon.run(&["show", "echo"]).ok().contains("(new)"));
}

#[test]
fn no_release_goes_back_or_changes_its_bytes_unasked() {
    let shelf = Shelf::new();
    shelf.offer("1.4.0", unchanged);
    let daemon = shelf.daemon();
    daemon.run(&["install", "echo", "--yes"]).ok();

    shelf.offer("1.1.0", unchanged);
    assert!(daemon.run(&["refresh"]).ok().contains("downgrades: echo"));
    assert!(listed(&daemon).contains("1.4.0 → 1.1.0 (downgrade)"));
    daemon.run(&["install", "echo", "--yes"]).failed(4, "portcullis install echo --downgrade --data-dir");
    daemon.run(&["install", "echo", "--yes", "--reinstall"]).failed(4, "older than 1.4.0");
    assert!(listed(&daemon).contains("1.4.0 → 1.1.0"));
    daemon.run(&["install", "echo", "--downgrade"]).failed(2, "1.4.0 → 1.1.0 (downgrade)");
    daemon.run(&["install", "echo", "--yes", "--downgrade"]).ok();

    shelf.offer("1.1.0", |manifest| manifest["description"] = json!("Other bytes."));
    assert!(daemon.run(&["refresh"]).ok().contains("same version, other bytes: echo"));
    assert!(listed(&daemon).contains("1.1.0 (same version, other bytes)"));
    daemon.run(&["install", "echo", "--yes", "--downgrade"]).failed(4, "--reinstall");
    daemon.run(&["install", "echo", "--yes", "--reinstall"]).ok();
    assert!(!listed(&daemon).contains("other bytes)"));
}

#[test]
fn a_connector_that_cannot_be_authorized_is_said_to_stay_off() {
    let shelf = Shelf::new();
    shelf.offer("1.0.0", |manifest| manifest["authorizationKind"] = json!("api_key"));
    let daemon = shelf.daemon();
    let warning =
        "it will stay switched off until it is authorized (api key), which this version cannot do yet";
    assert!(daemon.run(&["show", "echo"]).ok().contains(warning));
    daemon.run(&["install", "echo"]).failed(2, warning);
    let installed = daemon.run(&["install", "echo", "--yes"]);
    assert!(installed.ok().contains("it is stopped: it needs an authorization"), "{}", installed.stdout);
    assert!(!installed.stderr.contains("next:"), "{}", installed.stderr);
    assert!(listed(&daemon).contains("installed, not authorized"));
    daemon.run(&["call", "echo.echo", "{}"]).failed(3, "not authorized");
    daemon.run(&["enable", "echo"]).failed(4, "cannot be switched on");
}

#[test]
fn the_switch_is_turned_and_told() {
    let daemon = Daemon::with_catalog();
    daemon.run(&["enable", "echo"]).failed(3, "portcullis install echo --data-dir");
    daemon.run(&["enable", "nope"]).failed(3, "connector_not_found");
    daemon.run(&["call", "echo.echo", "{}"]).failed(3, "portcullis install echo --data-dir");
    daemon.run(&["install", "echo", "--yes"]).ok();

    assert!(daemon.run(&["disable", "echo"]).ok().contains("switched off echo"));
    // Off is off: no route is left that answers.
    let routes = daemon.run(&["--json", "routes"]).json()["routes"].clone();
    assert!(routes.as_array().unwrap().iter().all(|route| route["status"] != "active"), "{routes}");
    assert!(listed(&daemon).contains("installed, switched off"));
    for args in [&["list"][..], &["show", "echo"]] {
        let shown = daemon.run(args);
        shown.ok();
        assert!(shown.stderr.contains("portcullis enable echo --data-dir"), "{}", shown.stderr);
    }
    for args in [&["call", "echo.echo", "{}"][..], &["capabilities", "echo"]] {
        daemon.run(args).failed(3, "echo is switched off");
    }
    daemon.run(&["call", "echo.echo", "-i", "message=hi"]).failed(3, "portcullis enable echo --data-dir");

    assert!(daemon.run(&["enable", "echo"]).ok().contains("switched on echo"));
    assert_eq!(daemon.run(&["call", "echo.echo", "-i", "message=on"]).ok(), "on\n");
    daemon.run(&["call", "echo.nope", "{}"]).failed(3, "portcullis capabilities echo --data-dir");
}

#[test]
fn several_connectors_are_installed_or_none() {
    let daemon = Daemon::with_catalog();
    daemon.run(&["install", "echo", "nope", "--yes"]).failed(3, "connector_not_found");
    daemon.run(&["install", "echo", "feeds"]).failed(2, "--yes");
    assert_eq!(daemon.run(&["--json", "list", "--installed"]).json()["connectors"], json!([]));
    let both = daemon.run(&["install", "echo", "feeds", "--yes"]);
    assert!(both.ok().contains("installed echo 1.0.0") && both.stdout.contains("installed feeds 1.0.0"));
    let again = daemon.run(&["--json", "install", "echo", "feeds"]).json();
    assert_eq!(again["results"].as_array().unwrap().len(), 2);
    // No terminal, no cut.
    assert!(daemon.run(&["list"]).ok().contains("from the sites it names, without an account."));
}

#[test]
fn a_failure_can_be_looked_up_afterwards() {
    let shelf = Shelf::new();
    shelf.offer("1.0.0", unchanged);
    let bundle = shelf.catalog().join("artifacts/echo/1.0.0/echo-1.0.0.tar.gz");
    let mut bytes = fs::read(&bundle).unwrap();
    bytes[40] ^= 1;
    fs::write(&bundle, bytes).unwrap();
    let daemon = shelf.daemon();
    daemon.run(&["install", "echo", "--yes"]).failed(4, "artifact_digest_mismatch");
    let shown = daemon.run(&["show", "echo"]);
    assert!(shown.ok().contains("last failure   install: "), "{}", shown.stdout);
    assert!(shown.stdout.contains("[artifact_digest_mismatch]"), "{}", shown.stdout);
    assert!(shown.stderr.contains("portcullis operations "), "{}", shown.stderr);

    let operations = daemon.run(&["operations"]);
    let line = operations.ok().lines().find(|line| line.contains("install")).unwrap();
    let now = daemon.run(&["--json", "operations"]).json()["operations"][0]["updatedAt"].clone();
    let minute = now.as_str().unwrap()[..16].replace('T', " ");
    for told in ["1.0.0", "  failed  ", &minute] {
        assert!(line.contains(told), "{told} is not in {line}");
    }
}

#[test]
fn a_catalog_that_lists_nothing_or_cannot_be_read_is_told() {
    let bare = Daemon::start(&["--catalog", ""]);
    for args in [["refresh"], ["list"]] {
        let ran = bare.run(&args);
        ran.ok();
        assert!(ran.stderr.contains("is serve started with --catalog"), "{}", ran.stderr);
    }

    let shelf = Shelf::new();
    shelf.offer("1.0.0", unchanged);
    let daemon = shelf.daemon();
    fs::write(shelf.catalog().join("catalog.json"), "{not json").unwrap();
    assert_ne!(daemon.run(&["refresh"]).exit, 0);
    let list = daemon.run(&["list"]);
    assert!(list.ok().contains("echo"), "what was known stays: {}", list.stdout);
    assert!(list.stderr.contains("portcullis operations --data-dir"), "{}", list.stderr);
}

#[test]
fn a_daemon_that_goes_away_leaves_the_operation_named() {
    let shelf = Shelf::new();
    shelf.offer("1.0.0", unchanged);
    let site = Site::over(&shelf.catalog());
    let daemon = Daemon::start(&["--catalog", &site.url]);
    daemon.run(&["refresh"]).ok();
    let artifact = "artifacts/echo/1.0.0/echo-1.0.0.tar.gz";
    site.hold(artifact);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| daemon.run(&["install", "echo", "--yes", "--timeout", "60"]));
        site.await_asked(artifact);
        let pid = daemon.process.id().to_string();
        assert!(Command::new("sh").args(["-c", "kill -KILL \"$0\"", &pid]).status().unwrap().success());
        let left = waiting.join().unwrap();
        left.failed(6, "was accepted, but then");
        assert!(left.stderr.contains("it goes on when the daemon is back"), "{}", left.stderr);
    });
}

#[test]
fn a_daemon_that_starts_or_stops_is_not_called_absent() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    let path = folder.path().join("lock");
    fs::write(&path, std::process::id().to_string()).unwrap();
    let lock = fs::File::open(&path).unwrap();
    portcullis(&["--data-dir", data_dir, "list"], "").failed(6, "no daemon runs on");
    lock.lock().unwrap();
    portcullis(&["--data-dir", data_dir, "list"], "").failed(6, "is starting or stopping");
}

#[test]
fn commands_without_a_daemon_do_not_offer_to_find_one() {
    for command in
        [&["demo", "--help"][..], &["connector", "pack", "--help"], &["catalog", "build", "--help"]]
    {
        let help = portcullis(command, "");
        assert!(help.ok().contains("--json"), "{}", help.stdout);
        for hidden in ["--data-dir", "--endpoint", "--token-file"] {
            assert!(!help.stdout.contains(hidden), "{hidden} is in {}", help.stdout);
        }
    }
    assert!(portcullis(&["list", "--help"], "").ok().contains("--data-dir"));
    let bundle = fixtures("catalog/v1/artifacts/echo/1.0.0/echo-1.0.0.tar.gz");
    portcullis(&["--data-dir", "/nowhere", "connector", "inspect", &bundle], "").ok();
}

#[test]
fn what_no_catalog_lists_any_more_is_told_of_and_can_be_removed() {
    let shelf = Shelf::new();
    shelf.offer("1.0.0", unchanged);
    let daemon = shelf.daemon();
    daemon.run(&["install", "echo", "--yes"]).ok();
    let path = shelf.catalog().join("catalog.json");
    let mut document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    document["entries"] = json!([]);
    document["sourceRevision"] = json!("emptied");
    fs::write(&path, document.to_string()).unwrap();
    daemon.run(&["refresh"]).ok();

    let listed = daemon.run(&["list"]);
    listed.ok();
    assert!(listed.stderr.contains("echo 1.0.0 runs, but no catalog lists it any more"), "{}", listed.stderr);
    daemon.run(&["call", "echo.echo", "--input", "message=still"]).ok();
    daemon.run(&["uninstall", "echo"]).ok();
    assert!(!daemon.run(&["list"]).stderr.contains("echo"));
    daemon.run(&["uninstall", "echo"]).failed(5, "not_installed");
}
