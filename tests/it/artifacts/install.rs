//! Releases that come, stay, follow each other and go.

use std::{fs, os::unix::fs::symlink, sync::Arc};

use portcullis::{
    artifacts::{ArtifactFetcher, LocalInstaller},
    domain::{
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        manifest::Manifest,
        release::{Artifact, MEDIA_TYPE_BUNDLE, MEDIA_TYPE_COMPONENT, Release},
        timestamp::Timestamp,
    },
    ports::{PhysicalState, ReleaseInstaller as _},
};

use super::{
    archive::Tar,
    world::{COMPONENT, World, bare, describe, honest, manifest, request, verdict},
};

fn present() -> (PhysicalState, Option<String>) {
    (PhysicalState::Present, None)
}

#[tokio::test]
async fn a_bundle_is_installed_committed_and_opened() {
    let world = World::new();
    let release = world.publish_honest("1.0.0");
    assert_eq!(world.state(&release).await, (PhysicalState::Absent, Some("artifact_absent".into())));

    let receipt = world.install("one", &release).await.expect("installed");
    assert_eq!(receipt.operation_id.as_str(), "one");
    assert_eq!(receipt.connector_key, release.connector_key);
    assert_eq!(receipt.version, release.version);
    assert_eq!(receipt.release_digest, release.release_digest);
    assert_eq!(receipt.artifact_sha256, release.artifact.sha256);
    world.installer.commit(&request("one", &release), &receipt).await.expect("committed");
    assert_eq!(world.state(&release).await, present());

    let opened = world.installer.open(&release).await.expect("opened");
    assert_eq!(fs::read(&opened.component).expect("a component"), COMPONENT);
    assert_eq!(opened.component_digest, Sha256Digest::of(COMPONENT));
    assert_eq!(opened.component, opened.root.join("component.wasm"));
    assert_eq!(fs::read(opened.root.join("skills/echo/SKILL.md")).expect("a skill"), b"# Echo");
}

#[tokio::test]
async fn everything_on_disk_is_for_the_owner_alone() {
    let world = World::new();
    world.commit("one", &world.publish_honest("1.0.0")).await.expect("installed");
    let disk = world.disk();
    assert!(disk.len() > 10);
    for (path, (mode, _)) in disk {
        let folder = world.root().join(&path).is_dir();
        assert_eq!(mode, if folder { 0o700 } else { 0o600 }, "{path}");
    }
}

#[tokio::test]
async fn names_from_common_archivers_are_understood() {
    let world = World::new();
    let deep = format!("skills/{}/SKILL.md", "long-name-".repeat(20));
    let tar = Tar::new()
        .folder("./")
        .file("./connector.json", manifest().as_bytes())
        .file("./component.wasm", COMPONENT)
        .folder("./skills/")
        .long(&deep, b"# Deep");
    let release = world.publish("1.0.0", &tar.gzip());
    world.commit("one", &release).await.expect("installed");
    let opened = world.installer.open(&release).await.expect("opened");
    assert_eq!(fs::read(opened.root.join(deep)).expect("a skill"), b"# Deep");
}

#[tokio::test]
async fn a_bare_component_is_installed_where_the_manifest_says() {
    let world = World::new();
    let release = bare("echo", "1.0.0", COMPONENT);
    fs::write(world.catalog().join(&release.artifact.key), COMPONENT).expect("published");
    world.commit("one", &release).await.expect("installed");
    let opened = world.installer.open(&release).await.expect("opened");
    assert_eq!(opened.component_digest, release.artifact.sha256);
    assert_eq!(fs::read(&opened.component).expect("a component"), COMPONENT);
    assert_eq!(fs::read_dir(&opened.root).expect("a folder").count(), 1, "and nothing else");
}

#[tokio::test]
async fn s311_installing_again_reuses_what_is_there() {
    let world = World::new();
    let release = world.publish_honest("1.0.0");
    let first = world.install("one", &release).await.expect("installed");
    let before = world.disk();
    let second = world.install("two", &release).await.expect("again");
    assert_eq!(world.fetches(), 1, "one download");
    assert_eq!(second.operation_id.as_str(), "two");
    assert_eq!(second.inventory_digest, first.inventory_digest);
    assert!(world.disk() == before);
    assert_eq!(world.install("one", &release).await.expect("the same call again"), first);
}

