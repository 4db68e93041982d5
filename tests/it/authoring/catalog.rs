//! Releases to a catalog: all of them proven, one of each connector listed.

use std::{collections::BTreeMap, fs, path::PathBuf};

use portcullis::{
    artifacts::catalog::{CATALOG_FILE, StaticCatalogDocument},
    authoring::catalog::{CatalogBuilt, CatalogRequest, build},
    cli::catalog::{self, BuildArgs, CatalogCommand},
    domain::{
        catalog::CategoryKind,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        id::ConnectorKey,
    },
};
use semver::Version;
use serde_json::json;

use super::{Workshop, fixture, hostile, says, tree};

fn key(text: &str) -> ConnectorKey {
    ConnectorKey::parse(text).expect("a key")
}

/// Packs a release of `name` into the workshop's folder `out`.
fn release(workshop: &mut Workshop, name: &str, version: &str) -> PathBuf {
    workshop.request.key = key(name);
    workshop.request.version = Version::parse(version).expect("a version");
    workshop.pack().release_document
}

fn request(workshop: &Workshop, releases: Vec<PathBuf>) -> CatalogRequest {
    CatalogRequest { releases, out: workshop.path("catalog"), ..CatalogRequest::default() }
}

fn document(built: &CatalogBuilt) -> StaticCatalogDocument {
    StaticCatalogDocument::parse(&fs::read(&built.catalog).expect("written")).expect("a catalog")
}

/// Builds what must be refused, and proves that the catalog stayed as it was.
fn refusal(request: &CatalogRequest) -> Error {
    let before = tree(&request.out);
    let error = build(request).expect_err("it is refused");
    assert_eq!(tree(&request.out), before, "a refusal changes nothing");
    error
}

#[test]
fn the_newest_version_is_listed_and_the_others_are_named() {
    let mut workshop = Workshop::new();
    for version in ["1.9.0", "1.10.0", "1.10.0-rc.1"] {
        release(&mut workshop, "echo", version);
    }
    release(&mut workshop, "mail", "0.1.0");
    let built = build(&request(&workshop, vec![workshop.path("out")])).expect("a catalog");
    let names = |ids: &[portcullis::domain::id::ReleaseId]| {
        ids.iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&built.listed), ["echo@1.10.0", "mail@0.1.0"]);
    assert_eq!(names(&built.left_out), ["echo@1.10.0-rc.1", "echo@1.9.0"]);

    let catalog = document(&built);
    assert_eq!(catalog.source_revision, built.source_revision);
    for entry in &catalog.entries {
        let release = &entry.release;
        let (key, version) = (&release.connector_key, &release.version);
        assert_eq!(release.artifact.key, format!("artifacts/{key}/{version}/{key}-{version}.tar.gz"));
        let bytes = fs::read(workshop.path("catalog").join(&release.artifact.key)).expect("copied");
        assert_eq!(Sha256Digest::of(&bytes), release.artifact.sha256);
    }
    let artifacts = tree(&workshop.path("catalog/artifacts"));
    assert_eq!(artifacts.len(), 2, "what is left out is not copied");
}

#[test]
fn categories_have_their_kinds_names_and_counts() {
    let mut workshop = Workshop::new();
    for name in ["echo", "mail", "post"] {
        release(&mut workshop, name, "1.0.0");
    }
    let mut request = request(&workshop, vec![workshop.path("out")]);
    request.categories =
        [(key("mail"), "office-tools".to_owned()), (key("post"), "office-tools".to_owned())].into();
    request.category_names = [("connectors".to_owned(), "Everything else".to_owned())].into();
    request.featured = [key("post")].into();
    let categories: Vec<_> = document(&build(&request).expect("a catalog"))
        .categories
        .into_iter()
        .map(|one| (one.category_id, one.kind, one.sort_order, one.item_count, one.display_name_en))
        .collect();
    let row =
        |id: &str, kind, order, count, name: &str| (id.to_owned(), kind, order, count, Some(name.to_owned()));
    assert_eq!(
        categories,
        [
            row("featured", CategoryKind::Featured, 0, 1, "Featured"),
            row("connectors", CategoryKind::Category, 1, 1, "Everything else"),
            row("office-tools", CategoryKind::Category, 2, 2, "Office tools"),
        ]
    );
}

