//! Executing uninstalls (J.4, 85 to 91).

use portcullis::{
    domain::{
        authorization::{Authorization, AuthorizationState},
        error::ErrorCode,
        id::ConnectionId,
        installation::Installation,
        operation::{OperationState, Stage},
    },
    ports::{StateChanges, StateScope},
};

use super::{
    fakes::Fault,
    world::{World, ada, installed_version, key, release, state_name},
};

async fn s085_an_uninstall_takes_the_route_down_and_the_files_away_and_keeps_the_authorization() {
    let world = World::with_echo().await;
    let mut connector = world.stored("echo").await;
    connector.authorization = Authorization::of(AuthorizationState::Connected);
    world.save(connector).await;
    let kept = StateScope {
        account: None,
        connector_key: key("echo"),
        connection_id: ConnectionId::device(&key("echo")),
    };
    let written = StateChanges::from([("cursor".to_owned(), Some(b"7".to_vec()))]);
    world.ledger.apply_state(&kept, &written, 1_024).await.expect("the connector stored something");
    let accepted = world.accept_uninstall("echo").await;
    assert_eq!(state_name(accepted.connector.as_ref().expect("the connector")), "uninstalling");
    world.run(&accepted).await.expect("uninstalled");

    let request = world.host.last();
    assert!(!request.enabled);
    assert_eq!(request.release.version.to_string(), "1.0.0");
    let removed = world.installer.uninstalls.lock().clone();
    assert_eq!((removed.len(), &removed[0].connector_key), (1, &key("echo")));
    assert_eq!(
        (&removed[0].scope, Some(&removed[0].generation)),
        (&ada(), accepted.operation.generation.as_ref())
    );
    let connector = world.stored("echo").await;
    assert_eq!(connector.installation, Installation::NotInstalled);
    assert_eq!(connector.authorization.state, AuthorizationState::Connected);
    assert_eq!(world.store.convergence(&ada(), &key("echo")).await.expect("a reading"), None);
    let digest = release("echo", "1.0.0").release_digest;
    assert_eq!(world.store.installed_release(&key("echo"), &digest).await.expect("a reading"), None);
    assert_eq!(world.ledger.state_value(&kept, "cursor").await.expect("a reading"), None);
    assert_eq!(world.operation(&accepted).await.state, OperationState::Completed);
}

async fn the_files_stay_until_the_route_was_seen_down() {
    let world = World::with_echo().await;
    let accepted = world.accept_uninstall("echo").await;
    world.host.faults.push(Fault::of(ErrorCode::CapabilityDeadlineExceeded));
    world.run(&accepted).await.expect_err("instances are still there");
    assert_eq!(world.operation(&accepted).await.stage, Stage::Deactivating);
    assert!(world.installer.uninstalls.lock().is_empty());
    assert_eq!(state_name(&world.stored("echo").await), "uninstalling");
    world.clock.advance(std::time::Duration::from_secs(3));
    world.run(&accepted).await.expect("uninstalled");
}

async fn s089_files_that_cannot_be_removed_yet_are_removed_later() {
    let world = World::with_echo().await;
    let accepted = world.accept_uninstall("echo").await;
    world.installer.uninstall_faults.push(Fault::of(ErrorCode::Unavailable));
    let error = world.run(&accepted).await.expect_err("a failure");
    assert_eq!((error.code, error.retryable), (ErrorCode::InstallFailed, true));
    let operation = world.operation(&accepted).await;
    assert_eq!(operation.stage, Stage::Removing);
    assert!(operation.is_active());
    let calls = world.host.count();
    world.run(&accepted).await.expect("uninstalled");
    assert_eq!(world.host.count(), calls, "the route is down already");
}

async fn files_that_can_never_be_removed_end_the_operation_and_keep_the_evidence() {
    let world = World::with_echo().await;
    let accepted = world.accept_uninstall("echo").await;
    world.installer.uninstall_faults.push(Fault::of(ErrorCode::ArtifactUnsafeEntry));
    world.run(&accepted).await.expect_err("a failure");
    let OperationState::Failed { failure_code, failure } = world.operation(&accepted).await.state else {
        panic!("it should have ended")
    };
    assert_eq!((failure_code, failure.code), (ErrorCode::InstallFailed, ErrorCode::ArtifactUnsafeEntry));
    let connector = world.stored("echo").await;
    assert_eq!((state_name(&connector), installed_version(&connector)), ("failed", "1.0.0".into()));
    assert!(!world.row("echo").await.desired.enabled, "it does not run again by itself");

    let again = world.accept_uninstall("echo").await;
    world.run(&again).await.expect("uninstalled");
}

async fn an_install_after_a_failed_removal_that_fails_too_runs_what_was_there() {
    let world = World::with_echo().await;
    let removal = world.accept_uninstall("echo").await;
    world.installer.uninstall_faults.push(Fault::of(ErrorCode::ArtifactUnsafeEntry));
    world.run(&removal).await.expect_err("a failure");
    world.installer.install_faults.push(Fault::of(ErrorCode::ArtifactDigestMismatch));
    let accepted = world.accept_install("echo").await;
    world.run(&accepted).await.expect_err("a failure");
    assert_eq!(state_name(&world.stored("echo").await), "installed");
    world.app.converge(&ada(), &key("echo")).await.expect("converged");
    assert!(world.host.last().enabled);
}

async fn what_is_installed_is_removed_though_the_catalog_offers_another() {
    let world = World::with_echo().await;
    world.offer(&[release("echo", "2.0.0")]).await;
    let accepted = world.accept_uninstall("echo").await;
    assert_eq!(accepted.operation.target.as_ref().expect("a target").identity.version.to_string(), "1.0.0");
    world.run(&accepted).await.expect("uninstalled");
    assert_eq!(world.host.last().release.version.to_string(), "1.0.0");
    assert_eq!(world.stored("echo").await.release.version.to_string(), "2.0.0");
}

async fn a_connector_that_changed_under_the_operation_is_not_removed() {
    let world = World::with_echo().await;
    let accepted = world.accept_uninstall("echo").await;
    let mut connector = world.stored("echo").await;
    let installed = connector.installation.installed().expect("installed").clone();
    connector.installation = Installation::Installed { installed, failure_code: None };
    world.save(connector).await;
    let error = world.run(&accepted).await.expect_err("a conflict");
    assert_eq!((error.code, error.retryable), (ErrorCode::RevisionConflict, true));
    assert!(world.installer.uninstalls.lock().is_empty());
    assert!(world.row("echo").await.desired.enabled);
}

on_every_store! {
    s085_an_uninstall_takes_the_route_down_and_the_files_away_and_keeps_the_authorization,
    the_files_stay_until_the_route_was_seen_down,
    s089_files_that_cannot_be_removed_yet_are_removed_later,
    files_that_can_never_be_removed_end_the_operation_and_keep_the_evidence,
    an_install_after_a_failed_removal_that_fails_too_runs_what_was_there,
    what_is_installed_is_removed_though_the_catalog_offers_another,
    a_connector_that_changed_under_the_operation_is_not_removed,
}
