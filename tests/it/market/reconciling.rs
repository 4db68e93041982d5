//! Runtimes brought about on purpose: as an operation, for everything installed, or
//! for one that is broken (J.5, 101 to 104; J.6, 116 to 120).

use portcullis::{
    domain::{
        authorization::AuthorizationState,
        error::ErrorCode,
        id::ConnectionId,
        installation::Installation,
        operation::{OperationKind, OperationState, Stage, Visibility},
    },
    market::Selection,
};

use super::{
    fakes::Fault,
    provider::{held, installed},
    world::{World, ada, bob, key, release, state_name},
};

async fn s101_s102_an_operation_that_does_the_same_is_joined_until_it_has_ended() {
    let world = World::with_echo().await;
    world.scheduler.scheduled.lock().clear();
    let (first, created) = world.app.ensure_reconcile(&ada(), &key("echo")).await.expect("accepted");
    assert!(created);
    assert_eq!((first.kind, first.visibility), (OperationKind::ReconcileRuntime, Visibility::SystemPrivate));
    let generation = first.generation.as_ref().expect("a generation");
    assert_eq!((generation.boot_epoch.as_str(), generation.number), ("boot-1", world.revision().await.0));

    let before = world.state().await;
    let (joined, created) = world.app.ensure_reconcile(&ada(), &key("echo")).await.expect("joined");
    assert_eq!((&joined.operation_id, created), (&first.operation_id, false));
    assert_eq!(world.state().await, before, "joining changes nothing");
    let hints = world.scheduler.scheduled.lock().clone();
    assert_eq!((hints.len(), &hints[0]), (1, &first.operation_id), "it is scheduled once");

    let calls = world.host.count();
    world.app.execute(&first.operation_id).await.expect("reconciled");
    assert_eq!(world.host.count(), calls + 1);
    let (second, created) = world.app.ensure_reconcile(&ada(), &key("echo")).await.expect("accepted");
    assert!(created);
    assert_ne!(second.operation_id, first.operation_id);
}

async fn s103_an_operation_for_somebody_else_or_something_else_is_not_joined() {
    let world = World::with_echo().await;
    let echo = key("echo");
    world.app.ensure_reconcile(&bob(), &echo).await.expect("accepted");
    let scope = ada();
    world.refused(world.app.ensure_reconcile(&scope, &echo), ErrorCode::OperationInProgress, true).await;

    let world = World::with_echo().await;
    world.accept_uninstall("echo").await;
    world.refused(world.app.ensure_reconcile(&scope, &echo), ErrorCode::OperationInProgress, true).await;
}

async fn s104_a_runtime_that_may_not_run_is_reconciled_and_its_installation_stays() {
    let world = installed().await;
    let installation = world.stored("mail").await.installation;
    let command = world.command("one", "mail").await;
    let accepted = world.app.accept_reconcile(command.clone()).await.expect("accepted");
    assert_eq!(accepted.operation.visibility, Visibility::SystemPrivate);
    let replayed = world.app.accept_reconcile(command).await.expect("replayed");
    assert_eq!(replayed.operation.operation_id, accepted.operation.operation_id);
    world.run(&accepted).await.expect("reconciled");
    assert!(!world.host.last().enabled);
    let operation = world.operation(&accepted).await;
    assert_eq!((operation.state, operation.stage), (OperationState::Completed, Stage::Completed));
    assert_eq!(world.stored("mail").await.installation, installation);
}

async fn a_runtime_that_does_not_follow_keeps_its_operation_and_its_installation() {
    let world = World::with_echo().await;
    let installation = world.stored("echo").await.installation;
    let (operation, _) = world.app.ensure_reconcile(&ada(), &key("echo")).await.expect("accepted");
    world.host.faults.push(Fault::of(ErrorCode::Unavailable));
    let error = world.app.execute(&operation.operation_id).await.expect_err("a failure");
    assert_eq!((error.code, error.retryable), (ErrorCode::InstallFailed, true));
    let stored = world.store.operation(&operation.operation_id).await.expect("a reading").expect("it");
    assert!(stored.is_active());
    assert_eq!(stored.stage, Stage::RuntimePending);

    world
        .host
        .refuses
        .lock()
        .insert(release("echo", "1.0.0").release_digest, Fault::of(ErrorCode::ComponentInvalid));
    world.clock.advance(std::time::Duration::from_secs(3));
    world.app.execute(&operation.operation_id).await.expect_err("it can never run");
    let stored = world.store.operation(&operation.operation_id).await.expect("a reading").expect("it");
    assert!(matches!(stored.state, OperationState::Failed { failure_code: ErrorCode::InstallFailed, .. }));
    assert_eq!(world.stored("echo").await.installation, installation);
}

