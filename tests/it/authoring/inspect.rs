//! What `connector inspect` shows, and what it refuses to show as if it were sound.

use std::{fs, io::Write as _, path::Path};

use flate2::{Compression, write::GzEncoder};
use portcullis::{
    authoring::{
        bundle,
        inspect::{Inspection, inspect},
    },
    cli::connector::{self, ConnectorCommand, InspectArgs},
    domain::{
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        release::Release,
    },
    ports::SystemClock,
};
use serde_json::json;

use super::{Workshop, component, fixture, hostile, prebuilt, says};

#[test]
fn a_bundle_shows_what_it_asks_for_imports_exports_and_weighs() {
    let path = prebuilt("feeds", "1.1.0", "v2");
    let report = connector::run(ConnectorCommand::Inspect(InspectArgs { path: path.clone() }), &SystemClock)
        .expect("it is sound");
    let bytes = fs::read(path).expect("the bundle");
    let digest = Sha256Digest::of(&bytes).to_string();
    for shown in [
        digest.as_str(),
        "portcullis:connector/connector@0.1.0",
        "imports         portcullis:connector/log@0.1.0: emit",
        "imports         wasi:http/outgoing-handler@0.2.12: handle",
        "exports         portcullis:connector/capabilities@0.1.0: describe, invoke",
        "permissions     network",
        "hosts           blog.rust-lang.org,",
        "credential      none",
        "memoryBytes     64 MiB\n",
        "tableElements   20000 (the host's default)",
        "component.wasm",
        "connector.json",
    ] {
        assert!(report.human.contains(shown), "{}\n\ndoes not show {shown:?}", report.human);
    }
    assert!(!report.human.contains("REFUSES"));

    let json = &report.json;
    assert_eq!(json["artifact"], json!({ "sizeBytes": bytes.len(), "sha256": digest }));
    assert_eq!(json["manifest"]["permissions"], json!(["network"]));
    assert_eq!(json["manifest"]["limits"]["memoryBytes"], json!(64 << 20));
    assert_eq!(json["component"]["path"], json!("component.wasm"));
    let component = component("feeds", "1.1.0", "v2");
    assert_eq!(json["component"]["sizeBytes"], json!(component.len()));
    assert_eq!(json["component"]["sha256"], json!(Sha256Digest::of(&component).to_string()));
    assert_eq!(
        json["component"]["imports"]["portcullis:connector/progress@0.1.0"]["report"],
        json!("func(done: f64, total: option<f64>, message: option<string>)")
    );
    assert_eq!(json["problems"], json!([]));
}

#[test]
fn the_place_of_a_credential_is_shown_and_the_word_before_it() {
    let workshop = Workshop::new();
    workshop.edit_manifest("/authorizationKind", json!("api_key"));
    workshop.edit_manifest("/permissions", json!(["network"]));
    workshop.edit_manifest("/implementation/allowedHosts", json!(["api.example.org"]));
    workshop.edit_manifest(
        "/implementation/credential",
        json!({ "hosts": ["api.example.org"], "placement": { "in": "header", "name": "X-Api-Key" } }),
    );
    let path = workshop.pack().bundle;
    let report =
        connector::run(ConnectorCommand::Inspect(InspectArgs { path }), &SystemClock).expect("sound");
    assert!(report.human.contains("header X-Api-Key, for api.example.org"), "{}", report.human);
    assert!(report.human.contains("authorization   api_key"), "{}", report.human);
    assert_eq!(report.json["manifest"]["credential"]["placement"]["name"], json!("X-Api-Key"));
}

#[test]
fn a_release_document_is_recomputed_and_its_artifact_proven() {
    let workshop = Workshop::new();
    let packed = workshop.pack();
    let sound = inspect(&packed.release_document).expect("sound");
    let release = sound.release.expect("a release");
    assert_eq!(release.release_digest, packed.release.release_digest);
    assert!(release.artifact_verified);
    assert!(sound.component.is_some());

    // A flipped byte, a short and a long artifact.
    let bytes = fs::read(&packed.bundle).expect("the bundle");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    fs::write(&packed.bundle, flipped).expect("written");
    refused(&packed.release_document, ErrorCode::ArtifactDigestMismatch, &["echo-1.0.0.tar.gz", "SHA-256"]);
    fs::write(&packed.bundle, &bytes[1..]).expect("written");
    refused(&packed.release_document, ErrorCode::ArtifactSizeMismatch, &["echo-1.0.0.tar.gz"]);
    fs::write(&packed.bundle, [bytes.as_slice(), b"x"].concat()).expect("written");
    refused(&packed.release_document, ErrorCode::ArtifactSizeMismatch, &["echo-1.0.0.tar.gz"]);

    // No artifact: the document alone, and it says so.
    fs::remove_file(&packed.bundle).expect("removed");
    let alone = inspect(&packed.release_document).expect("the document is sound");
    assert!(!alone.release.expect("a release").artifact_verified);
    assert!(alone.component.is_none());
    let path = packed.release_document;
    let report =
        connector::run(ConnectorCommand::Inspect(InspectArgs { path }), &SystemClock).expect("shown");
    assert!(report.human.contains("NOT VERIFIED"), "{}", report.human);
}

