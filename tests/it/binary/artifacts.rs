//! Bad releases: each is refused by its code before anything of it is called
//! installed, leaves nothing behind, and takes nothing from what runs.

use std::{fs, path::Path, sync::LazyLock};

use portcullis::domain::digest::Sha256Digest;
use serde_json::{Value, json};
use tar::EntryType;

use super::{
    Daemon, Shared, eventually,
    neighbor::beside,
    shop::{Shop, Tar, echo, manifest},
};
use crate::guests;

/// A release that must be refused.
struct Bad {
    /// The connector that is new; `<key>-update` runs already, in version 1.0.0.
    key: &'static str,
    code: &'static str,
    exit: i32,
    /// What the message names.
    says: &'static [&'static str],
    manifest: Value,
    /// The bytes that the release is of.
    bytes: Vec<u8>,
    /// What lies in the catalog instead; none where nothing does.
    on_the_shelf: Option<Vec<u8>>,
}

impl Bad {
    fn new(key: &'static str, code: &'static str, says: &'static [&'static str], bytes: Vec<u8>) -> Self {
        let on_the_shelf = Some(bytes.clone());
        Self { key, code, exit: 4, says, manifest: limited(), bytes, on_the_shelf }
    }

    fn component(
        key: &'static str,
        code: &'static str,
        says: &'static [&'static str],
        component: &[u8],
    ) -> Self {
        Self::new(key, code, says, Tar::bundle(&limited(), component).gzip())
    }

    fn shelved(self, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = self.bytes.clone();
        change(&mut bytes);
        Self { on_the_shelf: Some(bytes), ..self }
    }
}

pub(super) fn limited() -> Value {
    manifest(json!({ "cpuMs": 300 }), &[])
}

fn honest() -> Tar {
    Tar::bundle(&limited(), &echo())
}

static OTHER_BYTES: LazyLock<Vec<Bad>> = LazyLock::new(other_bytes);

fn other_bytes() -> Vec<Bad> {
    let bad = |key, code, says| Bad::new(key, code, says, honest().file(key, b"").gzip());
    vec![
        bad("flipped", "artifact_digest_mismatch", &["SHA-256", "the release says"]).shelved(|bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }),
        bad("short", "artifact_size_mismatch", &["bytes", "there are"]).shelved(|bytes| {
            bytes.pop();
        }),
        bad("empty", "artifact_size_mismatch", &["there are 0"]).shelved(Vec::clear),
        bad("long", "artifact_size_mismatch", &["there are more"]).shelved(|bytes| bytes.push(0)),
        Bad {
            on_the_shelf: None,
            exit: 5,
            ..bad("absent", "artifact_unavailable", &["cannot be read", "absent"])
        },
    ]
}

static OTHER_CONTENTS: LazyLock<Vec<Bad>> = LazyLock::new(other_contents);

fn other_contents() -> Vec<Bad> {
    let mut renamed = limited();
    renamed["displayName"] = json!("Something else");
    let mut greedy = limited();
    greedy["implementation"]["allowedHosts"] = json!(["internal.example.com"]);
    vec![
        Bad::new(
            "renamed",
            "artifact_manifest_mismatch",
            &["connector.json", "not the released manifest"],
            Tar::bundle(&renamed, &echo()).gzip(),
        ),
        Bad::new(
            "greedy",
            "artifact_manifest_mismatch",
            &["not the released manifest"],
            Tar::bundle(&greedy, &echo()).gzip(),
        ),
        Bad::new(
            "nameless",
            "artifact_manifest_mismatch",
            &["connector.json", "missing"],
            Tar::new().file("component.wasm", &echo()).gzip(),
        ),
        Bad::new(
            "hollow",
            "artifact_malformed",
            &["component.wasm"],
            Tar::new().file("connector.json", limited().to_string().as_bytes()).gzip(),
        ),
        Bad::new("no-archive", "artifact_malformed", &["gzip"], b"#!/bin/sh\nrm -rf /\n".to_vec()),
    ]
}

static ATTACKS: LazyLock<Vec<Bad>> = LazyLock::new(attacks);

