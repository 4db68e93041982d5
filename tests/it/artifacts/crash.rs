//! Every state that an interruption or a disk can leave behind, and what is made of it.

use std::{fs, os::unix::fs::symlink};

use portcullis::{
    domain::{error::ErrorCode, release::Release},
    ports::{PhysicalState, ReleaseInstaller as _},
};

use super::world::{COMPONENT, World, request, verdict};

async fn installed(version: &str) -> (World, Release) {
    let world = World::new();
    let release = world.publish_honest(version);
    world.commit("one", &release).await.expect("installed");
    (world, release)
}

/// What happened to a tree, the reason that an inspection gives, and how to do it.
type Damage = (&'static str, &'static str, fn(&std::path::Path));
/// When an installation was interrupted, and how that looks on disk.
type Interruption = (&'static str, fn(&World, &Release));

fn damages() -> Vec<Damage> {
    vec![
        ("changed", "artifact_inventory_mismatch", |tree| {
            fs::write(tree.join("content/component.wasm"), "evil").expect("changed");
        }),
        ("extra file", "artifact_inventory_mismatch", |tree| {
            fs::write(tree.join("content/extra"), "").expect("added");
        }),
        ("extra folder", "artifact_inventory_mismatch", |tree| {
            fs::create_dir(tree.join("content/extra")).expect("added");
        }),
        ("missing file", "artifact_inventory_mismatch", |tree| {
            fs::remove_file(tree.join("content/README.md")).expect("removed");
        }),
        ("link", "artifact_foreign_entry", |tree| {
            fs::remove_file(tree.join("content/component.wasm")).expect("removed");
            symlink("/etc/passwd", tree.join("content/component.wasm")).expect("a link");
        }),
        ("no content", "artifact_content_missing", |tree| {
            fs::remove_dir_all(tree.join("content")).expect("removed");
        }),
        ("no receipt", "artifact_receipt_unreadable", |tree| {
            fs::remove_file(tree.join("receipt.json")).expect("removed");
        }),
        ("half a receipt", "artifact_receipt_unreadable", |tree| {
            fs::write(tree.join("receipt.json"), "{\"schemaVersion\":").expect("cut");
        }),
        ("another receipt", "artifact_receipt_mismatch", |tree| {
            let receipt = fs::read_to_string(tree.join("receipt.json")).expect("a receipt");
            fs::write(tree.join("receipt.json"), receipt.replace("1.0.0", "1.0.1")).expect("changed");
        }),
        ("a file for a tree", "artifact_not_a_folder", |tree| {
            fs::remove_dir_all(tree).expect("removed");
            fs::write(tree, "").expect("a file");
        }),
    ]
}

#[tokio::test]
async fn s313_a_damaged_tree_is_invalid_and_looking_repairs_nothing() {
    for (name, reason, damage) in damages() {
        let (world, release) = installed("1.0.0").await;
        damage(&world.tree(&release));
        let before = world.disk();
        let state = world.state(&release).await;
        assert_eq!(state, (PhysicalState::Invalid, Some(reason.to_owned())), "{name}");
        assert!(world.disk() == before, "{name}");
        assert_eq!(world.fetches(), 1, "{name}");
    }
}

#[tokio::test]
async fn s314_a_missing_tree_is_absent() {
    let (world, release) = installed("1.0.0").await;
    fs::remove_dir_all(world.tree(&release)).expect("removed");
    assert_eq!(world.state(&release).await, (PhysicalState::Absent, Some("artifact_absent".into())));
}

#[tokio::test]
async fn a_damaged_tree_is_repaired_from_the_verified_archive_without_the_network() {
    let gone: Damage = ("gone", "", |tree| fs::remove_dir_all(tree).expect("removed"));
    for (name, _, damage) in damages().into_iter().chain([gone]) {
        let (mut world, release) = installed("1.0.0").await;
        let whole = world.disk();
        // Both for a process that has verified it before and for one that has not.
        for restart in [false, true] {
            if restart {
                world.restart();
            }
            damage(&world.tree(&release));
            let opened = world.installer.open(&release).await.expect(name);
            assert_eq!(fs::read(&opened.component).expect(name), COMPONENT, "{name}");
            assert!(world.disk() == whole, "{name}: it is as it was");
        }
        assert_eq!(world.fetches(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_damaged_tree_without_a_sound_archive_asks_to_be_installed_again() {
    for (code, damage_archive) in [
        (ErrorCode::ArtifactUnavailable, fs::remove_file as fn(std::path::PathBuf) -> std::io::Result<()>),
        (ErrorCode::ArtifactDigestMismatch, |path| fs::write(path, "other bytes")),
    ] {
        let (world, release) = installed("1.0.0").await;
        fs::write(world.tree(&release).join("content/component.wasm"), "evil").expect("changed");
        damage_archive(world.archive(&release)).expect("damaged");
        let error = world.installer.open(&release).await.expect_err("it cannot be repaired");
        assert_eq!(verdict(&error), (code, false));
        assert!(error.message.contains("install it again"), "{error}");
        let receipt = world.install("again", &release).await.expect("installed again");
        assert_eq!(world.fetches(), 2);
        world.installer.commit(&request("again", &release), &receipt).await.expect("committed");
        world.installer.open(&release).await.expect("and sound");
    }
}

#[tokio::test]
async fn a_damaged_archive_is_fetched_again_and_a_sound_tree_opens_without_it() {
    let (mut world, release) = installed("1.0.0").await;
    fs::write(world.archive(&release), "other bytes").expect("damaged");
    world.restart();
    world.installer.open(&release).await.expect("the files themselves are sound");
    world.install("again", &release).await.expect("installed");
    assert_eq!(world.fetches(), 2, "the damaged archive was not believed");
    fs::remove_file(world.archive(&release)).expect("removed");
    fs::create_dir(world.archive(&release)).expect("a folder in its place");
    world.install("again", &release).await.expect("installed");
    assert_eq!(world.fetches(), 3);
}

#[tokio::test]
async fn a_start_drops_what_interrupted_runs_left() {
    let (mut world, release) = installed("1.0.0").await;
    let whole = world.disk();
    let root = world.root();
    // A download, an unpacking, a removal, an archive nobody came to use, a
    // pointer half written, a folder whose release never came.
    for name in ["a", "b"] {
        fs::create_dir_all(root.join("staging").join(name).join("content/deep")).expect("a folder");
        fs::write(root.join("staging").join(name).join("archive"), "half").expect("a file");
    }
    symlink("/", root.join("staging/link")).expect("a link");
    fs::write(root.join("archives/sha256").join("0".repeat(64)), "unused").expect("a file");
    fs::create_dir_all(root.join("releases/echo/9.9.9")).expect("a folder");
    fs::create_dir_all(root.join("releases/feeds/1.0.0")).expect("a folder");
    world.restart();
    world.installer.recover().await.expect("recovered");
    assert!(world.disk() == whole);
    world.installer.recover().await.expect("twice is as good as once");
    world.installer.open(&release).await.expect("it opens");
    assert_eq!(world.fetches(), 1);
}

#[tokio::test]
async fn a_pointer_half_written_is_written_again() {
    let (mut world, _) = installed("1.0.0").await;
    fs::write(world.root().join("releases/echo/.current.new"), "{\"sch").expect("half");
    world.restart();
    world.installer.recover().await.expect("recovered");
    let two = world.publish_honest("2.0.0");
    world.commit("two", &two).await.expect("updated");
    assert!(!world.root().join("releases/echo/.current.new").exists());
}

#[tokio::test]
async fn an_install_interrupted_anywhere_is_finished_by_the_same_call() {
    let interruptions: [Interruption; 4] = [
        ("while downloading", |world, release| {
            fs::remove_dir_all(world.tree(release)).expect("removed");
            fs::remove_file(world.archive(release)).expect("removed");
        }),
        ("after the archive was kept", |world, release| {
            fs::remove_dir_all(world.tree(release)).expect("removed");
        }),
        ("between the two renames of a replacement", |world, release| {
            let retired = world.root().join("staging/abc");
            fs::create_dir(&retired).expect("staging");
            fs::rename(world.tree(release), retired.join("retired")).expect("retired");
        }),
        ("after the promotion", |_, _| {}),
    ];
    for (name, interrupt) in interruptions {
        let (mut world, one) = installed("1.0.0").await;
        let two = world.publish_honest("2.0.0");
        let receipt = world.install("two", &two).await.expect("a candidate");
        interrupt(&world, &two);
        world.restart();
        world.installer.recover().await.expect("recovered");
        world.installer.open(&one).await.expect("the previous release is there");
        assert_eq!(world.install("two", &two).await.expect(name), receipt, "{name}");
        world.installer.commit(&request("two", &two), &receipt).await.expect(name);
        world.installer.open(&two).await.expect(name);
        assert!(fs::read_dir(world.root().join("staging")).expect("staging").next().is_none(), "{name}");
    }
}

#[tokio::test]
async fn a_received_candidate_survives_a_restart_and_can_be_committed() {
    let (mut world, one) = installed("1.0.0").await;
    let two = world.publish_honest("2.0.0");
    let receipt = world.install("two", &two).await.expect("a candidate");
    world.restart();
    world.installer.recover().await.expect("recovered");
    world.installer.commit(&request("two", &two), &receipt).await.expect("committed");
    world.installer.open(&two).await.expect("opened");
    world.installer.open(&one).await.expect("and the one before it");
    assert_eq!(world.fetches(), 2);
}

#[tokio::test]
async fn what_cannot_be_understood_is_not_removed() {
    // An unreadable receipt: its archive may be what repairs it.
    let (world, release) = installed("1.0.0").await;
    fs::write(world.tree(&release).join("receipt.json"), "{").expect("damaged");
    fs::remove_file(world.root().join("releases/echo/current")).expect("removed");
    world.installer.recover().await.expect("recovered");
    assert!(world.archive(&release).exists());
    world.installer.open(&release).await.expect("repaired");

    // An unreadable pointer: any release may be the current one.
    let (world, release) = installed("1.0.0").await;
    fs::write(world.root().join("releases/echo/current"), "{").expect("damaged");
    let two = world.publish_honest("2.0.0");
    world.install("two", &two).await.expect("a candidate");
    assert_eq!(world.state(&release).await.0, PhysicalState::Present);
    assert!(world.archive(&release).exists());
}
