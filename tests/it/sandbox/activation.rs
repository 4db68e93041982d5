//! What becomes a route, and what does not.

use std::path::PathBuf;

use portcullis::{
    domain::{
        authorization::AuthorizationState,
        error::ErrorCode,
        installation::Installation,
        runtime::{REASON_RUNTIME_DISABLED, ReadinessState, ReconcileRequest},
    },
    ports::ImplementationHost as _,
};
use serde_json::json;

use super::world::{Connector, World, generation};
use crate::guests;

async fn refusal(world: &World, request: &ReconcileRequest) -> (ErrorCode, String, bool) {
    let error = world.host.reconcile(request).await.expect_err("a refusal");
    (error.code, error.message, error.retryable)
}

async fn refused(component: PathBuf) -> (ErrorCode, String) {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a neighbor");
    let request = world.request(&Connector::of("bad", component));
    let (code, message, _) = refusal(&world, &request).await;
    assert_eq!(world.host.routes().len(), 1, "nothing was put in place");
    assert!(world.call("echo.echo", json!({"message": "x"})).await.is_ok(), "the neighbor answers");
    (code, message)
}

#[tokio::test]
async fn an_import_outside_the_contract_is_refused_by_its_name() {
    let (code, message) = refused(guests::text("hostile/imports-outside-contract.wat")).await;
    assert_eq!(code, ErrorCode::ComponentImportForbidden);
    assert!(message.contains("evil:host/thing@1.0.0"), "{message}");
    let (code, message) = refused(guests::text("hostile/imports-unreleased-version.wat")).await;
    assert_eq!(code, ErrorCode::ComponentImportForbidden);
    assert!(message.contains("portcullis:connector/log@9.0.0"), "{message}");
}

#[tokio::test]
async fn a_component_must_export_what_its_world_promises() {
    let (code, message) = refused(guests::text("hostile/exports-nothing.wat")).await;
    assert_eq!(code, ErrorCode::ComponentWorldUnsupported);
    assert!(message.contains("portcullis:connector/capabilities@0.1.0"), "{message}");
    let (code, _) = refused(guests::text("hostile/exports-wrong-types.wat")).await;
    assert_eq!(code, ErrorCode::ComponentWorldUnsupported);
    let world = World::new();
    let owning = Connector { world: "portcullis:connector/authorizing-connector@0.1.0", ..Connector::echo() };
    let (code, message, _) = refusal(&world, &world.request(&owning)).await;
    assert_eq!(code, ErrorCode::ComponentWorldUnsupported);
    assert!(message.contains("portcullis:connector/authorization@0.1.0"), "{message}");
}

#[tokio::test]
async fn what_is_no_component_is_refused() {
    let (code, message) = refused(guests::text("hostile/core-module.wat")).await;
    assert_eq!(code, ErrorCode::ComponentInvalid);
    assert!(message.contains("core WebAssembly module"), "{message}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("component.wasm");
    std::fs::write(&file, b"#!/bin/sh\n").expect("a file");
    assert_eq!(refused(file.clone()).await.0, ErrorCode::ComponentInvalid);
    let mut cut = std::fs::read(Connector::echo().component).expect("echo");
    cut.truncate(cut.len() / 2);
    std::fs::write(&file, cut).expect("a file");
    assert_eq!(refused(file).await.0, ErrorCode::ComponentInvalid);
}

#[tokio::test]
async fn a_wrong_description_is_refused_and_says_what_is_wrong() {
    for (feature, what) in [
        ("loops", "capability_"),
        ("traps", "capability_trapped"),
        ("fails", "does not know what it can do"),
        ("duplicate-name", "twice"),
        ("invalid-name", "no capability name"),
        ("schema-not-json", "no JSON"),
        ("schema-invalid", "no valid JSON Schema"),
        ("schema-not-object", "\"object\""),
        ("schema-remote-ref", "inside the document only"),
        ("ten-thousand", "10000"),
        ("empty", "0 capabilities"),
    ] {
        let (code, message) = refused(guests::component("hostile/describe", &[feature])).await;
        assert_eq!(code, ErrorCode::ComponentDescribeFailed, "{feature}");
        assert!(message.contains(what), "{feature}: {message}");
    }
}

#[tokio::test]
async fn a_failed_update_leaves_the_old_route_answering() {
    let world = World::new();
    world.activate(&Connector::echo()).await.expect("a route");
    let worse = Connector {
        version: "2.0.0",
        component: guests::component("hostile/describe", &["traps"]),
        ..Connector::echo().generation(2)
    };
    let (code, ..) = refusal(&world, &world.request(&worse)).await;
    assert_eq!(code, ErrorCode::ComponentDescribeFailed);
    let response = world.call("echo.echo", json!({"message": "x"})).await.expect("an answer");
    assert_eq!(response.version, "1.0.0");
}

#[tokio::test]
async fn only_the_installed_release_runs() {
    let world = World::new();
    let mut request = world.request(&Connector::echo());
    request.installation = Installation::NotInstalled;
    let (code, _, retryable) = refusal(&world, &request).await;
    assert_eq!((code, retryable), (ErrorCode::InstallFailed, false));
    request.installation =
        Installation::Installing { installed: None, candidate: Some((&request.release).into()) };
    assert!(world.host.reconcile(&request).await.is_ok(), "a candidate may be tried");
}

#[tokio::test]
async fn an_authorization_that_does_not_fit_is_final() {
    let world = World::new();
    let mut request = world.request(&Connector::echo());
    request.authorization = AuthorizationState::Expired;
    let (code, _, retryable) = refusal(&world, &request).await;
    assert_eq!((code, retryable), (ErrorCode::AuthorizationFailed, false));
    assert!(world.host.routes().is_empty());
}

#[tokio::test]
async fn disabling_removes_every_connection_of_the_connector() {
    let world = World::new();
    for account in ["ada", "bob"] {
        world.activate(&Connector::echo().account(account)).await.expect("a route");
    }
    world.activate(&Connector::misbehave()).await.expect("another connector");
    let mut request = world.request(&Connector::echo().generation(2));
    request.enabled = false;
    let receipt = world.host.reconcile(&request).await.expect("a receipt");
    receipt.verify(&request).expect("a receipt that the market accepts");
    assert_eq!(receipt.readiness.state, ReadinessState::Blocked);
    assert_eq!(receipt.readiness.reason_code.as_deref(), Some(REASON_RUNTIME_DISABLED));
    assert_eq!(receipt.release_digest, request.release.release_digest);
    let left: Vec<_> = world.host.routes().into_iter().map(|route| route.connector_key.to_string()).collect();
    assert_eq!(left, ["bad"]);
}

#[tokio::test]
async fn a_generation_of_zero_is_no_generation() {
    let world = World::new();
    let mut request = world.request(&Connector::echo());
    request.generation = generation(0);
    assert_eq!(refusal(&world, &request).await.0, ErrorCode::InvalidRequest);
}