fn attacks() -> Vec<Bad> {
    let with = |key, says, tar: Tar| Bad::new(key, "artifact_unsafe_entry", says, tar.gzip());
    vec![
        with("climbing", &["../escaped"], honest().file("../escaped", b"x")),
        with("climbing-within", &["skills/../../escaped"], honest().file("skills/../../escaped", b"x")),
        with("rooted", &["/tmp/escaped"], honest().file("/tmp/escaped", b"x")),
        with("linking", &["shadow", "link"], honest().link("shadow", EntryType::Symlink, "/etc/shadow")),
        with("hard-linking", &["twin", "link"], honest().link("twin", EntryType::Link, "component.wasm")),
        Bad::new(
            "bomb",
            "artifact_limit_exceeded",
            &["expands", "200 times"],
            honest().file("zeros", &vec![0; 24 << 20]).gzip(),
        ),
        Bad::new(
            "giant",
            "artifact_limit_exceeded",
            &["giant-file", "a file may have"],
            honest().file("giant-file", &vec![0; (64 << 20) + 1]).gzip(),
        ),
    ]
}

static COMPONENTS: LazyLock<Vec<Bad>> = LazyLock::new(components);

fn components() -> Vec<Bad> {
    let read = |path: std::path::PathBuf| fs::read(path).unwrap();
    let text = |name| read(guests::text(&format!("hostile/{name}.wat")));
    let describe = |feature| read(guests::component("hostile/describe", &[feature]));
    vec![
        Bad::component("script", "component_invalid", &[], b"#!/bin/sh\n"),
        Bad::component("module", "component_invalid", &["core WebAssembly module"], &text("core-module")),
        Bad::component("cut", "component_invalid", &[], &echo()[..10_000]),
        Bad::component(
            "evil-import",
            "component_import_forbidden",
            &["evil:host/thing@1.0.0"],
            &text("imports-outside-contract"),
        ),
        Bad::component(
            "future-import",
            "component_import_forbidden",
            &["portcullis:connector/log@9.0.0"],
            &text("imports-unreleased-version"),
        ),
        Bad::component(
            "silent",
            "component_world_unsupported",
            &["portcullis:connector/capabilities@0.1.0"],
            &text("exports-nothing"),
        ),
        Bad::component("other-types", "component_world_unsupported", &[], &text("exports-wrong-types")),
        Bad::component("trapping", "component_describe_failed", &["trapped"], &describe("traps")),
        Bad::component("endless", "component_describe_failed", &["exhausted"], &describe("loops")),
    ]
}

/// A daemon on which every `<key>-update` runs in version 1.0.0, before a catalog
/// that offers all of the bad releases.
struct Bench {
    daemon: Daemon,
    _shop: Shop,
}

static BENCH: Shared<Bench> = Shared::new();

fn bench() -> Bench {
    let all = [&OTHER_BYTES, &OTHER_CONTENTS, &ATTACKS, &COMPONENTS].map(|cases| &**cases);
    let mut shop = Shop::with_echo();
    for bad in all.into_iter().flatten() {
        shop.offer_component(&format!("{}-update", bad.key), "1.0.0", &limited(), &echo());
    }
    shop.publish();
    let daemon = Daemon::start(&["--catalog", shop.location()]);
    daemon.run(&["refresh"]).ok();
    daemon.install("echo");
    let accepted: Vec<Value> = all
        .into_iter()
        .flatten()
        .map(|bad| daemon.command(&format!("{}-update", bad.key), "install", bad.key).1)
        .collect();
    for accepted in accepted {
        let ended = daemon.ended(&accepted["operation"]["operationId"]);
        assert_eq!(ended["state"], "completed", "{ended}");
    }
    for bad in all.into_iter().flatten() {
        for (key, version) in [(bad.key.to_owned(), "1.0.0"), (format!("{}-update", bad.key), "2.0.0")] {
            let file = shop.offer(&key, version, &bad.manifest, &bad.bytes);
            match &bad.on_the_shelf {
                Some(bytes) => fs::write(file, bytes).unwrap(),
                None => fs::remove_file(file).unwrap(),
            }
        }
    }
    shop.publish();
    daemon.run(&["refresh"]).ok();
    Bench { daemon, _shop: shop }
}