#[test]
fn a_release_document_whose_digests_do_not_hold_is_refused() {
    let workshop = Workshop::new();
    let packed = workshop.pack();
    for (pointer, value, named) in [
        ("/version", json!("1.0.1"), "releaseDigest"),
        ("/manifest/description", json!("Harmless."), "manifestDigest"),
        ("/artifact/sha256", json!("0".repeat(64)), "releaseDigest"),
        ("/artifact/key", json!("../echo-1.0.0.tar.gz"), "artifact.key"),
        ("/releaseDigest", json!("xyz"), "SHA-256"),
    ] {
        let mut document = serde_json::to_value(&packed.release).expect("JSON");
        *document.pointer_mut(pointer).expect("the field") = value;
        fs::write(&packed.release_document, document.to_string()).expect("written");
        refused(&packed.release_document, ErrorCode::InvalidManifest, &[named]);
    }
}

#[test]
fn a_bundle_whose_manifest_is_not_the_released_one_is_refused() {
    let mut workshop = Workshop::new();
    let honest = workshop.pack();
    workshop.edit_manifest("/displayName", json!("Someone else"));
    workshop.request.out = workshop.path("other");
    let other = workshop.pack();
    // A release of the honest manifest over the other bundle, with digests that hold.
    let release = Release::assemble(
        honest.release.connector_key,
        honest.release.version,
        honest.release.manifest,
        other.release.artifact,
        honest.release.published_at,
    )
    .expect("a release");
    fs::write(&other.release_document, serde_json::to_vec(&release).expect("JSON")).expect("written");
    refused(&other.release_document, ErrorCode::ArtifactManifestMismatch, &["connector.json", "echo@1.0.0"]);
}

#[test]
fn a_bare_component_is_shown_and_judged() {
    let workshop = Workshop::new();
    let sound = inspect(&workshop.path("component.wasm")).expect("a component");
    assert_eq!(
        sound.component.expect("a component").world.as_deref(),
        Some("portcullis:connector/connector@0.1.0")
    );
    assert!(sound.manifest.is_none() && sound.problems.is_empty());

    let path = workshop.write("component.wasm", hostile("imports-outside-contract"));
    let shown = inspect(&path).expect("shown all the same");
    let codes: Vec<ErrorCode> = shown.problems.iter().map(|problem| problem.code).collect();
    assert!(codes.contains(&ErrorCode::ComponentImportForbidden), "{codes:?}");
    let report =
        connector::run(ConnectorCommand::Inspect(InspectArgs { path }), &SystemClock).expect("shown");
    assert!(report.human.contains("a host REFUSES it:"), "{}", report.human);
    assert!(
        report.human.contains("component_import_forbidden: import evil:host/thing@1.0.0"),
        "{}",
        report.human
    );

    let path = workshop.write("component.wasm", hostile("core-module"));
    refused(&path, ErrorCode::ComponentInvalid, &["core WebAssembly module"]);
}

#[test]
fn a_release_of_a_bare_component_is_proven_too() {
    let workshop = Workshop::new();
    let packed = workshop.pack();
    let mut artifact = packed.release.artifact.clone();
    let bytes = component("echo", "1.0.0", "v1");
    artifact.key = "echo.wasm".into();
    artifact.media_type = "application/wasm".into();
    artifact.sha256 = Sha256Digest::of(&bytes);
    artifact.size_bytes = i64::try_from(bytes.len()).expect("small");
    let release = Release::assemble(
        packed.release.connector_key,
        packed.release.version,
        packed.release.manifest,
        artifact,
        packed.release.published_at,
    )
    .expect("a release");
    workshop.write("out/echo.wasm", bytes);
    fs::write(&packed.release_document, serde_json::to_vec(&release).expect("JSON")).expect("written");
    let inspection = inspect(&packed.release_document).expect("sound");
    assert!(inspection.release.expect("a release").artifact_verified);
    assert!(inspection.problems.is_empty());
}