#[test]
fn the_source_revision_follows_the_contents_alone() {
    let mut workshop = Workshop::new();
    let first = release(&mut workshop, "echo", "1.0.0");
    let mut request = request(&workshop, vec![first.clone()]);
    let one = build(&request).expect("a catalog");
    request.out = workshop.path("elsewhere");
    let same = build(&request).expect("a catalog");
    assert_eq!(one.source_revision, same.source_revision);
    assert_eq!(fs::read(&one.catalog).expect("read"), fs::read(&same.catalog).expect("read"));
    request.releases.push(release(&mut workshop, "echo", "1.0.1"));
    let newer = build(&request).expect("a catalog over an older one");
    assert_ne!(newer.source_revision, one.source_revision);
    assert_eq!(document(&newer).entries[0].release.version, Version::new(1, 0, 1));
    assert!(
        workshop.path("elsewhere/artifacts/echo/1.0.0/echo-1.0.0.tar.gz").exists(),
        "whoever installs from the old catalog can finish"
    );
}

#[test]
fn a_flipped_byte_of_an_artifact_is_refused() {
    let mut workshop = Workshop::new();
    let echo = release(&mut workshop, "echo", "1.0.0");
    let mail = release(&mut workshop, "mail", "1.0.0");
    build(&request(&workshop, vec![echo.clone()])).expect("a catalog");
    let bundle = workshop.path("out/mail-1.0.0.tar.gz");
    let mut bytes = fs::read(&bundle).expect("the bundle");
    bytes[100] ^= 1;
    fs::write(&bundle, bytes).expect("written");
    let request = request(&workshop, vec![echo, mail]);
    says(&refusal(&request), ErrorCode::ArtifactDigestMismatch, &["mail-1.0.0.release.json", "SHA-256"]);
    fs::remove_file(&bundle).expect("removed");
    says(&refusal(&request), ErrorCode::ArtifactUnavailable, &["mail-1.0.0.tar.gz"]);
}

#[test]
fn an_older_release_is_proven_even_though_it_is_left_out() {
    let mut workshop = Workshop::new();
    release(&mut workshop, "echo", "1.0.0");
    release(&mut workshop, "echo", "2.0.0");
    fs::write(workshop.path("out/echo-1.0.0.tar.gz"), "damaged").expect("written");
    let request = request(&workshop, vec![workshop.path("out")]);
    says(&refusal(&request), ErrorCode::ArtifactSizeMismatch, &["echo-1.0.0"]);
}

#[test]
fn one_version_twice_is_refused() {
    let mut workshop = Workshop::new();
    let one = release(&mut workshop, "echo", "1.0.0");
    workshop.edit_manifest("/description", json!("Another build."));
    workshop.request.out = workshop.path("other");
    let other = release(&mut workshop, "echo", "1.0.0");
    let both = request(&workshop, vec![one, other.clone()]);
    says(
        &refusal(&both),
        ErrorCode::InvalidRequest,
        &["out/echo-1.0.0.release.json", "other/echo-1.0.0.release.json", "1.0.0"],
    );
    let metadata = release(&mut workshop, "echo", "1.0.0+build.2");
    says(&refusal(&request(&workshop, vec![other.clone(), metadata])), ErrorCode::InvalidRequest, &["1.0.0"]);
    build(&request(&workshop, vec![other.clone(), other])).expect("one file named twice is one release");
}

#[test]
fn a_listed_version_never_changes_its_bytes() {
    let mut workshop = Workshop::new();
    let echo = release(&mut workshop, "echo", "1.0.0");
    let request = request(&workshop, vec![echo]);
    build(&request).expect("a catalog");
    build(&request).expect("the same catalog again");
    workshop.edit_manifest("/description", json!("Changed in secret."));
    workshop.request.force = true;
    release(&mut workshop, "echo", "1.0.0");
    says(&refusal(&request), ErrorCode::ArtifactDigestMismatch, &["echo-1.0.0.tar.gz", "new version"]);
}

