//! Executing installs, updates and repairs (J.4, 69 to 84 and 90, 91).

use portcullis::domain::{
    convergence::ConnectorRuntime,
    error::{Error, ErrorCode},
    installation::Installation,
    operation::{Operation, OperationFailure, OperationState, Stage},
};

use super::{
    fakes::Fault,
    world::{World, ada, altered, installed_version, key, release, state_name},
};

async fn offered() -> World {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0")]).await;
    world
}

/// A world with echo 1.0.0 that offers 2.0.0.
async fn with_update() -> World {
    let world = World::with_echo().await;
    world.offer(&[release("echo", "2.0.0")]).await;
    world
}

fn last_failure(operation: &Operation) -> &OperationFailure {
    match &operation.state {
        OperationState::Running { last_failure: Some(failure) } => failure,
        other => panic!("it should wait for its next attempt: {other:?}"),
    }
}

fn failed(operation: &Operation) -> (ErrorCode, ErrorCode) {
    match &operation.state {
        OperationState::Failed { failure_code, failure } => (*failure_code, failure.code),
        other => panic!("it should have failed: {other:?}"),
    }
}

fn install_failed(outcome: Result<(), Error>, retryable: bool) {
    let error = outcome.expect_err("a failure");
    assert_eq!((error.code, error.retryable), (ErrorCode::InstallFailed, retryable), "{error}");
}

async fn s069_s075_an_install_puts_in_place_starts_commits_and_is_observed() {
    let world = offered().await;
    let accepted = world.accept_install("echo").await;
    world.run(&accepted).await.expect("installed");

    let connector = world.stored("echo").await;
    let Installation::Installed { installed, failure_code: None } = &connector.installation else {
        panic!("it should be installed: {:?}", connector.installation)
    };
    assert_eq!(installed.identity.version.to_string(), "1.0.0");
    assert_eq!(installed.installed_at, portcullis::ports::Clock::now(&*world.clock));
    let operation = world.operation(&accepted).await;
    assert_eq!((&operation.state, operation.stage), (&OperationState::Completed, Stage::Completed));
    assert_eq!(operation.lease, None, "the lease is given back");
    assert_eq!((world.host.count(), world.installer.commits.lock().len()), (1, 1));

    let installs = world.installer.installs.lock().clone();
    assert_eq!(installs.len(), 1);
    assert_eq!(installs[0].scope, ada());
    assert_eq!(Some(&installs[0].generation), accepted.operation.generation.as_ref());

    let row = world.row("echo").await;
    assert!(row.is_converged(world.app.boot_epoch()));
    let request = world.host.last();
    assert_eq!(request.connection_id.as_str(), "device-echo");
    assert_eq!(request.operation_id.as_str(), format!("runtime/boot-1/echo/{}", row.desired.generation));
    assert!(request.generation.number > accepted.revision.0, "above every fence at an earlier revision");
    let (_, runtime) = world.app.connector_view(&ada(), &key("echo")).await.expect("a view");
    assert_eq!(runtime, Some(ConnectorRuntime::Started));
}

async fn s070_a_transient_error_of_the_installer_is_tried_again() {
    let world = offered().await;
    let accepted = world.accept_install("echo").await;
    world.installer.install_faults.push(Fault::of(ErrorCode::ArtifactUnavailable));
    install_failed(world.run(&accepted).await, true);
    let operation = world.operation(&accepted).await;
    assert_eq!(operation.stage, Stage::Installing);
    assert_eq!(last_failure(&operation).code, ErrorCode::ArtifactUnavailable);
    assert_eq!(operation.lease, None);
    assert_eq!(state_name(&world.stored("echo").await), "installing");

    world.run(&accepted).await.expect("installed");
    assert_eq!(world.operation(&accepted).await.attempt, 2);
    assert_eq!(installed_version(&world.stored("echo").await), "1.0.0");
}