#[tokio::test]
async fn a_forged_receipt_does_not_make_a_tree_the_released_one() {
    let world = World::new();
    let release = world.publish_honest("1.0.0");
    let honest_receipt = world.install("one", &release).await.expect("installed");
    // Another tree with a receipt that fits it.
    let forged = World::new();
    let other = Tar::new().file("connector.json", manifest().as_bytes()).file("component.wasm", b"evil");
    let other = forged.publish("1.0.0", &other.gzip());
    forged.install("one", &other).await.expect("installed");
    let tree = world.tree(&release);
    fs::remove_dir_all(&tree).expect("removed");
    fs::rename(forged.tree(&other), &tree).expect("replaced");
    let receipt = fs::read_to_string(tree.join("receipt.json")).expect("a receipt");
    let receipt = receipt
        .replace(&other.release_digest.to_string(), &release.release_digest.to_string())
        .replace(&other.artifact.sha256.to_string(), &release.artifact.sha256.to_string());
    fs::write(tree.join("receipt.json"), receipt).expect("forged");

    let again = world.install("two", &release).await.expect("installed");
    assert_eq!(again.inventory_digest, honest_receipt.inventory_digest);
    let opened = world.installer.open(&release).await.expect("opened");
    assert_eq!(fs::read(opened.component).expect("a component"), COMPONENT);
}

#[tokio::test]
async fn s321_s322_the_previous_release_stays_until_the_next_but_one_is_committed() {
    let world = World::new();
    let releases = ["1.0.0", "2.0.0", "3.0.0"].map(|version| world.publish_honest(version));
    world.commit("one", &releases[0]).await.expect("installed");
    let receipt = world.install("two", &releases[1]).await.expect("a candidate");
    let pointer = world.root().join("releases/echo/current");
    let current = || fs::read_to_string(&pointer).expect("a pointer");
    assert!(current().contains("1.0.0") && !current().contains("2.0.0"), "the candidate is not current");
    assert_eq!(world.state(&releases[0]).await, present());

    world.installer.commit(&request("two", &releases[1]), &receipt).await.expect("committed");
    assert!(current().contains("2.0.0"));
    world.installer.open(&releases[0]).await.expect("a failed update can go back");
    world.installer.commit(&request("two", &releases[1]), &receipt).await.expect("committed again");
    world.installer.open(&releases[0]).await.expect("which changes nothing");

    world.commit("three", &releases[2]).await.expect("updated");
    assert_eq!(world.state(&releases[0]).await.0, PhysicalState::Absent);
    assert!(!world.archive(&releases[0]).exists(), "its archive went with it");
    assert_eq!(world.state(&releases[1]).await, present());
    assert_eq!(world.state(&releases[2]).await, present());
}

#[tokio::test]
async fn only_one_candidate_is_kept() {
    let world = World::new();
    let releases = ["1.0.0", "2.0.0", "3.0.0"].map(|version| world.publish_honest(version));
    world.commit("one", &releases[0]).await.expect("installed");
    world.install("two", &releases[1]).await.expect("a candidate");
    world.install("three", &releases[2]).await.expect("another");
    assert_eq!(world.state(&releases[0]).await, present());
    assert_eq!(world.state(&releases[1]).await.0, PhysicalState::Absent);
    assert_eq!(world.state(&releases[2]).await, present());
    assert!(!world.archive(&releases[1]).exists());
}

#[tokio::test]
async fn a_receipt_of_another_release_commits_nothing() {
    let world = World::new();
    let one = world.publish_honest("1.0.0");
    let two = world.publish_honest("2.0.0");
    world.commit("one", &one).await.expect("installed");
    let receipt = world.install("two", &two).await.expect("a candidate");
    let before = world.disk();
    let error = world.installer.commit(&request("one", &one), &receipt).await.expect_err("refused");
    assert_eq!(verdict(&error), (ErrorCode::InstallFailed, false));
    let mut forged = receipt.clone();
    forged.inventory_digest = Sha256Digest::of(b"other files");
    let error = world.installer.commit(&request("two", &two), &forged).await.expect_err("refused");
    assert_eq!(verdict(&error), (ErrorCode::InstallFailed, false));
    assert!(world.disk() == before);
}

#[tokio::test]
async fn s334_s335_uninstalling_removes_every_release_and_only_of_that_connector() {
    let world = World::new();
    let one = world.publish_honest("1.0.0");
    let two = world.publish_honest("2.0.0");
    let other = describe("feeds", "1.0.0", &honest("1.0.0"), MEDIA_TYPE_BUNDLE);
    fs::write(world.catalog().join(&other.artifact.key), honest("1.0.0")).expect("published");
    world.commit("one", &one).await.expect("installed");
    world.commit("other", &other).await.expect("installed");
    world.install("two", &two).await.expect("a candidate");

    world.uninstall("echo").await.expect("removed");
    assert!(!world.root().join("releases/echo").exists());
    assert_eq!(world.state(&one).await.0, PhysicalState::Absent);
    assert!(!world.archive(&two).exists());
    assert!(world.archive(&other).exists(), "an archive that two connectors came from stays");
    assert_eq!(world.state(&other).await, present());
    world.uninstall("echo").await.expect("removing nothing is a success");
    world.uninstall("never-seen").await.expect("removing nothing is a success");
    assert_eq!(world.state(&other).await, present());

    let error = world.installer.open(&one).await.expect_err("nothing to open");
    assert_eq!(verdict(&error), (ErrorCode::ArtifactUnavailable, false));
    assert!(error.message.contains("install it again"), "{error}");
}

