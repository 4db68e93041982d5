//! Components that are compiled in a process of their own.

use std::{fs, path::PathBuf};

use portcullis::{domain::error::ErrorCode, ports::ImplementationHost as _};
use serde_json::json;

use super::world::{Connector, World};
use crate::guests;

fn apart(program: &str) -> World {
    World::with(|settings| settings.compiler = Some(PathBuf::from(program)))
}

fn world() -> World {
    apart(env!("CARGO_BIN_EXE_portcullis"))
}

fn files(world: &World) -> Vec<PathBuf> {
    let entries = fs::read_dir(world.folder.path().join("compiled")).expect("the folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[tokio::test]
async fn its_code_runs_here_and_after_a_restart() {
    let world = world();
    world.activate(&Connector::echo()).await.expect("a route");
    world.call("echo.echo", json!({"message": "x"})).await.expect("an answer");
    let counts = world.host.counts();
    assert_eq!((counts.cache_misses, counts.cache_hits), (1, 0));
    assert_eq!(files(&world).len(), 1);
    // The engine that compiles in this process takes it for its own.
    let world = world.restart();
    world.activate(&Connector::echo()).await.expect("a route");
    world.call("echo.echo", json!({"message": "x"})).await.expect("an answer");
    let counts = world.host.counts();
    assert_eq!((counts.cache_misses, counts.cache_hits, counts.cache_damaged), (0, 1, 0));
}

#[tokio::test]
async fn what_is_wrong_with_a_component_is_told_as_here() {
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("component.wasm");
    let mut bytes = fs::read(Connector::echo().component).expect("a component");
    bytes.extend([11, 1, 0xff]);
    fs::write(&broken, bytes).expect("a component");
    for component in [guests::text("hostile/core-module.wat"), broken] {
        let connector = Connector::of("bad", component);
        let (here, apart) = (World::new(), world());
        let expected = here.activate(&connector).await.expect_err("a refusal");
        let told = apart.activate(&connector).await.expect_err("a refusal");
        assert_eq!(told.code, ErrorCode::ComponentInvalid);
        assert_eq!((told.message, told.retryable), (expected.message, expected.retryable));
        assert!(apart.host.routes().is_empty() && files(&apart).is_empty());
    }
}

#[tokio::test]
async fn a_component_that_changed_after_it_was_verified_is_not_compiled() {
    let world = world();
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
async fn without_its_program_nothing_is_compiled() {
    let world = apart("/nowhere/portcullis");
    let error = world.activate(&Connector::echo()).await.expect_err("a refusal");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
    assert!(world.host.routes().is_empty() && files(&world).is_empty());
}

#[tokio::test]
async fn what_an_earlier_start_left_half_done_is_removed() {
    let world = World::new();
    let left = world.folder.path().join("compiled/unfinished-abc");
    fs::write(&left, b"half").expect("a file");
    let _world = world.restart();
    assert!(!left.exists());
}