async fn s071_s083_a_permanent_error_ends_a_fresh_install_and_leaves_nothing() {
    let world = offered().await;
    let accepted = world.accept_install("echo").await;
    world.installer.install_faults.push(Fault::of(ErrorCode::ArtifactDigestMismatch));
    install_failed(world.run(&accepted).await, false);

    let operation = world.operation(&accepted).await;
    assert_eq!(failed(&operation), (ErrorCode::InstallFailed, ErrorCode::ArtifactDigestMismatch));
    assert_eq!(operation.stage, Stage::Failed);
    let connector = world.stored("echo").await;
    let failure_code = ErrorCode::InstallFailed.into();
    assert_eq!(connector.installation, Installation::Failed { failure_code, installed: None });
    assert_eq!(world.store.convergence(&ada(), &key("echo")).await.expect("a reading"), None);
    assert_eq!(world.host.count(), 0, "nothing of it ran");
    assert_eq!(world.installer.uninstalls.lock().len(), 1, "its files are cleared away");

    world.install("echo").await;
}

async fn s072_a_release_that_cannot_be_made_current_is_never_called_installed() {
    for (code, retryable) in [(ErrorCode::Unavailable, true), (ErrorCode::ArtifactMalformed, false)] {
        let world = offered().await;
        let accepted = world.accept_install("echo").await;
        world.installer.commit_faults.push(Fault::of(code));
        install_failed(world.run(&accepted).await, retryable);
        let connector = world.stored("echo").await;
        assert!(connector.installation.installed().is_none(), "{:?}", connector.installation);
        if !retryable {
            let fenced = world.host.deactivated.lock().clone();
            assert_eq!(fenced.len(), 1, "the candidate's route is taken down");
            assert_eq!(fenced[0].connection_id, None);
            assert!(fenced[0].generation.number >= world.host.last().generation.number);
        }
    }
}

async fn a_route_that_cannot_be_taken_down_keeps_its_operation_from_ending() {
    let world = offered().await;
    let accepted = world.accept_install("echo").await;
    world.installer.commit_faults.push(Fault::of(ErrorCode::ArtifactMalformed));
    world.host.deactivate_faults.push(Fault::of(ErrorCode::CapabilityDeadlineExceeded));
    world.run(&accepted).await.expect_err("a failure");
    let operation = world.operation(&accepted).await;
    assert_eq!(last_failure(&operation).code, ErrorCode::CapabilityDeadlineExceeded);
    assert_eq!(state_name(&world.stored("echo").await), "installing");
}

async fn s074_a_connector_that_needs_an_authorization_is_installed_and_does_not_run() {
    let world = World::new().await;
    world
        .offer(&[altered("echo", "1.0.0", |manifest| manifest["authorizationKind"] = "oauth2".into())])
        .await;
    world.install("echo").await;
    let request = world.host.last();
    assert!(!request.enabled);
    assert!(request.connection_id.as_str().starts_with("account-"));
    let (connector, runtime) = world.app.connector_view(&ada(), &key("echo")).await.expect("a view");
    assert_eq!(state_name(&connector), "installed");
    assert_eq!(runtime, Some(ConnectorRuntime::Stopped));
}

async fn s077_a_receipt_for_something_else_ends_the_operation() {
    let spoilers: [fn(&mut portcullis::domain::runtime::ReleaseReceipt); 5] = [
        |receipt| receipt.operation_id = "other".parse().expect("an id"),
        |receipt| receipt.connector_key = key("other"),
        |receipt| receipt.version = "9.9.9".parse().expect("a version"),
        |receipt| receipt.release_digest = receipt.inventory_digest,
        |receipt| receipt.artifact_sha256 = receipt.inventory_digest,
    ];
    for spoil in spoilers {
        let world = offered().await;
        *world.installer.spoil.lock() = Some(spoil);
        let accepted = world.accept_install("echo").await;
        install_failed(world.run(&accepted).await, false);
        failed(&world.operation(&accepted).await);
        assert_eq!(world.host.count(), 0);
    }
}