/// Installs `key` as a person does. It is refused, and says what was wrong.
#[track_caller]
fn refused(daemon: &Daemon, key: &str, bad: &Bad) {
    let ran = beside(daemon, || daemon.run(&["--json", "install", key, "--yes", "--timeout", "60"]));
    assert_eq!((ran.exit, ran.stdout.as_str()), (bad.exit, ""), "{key}: {}", ran.stderr);
    let failure: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(failure["code"], bad.code, "{key}: {failure}");
    let message = failure["message"].as_str().unwrap();
    for said in bad.says {
        assert!(message.contains(said), "{key}: {said:?} is not in {message:?}");
    }
    let mut operations = daemon.operations(key);
    operations.retain(|operation| operation["state"] == "failed");
    assert_eq!(operations.len(), 1, "{key}: {operations:?}");
    let operation = &operations[0];
    assert_eq!(operation["failureCode"], "connector_install_failed", "{operation}");
    assert_eq!(operation["failure"]["code"], bad.code, "{operation}");
    assert_eq!(operation["failure"]["message"], failure["message"], "{operation}");
}

#[track_caller]
fn all_refused(cases: &[Bad]) {
    let bench = BENCH.get(bench);
    let daemon = &bench.daemon;
    for bad in cases {
        refused(daemon, bad.key, bad);
        let installation = &daemon.connector(bad.key)["installation"];
        assert_eq!(
            installation,
            &json!({ "state": "failed", "failureCode": "connector_install_failed" }),
            "{}",
            bad.key
        );
        assert!(daemon.routes(bad.key).is_empty(), "{}", bad.key);
        assert_eq!(daemon.artifacts(&format!("releases/{}", bad.key)), [""; 0], "{}", bad.key);
        let archive = Sha256Digest::of(&bad.bytes).to_string();
        assert!(!daemon.artifacts("archives/sha256").contains(&archive), "{}", bad.key);
        still_answers(daemon, &format!("{}-update", bad.key), bad);
    }
    eventually("staging is empty", || daemon.artifacts("staging").is_empty().then_some(()));
    assert!(!Path::new("/tmp/escaped").exists());
    for folder in ["", "staging", "releases"] {
        assert!(!daemon.artifacts(folder).contains(&"escaped".to_owned()), "{folder}");
    }
}

/// An update to the bad release changes nothing but what is said of it.
#[track_caller]
fn still_answers(daemon: &Daemon, key: &str, bad: &Bad) {
    let before = daemon.connector(key)["installation"].clone();
    let current =
        || fs::read(daemon.data_dir().join("artifacts/releases").join(key).join("current")).unwrap();
    let committed = current();
    refused(daemon, key, bad);
    let mut after = daemon.connector(key)["installation"].clone();
    let said = after.as_object_mut().unwrap().remove("failureCode");
    assert_eq!(said, Some(json!("connector_install_failed")), "{key}");
    assert_eq!((&after, &after["installedVersion"]), (&before, &json!("1.0.0")), "{key}");
    let routes = eventually("the version before is back", || {
        let routes = daemon.routes(key);
        (daemon.connector(key)["runtime"]["state"] == "started" && routes.len() == 1).then_some(routes)
    });
    assert_eq!((&routes[0]["version"], &routes[0]["status"]), (&json!("1.0.0"), &json!("active")), "{key}");
    let (status, answer) = daemon.call(&format!("{key}.echo"), &json!({ "message": "as before" }));
    assert_eq!((status, &answer["version"]), (200, &json!("1.0.0")), "{answer}");
    // Files that were sound and of which only the start was refused may lie there until
    // the next install; they are not the current ones.
    assert_eq!(current(), committed, "{key}");
    let mut kept = daemon.artifacts(&format!("releases/{key}"));
    kept.retain(|name| name != "2.0.0" || !bad.code.starts_with("component_"));
    assert_eq!(kept, ["1.0.0", "current"], "{key}");
}

#[test]
fn bytes_that_are_not_the_released_ones_are_refused() {
    all_refused(&OTHER_BYTES);
}

#[test]
fn a_bundle_that_is_not_what_its_release_says_is_refused() {
    all_refused(&OTHER_CONTENTS);
}

#[test]
fn a_bundle_that_leaves_its_folder_or_fills_the_disk_is_refused() {
    all_refused(&ATTACKS);
}

#[test]
fn a_component_that_cannot_be_hosted_is_refused() {
    all_refused(&COMPONENTS);
}