async fn s116_what_is_installed_starts_above_its_revision_and_leaves_no_operation() {
    let mut world = World::with_echo().await;
    world.reboot();
    let revision = world.stored("echo").await.revision;
    let failures = world.app.reconcile_installed(&ada(), Selection::All).await.expect("reconciled");
    assert!(failures.is_empty(), "{failures:?}");
    let request = world.host.last();
    assert_eq!(request.generation.number, revision.0 + 1);
    assert_eq!(request.generation.boot_epoch.as_str(), "boot-2");
    assert_eq!(request.connection_id, ConnectionId::device(&key("echo")));
    assert_eq!(world.app.recoverable_operations().await.expect("operations"), []);
}

async fn s117_fencing_and_starting_go_up_and_up() {
    let mut world = World::with_echo().await;
    world.reboot();
    let mut above = 0;
    for _ in 0..2 {
        world.app.fence_installed(&ada()).await.expect("fenced");
        let fence = world.host.deactivated.lock().last().cloned().expect("a fence").generation.number;
        assert!(fence > above);
        world.app.reconcile_installed(&ada(), Selection::All).await.expect("reconciled");
        above = world.host.last().generation.number;
        assert_eq!(above, fence + 1);
    }
}

async fn s118_what_is_off_and_what_is_on_are_both_reconciled() {
    let mut world = installed().await;
    world.offer(&[super::provider::local("mail", "1.0.0"), release("echo", "1.0.0")]).await;
    world.install("echo").await;
    world.reboot();
    world.host.reconciled.lock().clear();
    let failures = world.app.reconcile_installed(&ada(), Selection::All).await.expect("reconciled");
    assert!(failures.is_empty(), "{failures:?}");
    let asked: Vec<_> = world
        .host
        .reconciled
        .lock()
        .iter()
        .map(|request| (request.release.connector_key.to_string(), request.enabled))
        .collect();
    assert_eq!(asked, [("cloud".into(), false), ("echo".into(), true), ("mail".into(), false)]);
}

async fn s119_one_that_fails_is_told_and_the_others_start() {
    let mut world = World::with_echo().await;
    world.offer(&[release("echo", "1.0.0"), release("alpha", "1.0.0"), release("zulu", "1.0.0")]).await;
    world.install("alpha").await;
    world.install("zulu").await;
    world.reboot();
    let echo = release("echo", "1.0.0").release_digest;
    world.host.refuses.lock().insert(echo, Fault::of(ErrorCode::ComponentInvalid));
    let failures = world.app.reconcile_installed(&ada(), Selection::All).await.expect("reconciled");
    let told: Vec<_> = failures.iter().map(|(key, error)| (key.as_str(), error.innermost().code)).collect();
    assert_eq!(told, [("echo", ErrorCode::ComponentInvalid)]);
    for (name, runs) in [("alpha", true), ("echo", false), ("zulu", true)] {
        assert_eq!(world.row(name).await.is_converged(world.app.boot_epoch()), runs, "{name}");
    }
}

async fn a_release_that_is_not_known_any_more_is_told_and_the_others_start() {
    let mut world = World::with_echo().await;
    world.offer(&[release("echo", "1.0.0"), release("feeds", "1.0.0")]).await;
    world.install("feeds").await;
    let mut connector = world.stored("echo").await;
    let Installation::Installed { installed, .. } = &mut connector.installation else { panic!("installed") };
    installed.identity.release_digest = release("other", "1.0.0").release_digest;
    world.save(connector).await;
    world.reboot();
    let failures = world.app.reconcile_installed(&ada(), Selection::All).await.expect("reconciled");
    let told: Vec<_> =
        failures.iter().map(|(key, error)| (key.as_str(), error.code, error.retryable)).collect();
    assert_eq!(told, [("echo", ErrorCode::Unavailable, false)]);
    assert!(world.row("feeds").await.is_converged(world.app.boot_epoch()));
}

