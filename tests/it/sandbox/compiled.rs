//! Compiled components on disk.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use portcullis::{domain::error::ErrorCode, ports::ImplementationHost as _};
use serde_json::json;

use super::world::{Connector, World};

async fn compiled_once() -> World {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a route");
    let counts = world.host.counts();
    assert_eq!((counts.cache_misses, counts.cache_hits, counts.cache_damaged), (1, 0, 0));
    world
}

fn files(world: &World) -> Vec<PathBuf> {
    let entries = fs::read_dir(world.folder.path().join("compiled")).expect("the folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

async fn works(world: &World) {
    world.activate(&Connector::echo()).await.expect("a route");
    world.call("echo.echo", json!({"message": "x"})).await.expect("an answer");
}

#[tokio::test]
async fn a_restart_compiles_nothing() {
    let world = compiled_once().await.restart();
    works(&world).await;
    let counts = world.host.counts();
    assert_eq!((counts.cache_misses, counts.cache_hits), (0, 1));
}

#[tokio::test]
async fn two_connections_share_one_compiled_component() {
    let world = compiled_once().await;
    world.activate(&Connector::echo().account("ada")).await.expect("a route");
    let counts = world.host.counts();
    assert_eq!((counts.cache_misses, counts.cache_hits), (1, 0), "it came from memory");
}

#[tokio::test]
async fn the_folder_is_private() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = folder.path().join("open");
    fs::create_dir(&open).expect("a folder");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("permissions");
    let world = World::with(|settings| settings.cache_dir.clone_from(&open));
    works(&world).await;
    assert_eq!(fs::metadata(&open).expect("the folder").permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn a_changed_file_is_not_loaded_but_written_anew() {
    let world = compiled_once().await;
    let [file] = files(&world).try_into().expect("one file");
    let good = fs::read(&file).expect("the file");
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    fs::write(&file, &bad).expect("the file");
    let world = world.restart();
    works(&world).await;
    let counts = world.host.counts();
    assert_eq!((counts.cache_misses, counts.cache_hits, counts.cache_damaged), (1, 0, 1));
    let world = world.restart();
    works(&world).await;
    assert_eq!(world.host.counts().cache_hits, 1);
}

#[tokio::test]
async fn a_missing_file_is_written_anew() {
    let world = compiled_once().await;
    fs::remove_file(&files(&world)[0]).expect("the file");
    let world = world.restart();
    works(&world).await;
    assert_eq!(world.host.counts().cache_misses, 1);
    assert_eq!(files(&world).len(), 1);
}

#[tokio::test]
async fn a_file_that_nobody_noted_is_not_loaded() {
    let world = compiled_once().await;
    world.ledger.compiled.lock().expect("notes").clear();
    let world = world.restart();
    works(&world).await;
    let counts = world.host.counts();
    assert_eq!((counts.cache_misses, counts.cache_hits), (1, 0));
}

#[tokio::test]
async fn a_component_that_changed_after_it_was_verified_is_not_compiled() {
    let world = World::new();
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("component.wasm");
    fs::copy(Connector::echo().component, &copy).expect("a copy");
    let request = world.request(&Connector::of("echo", copy.clone()));
    fs::copy(Connector::misbehave().component, &copy).expect("another component");
    let error = world.host.reconcile(&request).await.expect_err("a refusal");
    assert_eq!(error.code, ErrorCode::ArtifactDigestMismatch);
    assert!(world.host.routes().is_empty() && files(&world).is_empty());
}

#[tokio::test]
async fn the_pool_of_the_default_settings_fits() {
    let world = World::with(|settings| settings.pool_instances = 1_000);
    works(&world).await;
}

#[tokio::test]
async fn a_pipe_in_place_of_a_file_holds_nothing_up() {
    let world = compiled_once().await;
    let [file] = files(&world).try_into().expect("one file");
    fs::remove_file(&file).expect("the file");
    let made = std::process::Command::new("mkfifo").arg(&file).status().expect("mkfifo runs");
    assert!(made.success());
    let world = world.restart();
    tokio::time::timeout(Duration::from_secs(60), works(&world)).await.expect("it waits for nobody");
    let counts = world.host.counts();
    assert_eq!((counts.cache_misses, counts.cache_damaged), (1, 1));
    assert!(fs::symlink_metadata(&file).expect("the file").is_file(), "it was written anew");
}

#[tokio::test]
async fn a_link_in_place_of_a_file_is_not_followed() {
    let world = compiled_once().await;
    let [file] = files(&world).try_into().expect("one file");
    let elsewhere = world.folder.path().join("elsewhere");
    fs::rename(&file, &elsewhere).expect("the file");
    std::os::unix::fs::symlink(&elsewhere, &file).expect("a link");
    let world = world.restart();
    works(&world).await;
    let counts = world.host.counts();
    assert_eq!((counts.cache_hits, counts.cache_misses, counts.cache_damaged), (0, 1, 1));
}