#[test]
fn a_release_that_hosts_refuse_is_not_listed() {
    let mut workshop = Workshop::new();
    release(&mut workshop, "echo", "1.0.0");
    // A bundle whose component was exchanged, under a release that covers it.
    let packed = workshop.pack();
    let mut files =
        portcullis::authoring::bundle::read(&fs::read(&packed.bundle).expect("read")).expect("sound");
    files.insert("component.wasm".into(), hostile("imports-outside-contract"));
    let bytes = portcullis::authoring::bundle::write(&files).expect("packed");
    let mut artifact = packed.release.artifact.clone();
    artifact.sha256 = Sha256Digest::of(&bytes);
    artifact.size_bytes = i64::try_from(bytes.len()).expect("small");
    fs::write(&packed.bundle, bytes).expect("written");
    let release = portcullis::domain::release::Release::assemble(
        packed.release.connector_key.clone(),
        packed.release.version.clone(),
        packed.release.manifest.clone(),
        artifact,
        packed.release.published_at,
    )
    .expect("a release");
    let write = |value: serde_json::Value| {
        fs::write(&packed.release_document, value.to_string()).expect("written");
    };
    write(serde_json::to_value(&release).expect("JSON"));
    let request = request(&workshop, vec![workshop.path("out")]);
    says(&refusal(&request), ErrorCode::ComponentImportForbidden, &["echo-1.0.0", "evil:host/thing@1.0.0"]);

    let mut superseded = serde_json::to_value(&packed.release).expect("JSON");
    superseded["status"] = json!("superseded");
    workshop.request.force = true;
    workshop.pack();
    fs::write(&packed.release_document, superseded.to_string()).expect("written");
    says(&refusal(&request), ErrorCode::InvalidManifest, &["superseded"]);
}

#[test]
fn slips_of_the_pen_are_refused() {
    let mut workshop = Workshop::new();
    let echo = release(&mut workshop, "echo", "1.0.0");
    let base = request(&workshop, vec![echo]);
    let slip = |change: &dyn Fn(&mut CatalogRequest), parts: &[&str]| {
        let mut request = base.clone();
        change(&mut request);
        says(&refusal(&request), ErrorCode::InvalidRequest, parts);
    };
    slip(&|request| drop(request.categories.insert(key("eco"), "tools".into())), &["--category", "eco"]);
    slip(&|request| request.featured = [key("eco")].into(), &["--featured", "eco"]);
    slip(
        &|request| drop(request.category_names.insert("tools".into(), "Tools".into())),
        &["--category-name", "tools"],
    );
    slip(
        &|request| drop(request.categories.insert(key("echo"), "featured".into())),
        &["featured", "--featured"],
    );
    slip(&|request| request.releases = vec![workshop.path("absent")], &["absent"]);
    fs::create_dir(workshop.path("empty")).expect("a folder");
    slip(&|request| request.releases = vec![workshop.path("empty")], &["empty", "connector pack"]);
}

#[test]
fn the_command_names_what_it_lists_and_leaves_out() {
    let mut workshop = Workshop::new();
    release(&mut workshop, "echo", "1.0.0");
    release(&mut workshop, "echo", "1.1.0");
    let args = |categories: &[(&str, &str)]| BuildArgs {
        releases: vec![workshop.path("out")],
        out: workshop.path("catalog"),
        categories: categories.iter().map(|(key, id)| ((*key).into(), (*id).into())).collect(),
        category_names: Vec::new(),
        featured: Vec::new(),
    };
    let report = catalog::run(CatalogCommand::Build(args(&[]))).expect("a catalog");
    assert!(report.human.contains("lists echo@1.1.0"), "{}", report.human);
    assert!(report.human.contains("leaves out echo@1.0.0"), "{}", report.human);
    assert_eq!(report.json["leftOut"], json!(["echo@1.0.0"]));
    let error =
        catalog::run(CatalogCommand::Build(args(&[("echo", "a"), ("echo", "b")]))).expect_err("twice");
    says(&error, ErrorCode::InvalidRequest, &["--category", "echo"]);
}

#[test]
fn the_prebuilt_catalogs_are_sound_and_differ_in_one_release() {
    let versions = |catalog: &str| {
        let folder = fixture(&format!("catalog/{catalog}"));
        let text = fs::read(folder.join(CATALOG_FILE)).expect("the prebuilt catalog");
        let document = StaticCatalogDocument::parse(&text).expect("it is sound");
        document
            .entries
            .iter()
            .map(|entry| {
                let release = &entry.release;
                let bytes = fs::read(folder.join(&release.artifact.key)).expect("the artifact");
                assert_eq!(Sha256Digest::of(&bytes), release.artifact.sha256);
                (release.connector_key.to_string(), release.version.to_string())
            })
            .collect::<BTreeMap<_, _>>()
    };
    let expect = |feeds: &str| {
        [("echo", "1.0.0"), ("feeds", feeds)]
            .map(|(key, version)| (key.to_owned(), version.to_owned()))
            .into()
    };
    assert_eq!(versions("v1"), expect("1.0.0"));
    assert_eq!(versions("v2"), expect("1.1.0"));
    let weight: usize = tree(&fixture("catalog")).values().map(Vec::len).sum();
    assert!(weight < 3 << 20, "the prebuilt catalogs weigh {weight} bytes");
}