async fn s120_what_was_installed_is_started_whatever_the_catalog_offers() {
    let mut world = World::with_echo().await;
    world.offer(&[release("echo", "2.0.0")]).await;
    world.reboot();
    let failures = world.app.reconcile_installed(&ada(), Selection::All).await.expect("reconciled");
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(world.host.last().release.version.to_string(), "1.0.0");
}

async fn a_runtime_is_restarted_on_request_and_otherwise_left_alone_where_it_is_right() {
    let world = World::with_echo().await;
    let (before, calls) = (world.state().await, world.host.count());
    world.app.reconcile_runtime(&ada(), &key("echo")).await.expect("it runs");
    assert_eq!((world.state().await, world.host.count()), (before, calls));
    world.app.restart_runtime(&ada(), &key("echo")).await.expect("restarted");
    assert_eq!(world.host.count(), calls + 1);
    assert!(world.row("echo").await.is_converged(world.app.boot_epoch()));
}

async fn what_is_not_installed_is_passed_over() {
    let world = World::with_echo().await;
    world.accept_uninstall("echo").await;
    let (before, calls) = (world.state().await, world.host.count());
    for name in ["echo", "unknown"] {
        world.app.restart_runtime(&ada(), &key(name)).await.expect("nothing to do");
    }
    let failures = world.app.reconcile_installed(&ada(), Selection::All).await.expect("nothing to do");
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!((world.state().await, world.host.count()), (before, calls));
}

async fn s087_only_what_runs_elsewhere_on_an_account_follows_its_truth() {
    let world = installed().await;
    world.hold(held("cloud", AuthorizationState::Connected, Some("one"))).await;
    let (_, calls) =
        (world.app.set_authorization_ready(&super::provider::account(), true), world.host.count());
    let failures =
        world.app.reconcile_installed(&ada(), Selection::RemoteAuthorized).await.expect("reconciled");
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(world.host.count(), calls + 1);
    assert_eq!(world.host.last().release.connector_key, key("cloud"));

    let accepted = world.accept_uninstall("cloud").await;
    world.run(&accepted).await.expect("uninstalled");
    let (before, calls) = (world.state().await, world.host.count());
    let failures =
        world.app.reconcile_installed(&ada(), Selection::RemoteAuthorized).await.expect("nothing to do");
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!((world.state().await, world.host.count()), (before, calls));
    assert_eq!(state_name(&world.stored("cloud").await), "not_installed");
}

async fn a_runtime_that_cannot_be_shown_is_not_switched() {
    let world = World::with_echo().await;
    world.offer(&[release("other", "1.0.0")]).await;
    let command = world.command("off", "echo").await;
    world.refused(world.app.set_runtime_enabled(command, false), ErrorCode::NotFound, false).await;
}

on_every_store! {
    a_runtime_that_cannot_be_shown_is_not_switched,
    s101_s102_an_operation_that_does_the_same_is_joined_until_it_has_ended,
    s103_an_operation_for_somebody_else_or_something_else_is_not_joined,
    s104_a_runtime_that_may_not_run_is_reconciled_and_its_installation_stays,
    a_runtime_that_does_not_follow_keeps_its_operation_and_its_installation,
    s116_what_is_installed_starts_above_its_revision_and_leaves_no_operation,
    s117_fencing_and_starting_go_up_and_up,
    s118_what_is_off_and_what_is_on_are_both_reconciled,
    s119_one_that_fails_is_told_and_the_others_start,
    a_release_that_is_not_known_any_more_is_told_and_the_others_start,
    s120_what_was_installed_is_started_whatever_the_catalog_offers,
    a_runtime_is_restarted_on_request_and_otherwise_left_alone_where_it_is_right,
    what_is_not_installed_is_passed_over,
    s087_only_what_runs_elsewhere_on_an_account_follows_its_truth,
}