async fn s078_what_was_accepted_is_installed_whatever_the_catalog_offers_meanwhile() {
    let world = offered().await;
    let accepted = world.accept_install("echo").await;
    world.offer(&[release("echo", "2.0.0")]).await;
    world.run(&accepted).await.expect("installed");
    let connector = world.stored("echo").await;
    assert_eq!(installed_version(&connector), "1.0.0");
    assert_eq!(connector.release.version.to_string(), "2.0.0");
}

async fn s079_s080_an_update_whose_runtime_does_not_start_yet_is_promoted_when_it_does() {
    let mut world = with_update().await;
    let accepted = world.accept_install("echo").await;
    world.host.faults.push(Fault::of(ErrorCode::Unavailable));
    install_failed(world.run(&accepted).await, true);
    let connector = world.stored("echo").await;
    assert_eq!(state_name(&connector), "updating");
    assert_eq!(installed_version(&connector), "1.0.0");
    assert_eq!(connector.installation.candidate().expect("a candidate").version.to_string(), "2.0.0");
    let operation = world.operation(&accepted).await;
    assert_eq!(operation.stage, Stage::RuntimePending);
    assert_eq!(last_failure(&operation).code, ErrorCode::Unavailable);
    assert_eq!(world.installer.commits.lock().len(), 1, "the release before it stays current");

    world.reboot();
    world.app.recover().await.expect("recovered");
    world.clock.advance(std::time::Duration::from_secs(3));
    world.run(&accepted).await.expect("updated");
    let connector = world.stored("echo").await;
    assert_eq!((state_name(&connector), installed_version(&connector)), ("installed", "2.0.0".into()));
    assert_eq!(connector.installation.candidate(), None);
    assert_eq!(world.installer.commits.lock().len(), 2);
}

async fn s084_an_update_that_can_never_run_returns_to_the_release_before_it() {
    let world = with_update().await;
    let bad = release("echo", "2.0.0").release_digest;
    world.host.refuses.lock().insert(bad, Fault::of(ErrorCode::ComponentImportForbidden));
    let accepted = world.accept_install("echo").await;
    install_failed(world.run(&accepted).await, false);

    let operation = world.operation(&accepted).await;
    assert_eq!(failed(&operation), (ErrorCode::InstallFailed, ErrorCode::ComponentImportForbidden));
    let connector = world.stored("echo").await;
    let Installation::Installed { installed, failure_code } = &connector.installation else {
        panic!("it should be installed: {:?}", connector.installation)
    };
    assert_eq!(installed.identity.version.to_string(), "1.0.0");
    assert_eq!(failure_code.as_ref(), Some(&ErrorCode::InstallFailed.into()));
    assert!(world.installer.uninstalls.lock().is_empty(), "the files of 1.0.0 stay");

    // It is planned back and starts without anybody's help.
    assert_eq!(world.app.due_convergences(&ada(), 10).await.expect("due"), [key("echo")]);
    let above = world.host.last().generation.number;
    world.app.converge(&ada(), &key("echo")).await.expect("converged");
    let request = world.host.last();
    assert_eq!(request.release.version.to_string(), "1.0.0");
    assert!(request.enabled && request.generation.number > above);
}

async fn an_update_that_fails_keeps_the_users_switch_off() {
    let world = World::with_echo().await;
    world.app.set_runtime_enabled(world.command("off", "echo").await, false).await.expect("off");
    world.app.converge(&ada(), &key("echo")).await.expect("converged");
    world.offer(&[release("echo", "2.0.0")]).await;
    world.installer.commit_faults.push(Fault::of(ErrorCode::ArtifactMalformed));
    let accepted = world.accept_install("echo").await;
    install_failed(world.run(&accepted).await, false);
    let desired = world.row("echo").await.desired;
    assert_eq!((desired.activation_enabled, desired.enabled), (Some(false), false));
    assert_eq!(desired.release_digest, release("echo", "1.0.0").release_digest);
}

async fn an_update_that_never_got_to_its_runtime_does_not_touch_the_one_that_runs() {
    let world = with_update().await;
    let before = world.row("echo").await;
    world.installer.install_faults.push(Fault::of(ErrorCode::ArtifactDigestMismatch));
    let accepted = world.accept_install("echo").await;
    install_failed(world.run(&accepted).await, false);
    assert_eq!(world.row("echo").await, before);
    assert_eq!(state_name(&world.stored("echo").await), "installed");
}