#[test]
fn other_files_are_refused() {
    let workshop = Workshop::new();
    let path = workshop.write("text", "hello");
    refused(&path, ErrorCode::InvalidRequest, &["neither a bundle"]);
    refused(&workshop.path("absent"), ErrorCode::InvalidRequest, &["cannot read"]);
    refused(workshop.folder.path(), ErrorCode::InvalidRequest, &["is a folder"]);
    let release = workshop.write("other.json", r#"{"manifest": {}}"#);
    refused(&release, ErrorCode::InvalidManifest, &["is no release document: missing field"]);
}

#[test]
fn a_manifest_is_told_from_a_broken_release_document() {
    let manifest = fixture("connectors/echo/connector.json");
    refused(
        &manifest,
        ErrorCode::InvalidManifest,
        &["looks like a manifest", "`portcullis connector pack", "echo/connector.json"],
    );
}

#[test]
fn a_bare_component_is_weighed_once() {
    let workshop = Workshop::new();
    let human = |path| {
        let inspect = ConnectorCommand::Inspect(InspectArgs { path });
        connector::run(inspect, &SystemClock).expect("sound").human
    };
    let bare = human(workshop.path("component.wasm"));
    assert!(bare.starts_with("component\n"), "{bare}");
    for once in ["component\n", "  size ", "  sha256 "] {
        assert_eq!(bare.matches(once).count(), 1, "{once:?} in {bare}");
    }
    assert!(bare.lines().all(|line| line == line.trim_end()), "{bare}");
    let bundle = human(workshop.pack().bundle);
    assert!(bundle.contains("component component.wasm\n"), "{bundle}");
    assert_eq!(bundle.matches("  sha256 ").count(), 2, "the bundle's and the component's: {bundle}");
}

#[test]
fn hostile_archives_are_refused_like_a_host_refuses_them() {
    let workshop = Workshop::new();
    let manifest = fs::read(&workshop.request.manifest).expect("the manifest");
    let entry = |path: &str, kind: tar::EntryType, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        if kind.is_symlink() || kind.is_hard_link() {
            header.set_link_name("/etc/passwd").expect("a link");
        }
        header.set_cksum();
        let padding = vec![0; bytes.len().next_multiple_of(512) - bytes.len()];
        [header.as_bytes().as_slice(), bytes, &padding].concat()
    };
    let packed = |entries: &[Vec<u8>]| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        for entry in entries {
            gzip.write_all(entry).expect("packed");
        }
        gzip.write_all(&[0; 1024]).expect("packed");
        gzip.finish().expect("packed")
    };
    let regular = tar::EntryType::Regular;
    let honest = || entry("connector.json", regular, &manifest);
    for (what, entries) in [
        ("leaves its folder", vec![honest(), entry("../evil", regular, b"x")]),
        ("is absolute", vec![entry("/etc/evil", regular, b"x")]),
        ("is a link", vec![honest(), entry("component.wasm", tar::EntryType::Symlink, b"")]),
        ("is a hard link", vec![honest(), entry("component.wasm", tar::EntryType::Link, b"")]),
        ("is a device", vec![honest(), entry("null", tar::EntryType::Char, b"")]),
        ("is there twice", vec![honest(), honest()]),
        ("is there in another case", vec![honest(), entry("Connector.json", regular, b"x")]),
    ] {
        let path = workshop.write("bundle.tar.gz", packed(&entries));
        let error = inspect(&path).expect_err(what);
        assert_eq!(error.code, ErrorCode::ArtifactUnsafeEntry, "{what}: {error}");
    }

    let path = workshop.write("bundle.tar.gz", packed(&[entry("other.json", regular, b"{}")]));
    refused(&path, ErrorCode::ArtifactMalformed, &["connector.json"]);
    let path = workshop.write("bundle.tar.gz", packed(&[honest()]));
    refused(&path, ErrorCode::ArtifactMalformed, &["component.wasm"]);
    let cut = fs::read(prebuilt("echo", "1.0.0", "v1")).expect("a bundle");
    let path = workshop.write("bundle.tar.gz", &cut[..cut.len() / 2]);
    refused(&path, ErrorCode::ArtifactMalformed, &[]);
}

#[test]
fn a_bomb_is_refused_before_it_goes_off() {
    let workshop = Workshop::new();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let mut header = tar::Header::new_ustar();
    let size: u64 = 600 << 20;
    header.set_path("zeros").expect("a path");
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    gzip.write_all(header.as_bytes()).expect("packed");
    let block = vec![0; 1 << 20];
    for _ in 0..(size >> 20) {
        gzip.write_all(&block).expect("packed");
    }
    gzip.write_all(&[0; 1024]).expect("packed");
    let path = workshop.write("bomb.tar.gz", gzip.finish().expect("packed"));
    refused(&path, ErrorCode::ArtifactLimitExceeded, &[]);
}

#[test]
fn what_was_written_is_read_back() {
    let files = bundle::Files::from([("a/b.txt".to_owned(), b"one".to_vec()), ("c".to_owned(), Vec::new())]);
    assert_eq!(bundle::read(&bundle::write(&files).expect("packed")).expect("read"), files);
}

fn refused(path: &Path, code: ErrorCode, parts: &[&str]) {
    let result: Result<Inspection, Error> = inspect(path);
    says(&result.expect_err("it is refused"), code, parts);
}
