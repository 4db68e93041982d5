//! The same through the program, as an author types it.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use super::{Workshop, hostile};

fn portcullis(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_portcullis")).args(arguments).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn pack(workshop: &Workshop, version: &str, more: &[&str]) -> Output {
    let (component, manifest) = (workshop.path("component.wasm"), workshop.path("connector.json"));
    let out = workshop.path("out");
    let mut arguments =
        vec!["connector", "pack", text(&component), "--manifest", text(&manifest), "--key", "echo"];
    arguments.extend(["--version", version, "--out", text(&out)]);
    arguments.extend(more);
    portcullis(&arguments)
}

#[test]
fn an_author_packs_inspects_and_lists() {
    let workshop = Workshop::new();
    for version in ["1.0.0", "1.1.0"] {
        let packed = stdout(&pack(&workshop, version, &["--published-at", "2026-11-30T00:00:00Z"]));
        assert!(packed.starts_with(&format!("packed echo@{version}\n")), "{packed}");
    }
    workshop.edit_manifest("/description", "Something else.".into());
    let again = pack(&workshop, "1.1.0", &[]);
    assert_eq!(again.status.code(), Some(4), "{}", stderr(&again));
    assert!(stderr(&again).contains("raise the version or pass --force"), "{}", stderr(&again));
    stdout(&pack(&workshop, "1.1.0", &["--force", "--published-at", "2026-11-30T00:00:00Z"]));
    let document = workshop.path("out/echo-1.1.0.release.json");
    let release: Value = serde_json::from_slice(&fs::read(&document).expect("written")).expect("JSON");
    assert_eq!(release["publishedAt"], "2026-11-30T00:00:00Z");

    let shown: Value =
        serde_json::from_str(&stdout(&portcullis(&["--json", "connector", "inspect", text(&document)])))
            .expect("one JSON document and nothing else");
    assert_eq!(shown["release"]["releaseDigest"], release["releaseDigest"]);
    assert_eq!(shown["release"]["artifactVerified"], true);

    let (releases, catalog) = (workshop.path("out"), workshop.path("catalog"));
    let listed = stdout(&portcullis(&[
        "catalog",
        "build",
        text(&releases),
        "--out",
        text(&catalog),
        "--category",
        "echo=examples",
        "--category-name",
        "examples=Things to try",
        "--featured",
        "echo",
    ]));
    for line in ["lists echo@1.1.0", "leaves out echo@1.0.0", "category examples (Things to try): 1"] {
        assert!(listed.contains(line), "{listed}");
    }
    assert!(catalog.join("catalog.json").is_file());
}

#[test]
fn a_refusal_has_its_code_its_reason_once_and_its_exit_code() {
    let workshop = Workshop::new();
    workshop.write("component.wasm", hostile("imports-outside-contract"));
    let refused = pack(&workshop, "1.0.0", &[]);
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("evil:host/thing@1.0.0"), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("[component_import_forbidden]"), "{}", stderr(&refused));
    assert!(!workshop.path("out").exists());

    let absent = portcullis(&["connector", "inspect", text(&workshop.path("absent"))]);
    assert_eq!(absent.status.code(), Some(2));
    assert_eq!(stderr(&absent).matches("os error 2").count(), 1, "{}", stderr(&absent));
}

#[test]
fn a_wrong_argument_is_named() {
    let workshop = Workshop::new();
    for (version, more, named) in [
        ("1.0", &[][..], "--version"),
        ("1.2", &[][..], "write three numbers, as in 1.2.0"),
        ("1.0.0", &["--published-at", "yesterday"][..], "--published-at"),
        ("1.0.0", &["--colour", "blue"][..], "--colour"),
    ] {
        let refused = pack(&workshop, version, more);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(named), "{}", stderr(&refused));
    }
    let key = portcullis(&[
        "connector",
        "pack",
        "--manifest",
        "m",
        "--key",
        "Echo",
        "--version",
        "1.0.0",
        "--out",
        "o",
    ]);
    assert_eq!(key.status.code(), Some(2));
    assert!(stderr(&key).contains("--key"), "{}", stderr(&key));
    let category = portcullis(&["catalog", "build", "x", "--out", "o", "--category", "echo"]);
    assert_eq!(category.status.code(), Some(2));
    assert!(stderr(&category).contains("NAME=VALUE"), "{}", stderr(&category));
}
