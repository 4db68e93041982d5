//! The same input gives the same release; what a host would refuse is not packed.

use std::{fs, path::Path};

use portcullis::{
    authoring::{
        bundle,
        component::ComponentInterface,
        contract,
        pack::{self},
    },
    domain::{
        digest::Sha256Digest,
        error::ErrorCode,
        manifest::{Manifest, WORLD_AUTHORIZING_CONNECTOR, WORLD_CONNECTOR},
        release::{MEDIA_TYPE_BUNDLE, Release},
    },
};
use serde_json::json;

use super::{Workshop, component, hostile, says};

#[test]
fn the_same_input_gives_the_same_digest_whenever_and_wherever_it_is_packed() {
    let one = Workshop::new();
    let mut other = Workshop::new();
    other.write("skills/search/SKILL.md", "# Search");
    let mut one_with_skills = one.request.clone();
    one.write("skills/search/SKILL.md", "# Search");
    one_with_skills.skills = Some(one.path("skills"));
    other.request.skills = Some(other.path("skills"));
    // The same manifest written another way, and files of another age and mode.
    let manifest = fs::read_to_string(&other.request.manifest).expect("text");
    let compact: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    fs::write(&other.request.manifest, compact.to_string()).expect("written");
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let skill = other.path("skills/search/SKILL.md");
    fs::File::options().write(true).open(&skill).expect("open").set_modified(old).expect("aged");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&skill, fs::Permissions::from_mode(0o755)).expect("changed");
    }

    let first = pack::pack(&one_with_skills).expect("it packs");
    let second = other.pack();
    assert_eq!(first.release, second.release);
    assert_eq!(read(&first.bundle), read(&second.bundle));
    assert_eq!(read(&first.release_document), read(&second.release_document));

    let again = pack::pack(&one_with_skills).expect("it packs again over its own output");
    assert_eq!(again.release.release_digest, first.release.release_digest);
}

#[test]
fn a_release_covers_the_manifest_the_component_and_the_version() {
    let mut workshop = Workshop::new();
    let first = workshop.pack().release;
    workshop.request.version = semver::Version::new(1, 0, 1);
    let version = workshop.pack().release;
    workshop.edit_manifest("/description", json!("Something else."));
    workshop.request.force = true;
    let manifest = workshop.pack().release;
    assert_ne!(first.release_digest, version.release_digest);
    assert_eq!(first.artifact.sha256, version.artifact.sha256);
    assert_ne!(version.manifest_digest, manifest.manifest_digest);
    assert_ne!(version.artifact.sha256, manifest.artifact.sha256);
}

#[test]
fn the_release_document_and_the_packed_manifest_hold_what_the_digests_say() {
    let mut workshop = Workshop::new();
    workshop.request.files = vec![workshop.write("LICENSE", "Apache-2.0")];
    workshop.write("skills/.hidden", "left out");
    workshop.write("skills/search/SKILL.md", "# Search");
    workshop.write("skills/search/more/table.csv", "a,b");
    workshop.request.skills = Some(workshop.path("skills"));
    let packed = workshop.pack();
    assert_eq!(packed.bundle, workshop.path("out/echo-1.0.0.tar.gz"));
    assert_eq!(packed.release_document, workshop.path("out/echo-1.0.0.release.json"));

    let release: Release = serde_json::from_slice(&read(&packed.release_document)).expect("a release");
    release.validate().expect("its digests hold");
    let bytes = read(&packed.bundle);
    assert_eq!(release.artifact.sha256, Sha256Digest::of(&bytes));
    assert_eq!(release.artifact.size_bytes, i64::try_from(bytes.len()).expect("small"));
    assert_eq!(release.artifact.media_type, MEDIA_TYPE_BUNDLE);
    assert_eq!(release.artifact.key, "echo-1.0.0.tar.gz");

    let files = bundle::read(&bytes).expect("it unpacks");
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "LICENSE",
            "component.wasm",
            "connector.json",
            "skills/search/SKILL.md",
            "skills/search/more/table.csv"
        ]
    );
    assert_eq!(files["component.wasm"], component("echo", "1.0.0", "v1"));
    assert_eq!(Sha256Digest::of(&files["connector.json"]), release.manifest_digest);
    assert_eq!(Manifest::parse(&files["connector.json"]).expect("a manifest"), release.manifest);
}

#[test]
fn the_archive_tells_nothing_of_who_made_it_and_when() {
    let packed = Workshop::new().pack_and_keep();
    assert_eq!(packed[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255]);
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
    let mut before = String::new();
    for entry in archive.entries().expect("entries") {
        let entry = entry.expect("an entry");
        let path = entry.path().expect("a path").display().to_string();
        assert!(before < path, "{before} stands before {path}");
        before = path;
        let header = entry.header();
        assert_eq!(header.mtime().expect("a time"), 0);
        assert_eq!((header.uid().expect("a user"), header.gid().expect("a group")), (0, 0));
        assert_eq!(header.mode().expect("a mode"), 0o644);
        assert_eq!(header.username().expect("a name"), Some(""));
    }
    assert_eq!(before, "connector.json");
}