async fn an_update_installs_while_the_release_before_it_is_called_installed() {
    let world = with_update().await;
    let accepted = world.accept_install("echo").await;
    world.host.gate.close();
    let (app, id) = (world.app.clone(), accepted.operation.operation_id.clone());
    let updating = tokio::spawn(async move { app.execute(&id).await });
    world.host.gate.arrival().await;
    let connector = world.stored("echo").await;
    assert_eq!((state_name(&connector), installed_version(&connector)), ("updating", "1.0.0".into()));
    world.host.gate.open();
    updating.await.expect("no panic").expect("updated");
    assert_eq!(installed_version(&world.stored("echo").await), "2.0.0");
}

async fn s090_a_crash_after_the_receipt_is_taken_up_where_it_was() {
    let mut world = offered().await;
    let accepted = world.accept_install("echo").await;
    world.host.gate.close();
    let (app, id) = (world.app.clone(), accepted.operation.operation_id.clone());
    let crashing = tokio::spawn(async move { app.execute(&id).await });
    world.host.gate.arrival().await;
    crashing.abort();
    crashing.await.expect_err("it was cut off");
    world.host.gate.open();
    assert!(world.operation(&accepted).await.execution.release_receipt.is_some());

    world.reboot();
    world.clock.advance(std::time::Duration::from_secs(31));
    world.app.recover().await.expect("recovered");
    world.run(&accepted).await.expect("installed");
    assert_eq!(installed_version(&world.stored("echo").await), "1.0.0");
    assert_eq!(world.host.last().generation.boot_epoch.as_str(), "boot-2");
}

async fn s091_the_same_release_is_installed_again() {
    let world = World::with_echo().await;
    let calls = world.host.count();
    world.install("echo").await;
    assert_eq!(installed_version(&world.stored("echo").await), "1.0.0");
    assert_eq!(world.host.count(), calls + 1, "and started anew");
}

async fn an_install_waits_for_the_publication_gate() {
    let world = offered().await;
    *world.host.spoil.lock() = Some(|receipt| {
        receipt.readiness = portcullis::domain::runtime::RuntimeReadiness::blocked(
            portcullis::domain::runtime::REASON_PUBLICATION_GATE_CLOSED,
        );
    });
    let accepted = world.accept_install("echo").await;
    let error = world.run(&accepted).await.expect_err("the gate is closed");
    assert!(error.retryable, "{error}");
    assert_eq!(world.operation(&accepted).await.stage, Stage::RuntimePending);
    *world.host.spoil.lock() = None;
    world.clock.advance(std::time::Duration::from_secs(3));
    world.run(&accepted).await.expect("installed");
}

on_every_store! {
    s069_s075_an_install_puts_in_place_starts_commits_and_is_observed,
    s070_a_transient_error_of_the_installer_is_tried_again,
    s071_s083_a_permanent_error_ends_a_fresh_install_and_leaves_nothing,
    s072_a_release_that_cannot_be_made_current_is_never_called_installed,
    a_route_that_cannot_be_taken_down_keeps_its_operation_from_ending,
    s074_a_connector_that_needs_an_authorization_is_installed_and_does_not_run,
    s077_a_receipt_for_something_else_ends_the_operation,
    s078_what_was_accepted_is_installed_whatever_the_catalog_offers_meanwhile,
    s079_s080_an_update_whose_runtime_does_not_start_yet_is_promoted_when_it_does,
    s084_an_update_that_can_never_run_returns_to_the_release_before_it,
    an_update_that_fails_keeps_the_users_switch_off,
    an_update_that_never_got_to_its_runtime_does_not_touch_the_one_that_runs,
    an_update_installs_while_the_release_before_it_is_called_installed,
    s090_a_crash_after_the_receipt_is_taken_up_where_it_was,
    s091_the_same_release_is_installed_again,
    an_install_waits_for_the_publication_gate,
}
