//! Wrong catalogs, and the way back from a wrong release to a right one.

use std::fs;

use serde_json::{Value, json};

use super::{
    Daemon,
    artifacts::limited,
    neighbor::beside,
    shop::{Shop, Tar, echo},
};

/// Changes one value of the first release of a document.
fn edited(document: &Value, path: &str, value: Value) -> Vec<u8> {
    let mut document = document.clone();
    let (parent, name) = path.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[name] = value;
    document.to_string().into_bytes()
}

#[test]
fn a_catalog_with_a_wrong_release_changes_nothing() {
    let mut shop = Shop::with_echo();
    shop.offer_component("other", "1.0.0", &limited(), &echo());
    shop.publish();
    let daemon = Daemon::start(&["--catalog", shop.location()]);
    daemon.run(&["refresh"]).ok();
    daemon.install("echo");
    let good: Value = serde_json::from_slice(&fs::read(shop.document()).unwrap()).unwrap();
    let known = daemon.snapshot()["connectors"].clone();

    let release = |field: &str| format!("/entries/0/release/{field}");
    let mut twice = good.clone();
    twice["entries"][1] = good["entries"][0].clone();
    let manifest_code = "connector_manifest_invalid";
    let cases = [
        (
            edited(&good, &release("manifest/implementation/world"), json!("evil:world/all@1.0.0")),
            manifest_code,
            &["implementation.world", "evil:world/all@1.0.0"][..],
        ),
        (edited(&good, &release("manifest/surprise"), json!(true)), manifest_code, &["surprise"]),
        (
            edited(&good, &release("manifest/displayName"), json!("Forged")),
            manifest_code,
            &["manifestDigest"],
        ),
        (edited(&good, &release("artifact/sizeBytes"), json!(1)), manifest_code, &["releaseDigest"]),
        (edited(&good, &release("artifact/key"), json!("../../secret")), manifest_code, &["artifact.key"]),
        (edited(&good, &release("artifact/sha256"), json!("00")), manifest_code, &["SHA-256"]),
        (
            edited(&good, &release("manifest/implementation/limits"), json!({ "wallMs": 1 })),
            manifest_code,
            &["wallMs"],
        ),
        (twice.to_string().into_bytes(), manifest_code, &["echo", "twice"]),
        (edited(&good, "/schemaVersion", json!("9")), manifest_code, &["schemaVersion", "9"]),
        (b"{ not json".to_vec(), manifest_code, &["catalog.json"]),
    ];
    for (document, code, says) in cases {
        shop.write_document(&document);
        let ran = beside(&daemon, || daemon.run(&["--json", "refresh"]));
        let failure: Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!((ran.exit, &failure["code"]), (4, &json!(code)), "{says:?}: {failure}");
        for said in says {
            assert!(failure["message"].as_str().unwrap().contains(said), "{said:?} is not in {failure}");
        }
        let snapshot = daemon.snapshot();
        assert_eq!(snapshot["catalogState"], "stale", "{says:?}");
        assert_eq!(snapshot["connectors"], known, "{says:?}");
    }
    fs::remove_file(shop.document()).unwrap();
    daemon.run(&["refresh"]).failed(5, "connector_market_upstream_unavailable");
    assert_eq!(daemon.snapshot()["connectors"], known);

    // And it is no more than a wrong document: the right one is taken.
    shop.publish();
    daemon.run(&["refresh"]).ok();
    assert_eq!(daemon.snapshot()["catalogState"], "ready");
    daemon.install("other");
}

#[test]
fn a_refused_release_is_in_nobodys_way() {
    let mut shop = Shop::with_echo();
    let file = shop.offer("late", "1.0.0", &limited(), &Tar::bundle(&limited(), &echo()).gzip());
    shop.publish();
    let daemon = Daemon::start(&["--catalog", shop.location()]);
    daemon.run(&["refresh"]).ok();
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[1..]).unwrap();
    daemon.run(&["install", "late", "--yes"]).failed(4, "artifact_size_mismatch");
    // The very release, once its bytes are there.
    fs::write(&file, &bytes).unwrap();
    daemon.run(&["install", "late", "--yes"]).ok();
    // A wrong one after it, and then the next.
    shop.offer_component("late", "1.1.0", &limited(), b"no component");
    shop.publish();
    daemon.run(&["refresh"]).ok();
    daemon.run(&["install", "late", "--yes"]).failed(4, "component_invalid");
    assert_eq!(daemon.call("late.echo", &json!({ "message": "x" })).1["version"], "1.0.0");
    shop.offer_component("late", "1.1.1", &limited(), &echo());
    shop.publish();
    daemon.run(&["refresh"]).ok();
    daemon.run(&["install", "late", "--yes"]).ok();
    assert_eq!(daemon.call("late.echo", &json!({ "message": "x" })).1["version"], "1.1.1");
    assert_eq!(daemon.connector("late")["installation"].get("failureCode"), None);
    daemon.run(&["uninstall", "late"]).ok();
    assert_eq!(daemon.artifacts("releases"), [""; 0]);
    assert_eq!(daemon.artifacts("staging"), [""; 0]);
    assert_eq!(daemon.artifacts("archives/sha256"), [""; 0]);
}