#[test]
fn a_component_that_is_none_is_refused() {
    let workshop = Workshop::new();
    for (bytes, why) in [
        (b"hello".to_vec(), "not WebAssembly"),
        (Vec::new(), "not WebAssembly"),
        (hostile("core-module"), "core WebAssembly module"),
        (component("echo", "1.0.0", "v1")[..1000].to_vec(), "not a valid component"),
        (
            wat::parse_str("(component (import \"a:b/c\" (func)))").expect("a component"),
            "no WIT can describe",
        ),
    ] {
        workshop.write("component.wasm", bytes);
        says(&workshop.refusal(), ErrorCode::ComponentInvalid, &["component.wasm", why]);
    }
}

#[test]
fn imports_outside_the_contract_are_refused_by_name() {
    let workshop = Workshop::new();
    for (name, import) in [
        ("imports-outside-contract", "evil:host/thing@1.0.0"),
        ("imports-unreleased-version", "portcullis:connector/log@9.0.0"),
    ] {
        workshop.write("component.wasm", hostile(name));
        says(&workshop.refusal(), ErrorCode::ComponentImportForbidden, &[import]);
    }
}

#[test]
fn exports_that_are_not_the_worlds_are_refused_by_name() {
    let workshop = Workshop::new();
    let capabilities = "portcullis:connector/capabilities@0.1.0";
    workshop.write("component.wasm", hostile("exports-nothing"));
    says(&workshop.refusal(), ErrorCode::ComponentWorldUnsupported, &["does not export", capabilities]);
    workshop.write("component.wasm", hostile("exports-wrong-types"));
    says(
        &workshop.refusal(),
        ErrorCode::ComponentWorldUnsupported,
        &[capabilities, "describe is func() -> u32", "lacks the function invoke"],
    );
}

#[test]
fn a_component_must_fit_the_world_that_the_manifest_names() {
    let workshop = Workshop::new();
    workshop.edit_manifest("/implementation/world", json!(WORLD_AUTHORIZING_CONNECTOR));
    says(
        &workshop.refusal(),
        ErrorCode::ComponentWorldUnsupported,
        &["portcullis:connector/authorization@0.1.0", WORLD_AUTHORIZING_CONNECTOR],
    );

    let mut interface = ComponentInterface::read(&component("echo", "1.0.0", "v1")).expect("a component");
    assert_eq!(contract::problems(&interface, WORLD_CONNECTOR).expect("a known world"), []);
    let authorization = "portcullis:connector/authorization@0.1.0";
    interface.exports.insert(authorization.into(), std::collections::BTreeMap::new());
    let error = contract::require(&interface, WORLD_CONNECTOR).expect_err("more than its world says");
    says(&error, ErrorCode::ComponentWorldUnsupported, &[authorization, "implementation.world"]);
}

#[test]
fn only_the_named_wasi_interfaces_of_0_2_may_be_imported() {
    let echo = ComponentInterface::read(&component("echo", "1.0.0", "v1")).expect("a component");
    let with = |name: &str| {
        let mut interface = echo.clone();
        interface.imports.insert(name.into(), std::collections::BTreeMap::new());
        contract::require(&interface, WORLD_CONNECTOR)
    };
    for allowed in
        ["wasi:http/outgoing-handler@0.2.0", "wasi:sockets/tcp@0.2.12", "wasi:filesystem/types@0.2.3"]
    {
        with(allowed).expect(allowed);
    }
    for refused in [
        "wasi:http/outgoing-handler",
        "wasi:http/outgoing-handler@0.3.0",
        "wasi:http/outgoing-handler@0.2.0-rc-2023-11-10",
        "wasi:http/outgoing-handler@1.2.0",
        "wasi:http/incoming-handler@0.2.0",
        "wasi:keyvalue/store@0.2.0",
        "wasi:http/outgoing-handler@0.2.0@0.2.0",
        "portcullis:connector/capabilities@0.1.0",
        "log",
    ] {
        let error = with(refused).expect_err(refused);
        says(&error, ErrorCode::ComponentImportForbidden, &[refused]);
    }
}

#[test]
fn a_remote_connector_has_no_component_and_any_other_needs_one() {
    let mut workshop = Workshop::new();
    let component = workshop.request.component.take();
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["name the component"]);

    workshop.edit_manifest("/requiredCapabilities", json!(["tools"]));
    workshop.edit_manifest("/permissions", json!(["network"]));
    workshop.edit_manifest(
        "/implementation",
        json!({
            "kind": "remote_streamable_http",
            "endpoint": "https://mcp.example.org/mcp",
            "authentication": "none",
            "allowedHosts": ["mcp.example.org"]
        }),
    );
    let files = bundle::read(&read(&workshop.pack().bundle)).expect("it unpacks");
    assert_eq!(files.keys().collect::<Vec<_>>(), ["connector.json"]);

    workshop.request.component = component;
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["component.wasm", "remote_streamable_http"]);
}