#[tokio::test]
async fn s319_removal_follows_no_link() {
    let world = World::new();
    let outside = tempfile::TempDir::new().expect("a folder");
    fs::write(outside.path().join("precious"), "data").expect("a file");
    fs::create_dir_all(world.root().join("releases")).expect("a folder");
    symlink(outside.path(), world.root().join("releases/echo")).expect("a link");
    let error = world.uninstall("echo").await.expect_err("refused");
    assert_eq!(verdict(&error), (ErrorCode::InstallFailed, false));
    let release = world.publish_honest("1.0.0");
    let error = world.install("one", &release).await.expect_err("refused");
    assert_eq!(verdict(&error), (ErrorCode::InstallFailed, false));
    assert_eq!(world.state(&release).await, (PhysicalState::Invalid, Some("artifact_not_a_folder".into())));
    assert_eq!(fs::read_dir(outside.path()).expect("a folder").count(), 1, "nothing was written through it");

    // A link further down goes; what it points to stays.
    fs::remove_file(world.root().join("releases/echo")).expect("removed");
    world.commit("one", &release).await.expect("installed");
    symlink(outside.path(), world.tree(&release).join("content/out")).expect("a link");
    world.uninstall("echo").await.expect("removed");
    assert_eq!(fs::read(outside.path().join("precious")).expect("still there"), b"data");
}

#[tokio::test]
async fn a_connector_that_runs_elsewhere_is_installed_but_has_nothing_to_open() {
    let json = serde_json::json!({
        "schemaVersion": "1", "displayName": "Remote", "iconUrl": "https://example.org/i.svg",
        "authorizationKind": "none", "requiredCapabilities": ["tools"],
        "implementation": { "kind": "remote_streamable_http", "endpoint": "https://mcp.example.org/mcp",
            "authentication": "none", "allowedHosts": ["mcp.example.org"] }
    })
    .to_string();
    let bytes = Tar::new().file("connector.json", json.as_bytes()).gzip();
    let assemble = |media_type: &str| {
        let artifact = Artifact {
            key: "remote.artifact".into(),
            sha256: Sha256Digest::of(&bytes),
            size_bytes: bytes.len() as i64,
            media_type: media_type.into(),
            object_version: None,
        };
        let manifest = Manifest::parse(json.as_bytes()).expect("a manifest");
        Release::assemble(
            "remote".parse().expect("a key"),
            "1.0.0".parse().expect("a version"),
            manifest,
            artifact,
            Timestamp(1),
        )
        .expect("a release")
    };
    let world = World::new();
    fs::write(world.catalog().join("remote.artifact"), &bytes).expect("published");
    let release = assemble(MEDIA_TYPE_BUNDLE);
    world.commit("one", &release).await.expect("installed");
    assert_eq!(world.state(&release).await, present());
    let error = world.installer.open(&release).await.expect_err("nothing to run here");
    assert_eq!(verdict(&error), (ErrorCode::UnsupportedImplementation, false));
    let error = world.refuses(&assemble(MEDIA_TYPE_COMPONENT)).await;
    assert_eq!(verdict(&error), (ErrorCode::ArtifactMediaTypeUnsupported, false));
}

/// Never answers.
struct Stuck(tokio::sync::Semaphore);

#[async_trait::async_trait]
impl ArtifactFetcher for Stuck {
    async fn fetch(&self, _: &Release, destination: &std::path::Path) -> Result<(), Error> {
        fs::write(destination, "half a download").expect("written");
        self.0.add_permits(1);
        std::future::pending().await
    }
}

#[tokio::test]
async fn work_on_one_connector_waits_for_its_lane_and_disturbs_no_reader() {
    let mut world = World::new();
    let one = world.publish_honest("1.0.0");
    let two = world.publish_honest("2.0.0");
    world.commit("one", &one).await.expect("installed");
    let stuck = Arc::new(Stuck(tokio::sync::Semaphore::new(0)));
    world.installer = LocalInstaller::new(world.root(), Arc::clone(&stuck) as _).expect("an installer");
    let world = Arc::new(world);

    let other = Arc::clone(&world);
    let wanted = two.clone();
    let update = tokio::spawn(async move { other.install("two", &wanted).await });
    let _started = stuck.0.acquire().await.expect("the download began");

    world.installer.open(&one).await.expect("what is installed opens meanwhile");
    assert_eq!(world.state(&one).await, present());
    assert_eq!(
        world.state(&two).await,
        (PhysicalState::Indeterminate, Some("artifact_busy".into())),
        "what is being installed cannot be told"
    );
    let waiting = tokio::time::timeout(std::time::Duration::from_millis(50), world.uninstall("echo")).await;
    assert!(waiting.is_err(), "the lane is taken");

    update.abort();
    assert!(update.await.is_err());
    world.uninstall("echo").await.expect("an abandoned caller frees the lane");
    assert!(fs::read_dir(world.root().join("staging")).expect("staging").next().is_none());
    assert!(!world.root().join("releases/echo").exists());
}