#[test]
fn files_that_no_host_would_unpack_are_refused_by_name() {
    let mut workshop = Workshop::new();
    workshop.request.files = vec![workshop.write("extra/connector.json", "{}")];
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["connector.json", "already"]);
    workshop.request.files = vec![workshop.write("extra/Component.wasm", "")];
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["omponent.wasm", "case"]);
    workshop.request.files = vec![workshop.write("nul.txt", "")];
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["nul.txt"]);
    workshop.request.files = vec![workshop.path("absent")];
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["absent"]);
    workshop.request.files = vec![workshop.path("extra")];
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["extra", "folder"]);
    workshop.request.files = vec![workshop.write("skills", "a file where the folder would be")];
    let skills = workshop.path("more");
    workshop.write("more/SKILL.md", "# More");
    workshop.request.skills = Some(skills);
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["skills", "a file and a folder"]);
}

#[test]
fn skills_without_a_skill_or_with_a_link_are_refused() {
    let mut workshop = Workshop::new();
    workshop.write("skills/readme.txt", "no skill");
    workshop.request.skills = Some(workshop.path("skills"));
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["holds no SKILL.md"]);
    workshop.write("skills/one/SKILL.md", "# One");
    workshop.pack();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/etc/passwd", workshop.path("skills/one/link")).expect("a link");
        says(&workshop.refusal(), ErrorCode::InvalidRequest, &["link", "neither a file nor a folder"]);
    }
}

#[test]
fn an_icon_is_carried_inside_the_manifest() {
    let mut workshop = Workshop::new();
    workshop.request.icon = Some(workshop.write("icon.svg", "<svg/>"));
    let packed = workshop.pack();
    assert_eq!(packed.release.manifest.icon_url, "data:image/svg+xml;base64,PHN2Zy8+");
    packed.release.validate().expect("the digests cover it");
    workshop.request.icon = Some(workshop.write("icon.gif", "GIF89a"));
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["icon.gif", ".png, .webp or .svg"]);
    workshop.request.icon = Some(workshop.write("large.png", vec![0; 128 * 1024 + 1]));
    says(&workshop.refusal(), ErrorCode::InvalidManifest, &["connector.json", "128 KiB"]);
    workshop.request.icon = Some(workshop.path("absent.png"));
    says(&workshop.refusal(), ErrorCode::InvalidRequest, &["absent.png"]);
}

#[test]
fn hosts_and_the_word_network_go_together() {
    let workshop = Workshop::new();
    let hosts = |hosts: serde_json::Value| workshop.edit_manifest("/implementation/allowedHosts", hosts);
    let permissions = |words: serde_json::Value| workshop.edit_manifest("/permissions", words);
    for words in [json!([]), json!(["mail:read", "networking"])] {
        permissions(words);
        hosts(json!(["api.example.org"]));
        says(
            &workshop.refusal(),
            ErrorCode::InvalidManifest,
            &["connector.json", "permissions: add \"network\"", "api.example.org"],
        );
        let text = read(&workshop.request.manifest);
        Manifest::parse(&text).expect("a rule for authors: a host takes what was released without it");
    }
    for word in ["network", "network:*", "network:mail"] {
        permissions(json!([word]));
        hosts(json!([]));
        says(
            &workshop.refusal(),
            ErrorCode::InvalidManifest,
            &["add the hosts to implementation.allowedHosts", "remove the permission"],
        );
        hosts(json!(["api.example.org"]));
        let mut request = workshop.request.clone();
        request.out = workshop.path(&word.replace([':', '*'], "-"));
        pack::pack(&request).expect("words and hosts fit");
    }
}

#[test]
fn another_release_of_the_same_version_needs_force() {
    let mut workshop = Workshop::new();
    let first = workshop.pack();
    workshop.pack();
    workshop.edit_manifest("/description", json!("Changed in secret."));
    let advice = ["a released version never changes", "raise the version or pass --force"];
    says(&workshop.refusal(), ErrorCode::ArtifactDigestMismatch, &advice);
    fs::remove_file(&first.bundle).expect("removed");
    says(&workshop.refusal(), ErrorCode::ArtifactDigestMismatch, &["echo-1.0.0.release.json"]);
    workshop.request.force = true;
    let forced = workshop.pack();
    assert_ne!(forced.release.release_digest, first.release.release_digest);
    assert_eq!(Sha256Digest::of(&read(&forced.bundle)), forced.release.artifact.sha256);
    workshop.request.force = false;
    workshop.pack();
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).expect("readable")
}

impl Workshop {
    fn pack_and_keep(&self) -> Vec<u8> {
        read(&self.pack().bundle)
    }
}
