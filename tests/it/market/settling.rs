//! Settling attempts that were left open (J.8, 169 to 175 and 177).

use std::{sync::atomic::Ordering, time::Duration};

use portcullis::{
    domain::{
        authorization::{AuthorizationObservation, AuthorizationState, Resolution},
        error::ErrorCode,
        operation::{Operation, OperationKind, OperationState},
    },
    market::authorize::{AuthorizationIntent, ReconciledAuthorizations},
};

use super::{
    fakes::Fault,
    provider::{account, connection, held, installed, local},
    world::{World, ada, key, release},
};

async fn settle(world: &World) -> ReconciledAuthorizations {
    world.app.reconcile_authorizations(&ada()).await.expect("a round")
}

/// A round in which nothing failed and one attempt ended.
async fn settled(world: &World) -> AuthorizationIntent {
    let mut round = settle(world).await;
    assert!(round.failures.is_empty(), "{:?}", round.failures);
    assert_eq!(round.intents.len(), 1, "{:?}", round.intents);
    round.intents.remove(0)
}

fn says(world: &World, observation: AuthorizationObservation) {
    *world.authorization.says.lock() = Some(observation);
}

fn failed(code: &str) -> AuthorizationObservation {
    AuthorizationObservation::Failed { failure_code: Some(code.into()) }
}

async fn s169_an_account_that_is_connected_needs_no_question() {
    let world = installed().await;
    let attempt = world.pending("one", "cloud").await;
    world.accounts.say(1, vec![held("cloud", AuthorizationState::Connected, Some("server-1"))]);
    let truth = world.accounts.truth.lock().clone().expect("a truth");
    let applied = world.app.apply_authorizations(&account(), &truth).await.expect("applied");
    assert_eq!(applied.pending_receipts, [key("cloud")]);

    let intent = settled(&world).await;
    assert_eq!(intent.resolution, Resolution::AccountStateConverged);
    assert_eq!(intent.operation_id, attempt.operation.operation_id);
    assert_eq!(world.authorization.observed.lock().len(), 0);
    assert_eq!(world.resolution(&attempt.operation).await, None, "the host settles it, after the runtime");

    world.app.resolve_authorization(&intent).await.expect("settled");
    assert_eq!(world.resolution(&attempt.operation).await, Some(Resolution::AccountStateConverged));
    assert!(settle(&world).await.intents.is_empty());
    let other = AuthorizationIntent { resolution: Resolution::ProviderFailed, ..intent };
    world.app.resolve_authorization(&other).await.expect("nothing to do");
    let now = world.resolution(&attempt.operation).await;
    assert_eq!(now, Some(Resolution::AccountStateConverged), "what has ended never changes");
}

async fn s170_a_local_attempt_that_is_connected_moves_device_and_account() {
    let world = installed().await;
    let attempt = world.pending("one", "mail").await;
    says(&world, AuthorizationObservation::Connected { connection_id: connection("connection-1") });
    let before = world.events().await.len();
    let intent = settled(&world).await;
    assert_eq!(intent.resolution, Resolution::ProviderConnected);
    assert_eq!(world.stored("mail").await.authorization.state, AuthorizationState::Connected);
    let projection = world.projection("mail").await.expect("a projection");
    assert_eq!(projection.state, AuthorizationState::Connected);
    // One for the device, one for the account.
    assert_eq!(world.events().await.len(), before + 2);
    assert_eq!(world.resolution(&attempt.operation).await, None);
    world.app.reconcile_runtime(&ada(), &key("mail")).await.expect("the runtime follows");
    assert!(world.host.last().enabled);
}

async fn s171_s177_a_cancellation_that_was_interrupted_is_finished_after_a_restart() {
    let mut world = installed().await;
    let attempt = world.pending("one", "mail").await;
    world.authorization.cancel_faults.push(Fault::of(ErrorCode::UpstreamUnavailable));
    world.app.cancel_authorization(&ada(), &key("mail")).await.expect_err("not ended");
    world.reboot();
    assert_eq!(world.resolution(&attempt.operation).await, Some(Resolution::Canceling));

    world.authorization.cancel_faults.push(Fault::of(ErrorCode::UpstreamUnavailable));
    let round = settle(&world).await;
    assert_eq!((round.intents.len(), round.failures.len()), (0, 1));
    let round = settle(&world).await;
    assert_eq!((round.intents.len(), round.failures.len()), (0, 0));
    assert_eq!(world.resolution(&attempt.operation).await, Some(Resolution::Superseded));
    assert_eq!(world.authorization.cancelled.lock().len(), 3);
    assert_eq!(world.authorization.observed.lock().len(), 0);
}

async fn s172_an_attempt_whose_time_is_over_has_failed_unasked() {
    let world = installed().await;
    world.pending("one", "mail").await;
    world.clock.advance(Duration::from_secs(600));
    let intent = settled(&world).await;
    assert_eq!(intent.resolution, Resolution::ProviderFailed);
    assert_eq!(world.authorization.observed.lock().len(), 0);
    let device = world.stored("mail").await.authorization;
    assert_eq!(device.state, AuthorizationState::Failed);
    assert_eq!(device.failure_code.as_deref(), Some("connector_authorization_timeout"));
    let projection = world.projection("mail").await.expect("a projection");
    assert_eq!(projection.failure_code.as_deref(), Some("connector_authorization_timeout"));
}

async fn an_attempt_a_moment_before_its_time_is_asked_about() {
    let world = installed().await;
    world.pending("one", "mail").await;
    world.clock.advance(Duration::from_millis(599_999));
    assert!(settle(&world).await.intents.is_empty());
    assert_eq!(world.authorization.observed.lock().len(), 1);
}

async fn s173_settling_schedules_nothing() {
    let mut world = installed().await;
    world.pending("one", "mail").await;
    world.reboot();
    says(&world, AuthorizationObservation::Connected { connection_id: connection("connection-1") });
    let scheduled = world.scheduler.count();
    settled(&world).await;
    assert_eq!(world.scheduler.count(), scheduled);
    assert_eq!(world.projection("mail").await.expect("a projection").state, AuthorizationState::Connected);
}

async fn s174_a_failure_by_supersession_is_told_apart() {
    for (code, expected) in [
        ("provider_attempt_Superseded", Resolution::Superseded),
        ("provider_said_no", Resolution::ProviderFailed),
    ] {
        let world = installed().await;
        world.pending("one", "mail").await;
        says(&world, failed(code));
        assert_eq!(settled(&world).await.resolution, expected);
        let device = world.stored("mail").await.authorization;
        assert_eq!(device.failure_code.as_deref(), Some(code));
    }
}

async fn a_failure_without_a_code_gets_the_general_one() {
    let world = installed().await;
    world.pending("one", "mail").await;
    says(&world, AuthorizationObservation::Failed { failure_code: None });
    settled(&world).await;
    let device = world.stored("mail").await.authorization;
    assert_eq!(device.failure_code.as_deref(), Some("connector_authorization_failed"));
}

async fn s175_an_attempt_that_changed_while_it_was_asked_about_is_left_for_the_next_round() {
    let world = installed().await;
    let attempt = world.pending("one", "mail").await;
    says(&world, AuthorizationObservation::Connected { connection_id: connection("connection-1") });
    world.authorization.observe_gate.close();
    let app = world.app.clone();
    let round = tokio::spawn(async move { app.reconcile_authorizations(&ada()).await });
    world.authorization.observe_gate.arrival().await;
    world.app.cancel_authorization(&ada(), &key("mail")).await.expect("cancelled");
    world.authorization.observe_gate.open();
    let round = round.await.expect("no panic").expect("a round");
    assert!(round.intents.is_empty() && round.failures.is_empty());
    assert_eq!(world.resolution(&attempt.operation).await, Some(Resolution::Superseded));
    assert_eq!(world.stored("mail").await.authorization.state, AuthorizationState::Disconnected);
    let projection = world.projection("mail").await.expect("a projection");
    assert_eq!(projection.state, AuthorizationState::Disconnected, "a late answer published nothing");
}

async fn one_attempt_that_cannot_be_told_about_does_not_keep_the_others() {
    let world = installed().await;
    world.pending("one", "cloud").await;
    world.pending("two", "mail").await;
    says(&world, failed("provider_said_no"));
    world.authorization.observe_faults.push(Fault::of(ErrorCode::UpstreamUnavailable));
    let round = settle(&world).await;
    assert_eq!((round.intents.len(), round.failures.len()), (1, 1));
}

async fn an_attempt_of_a_device_that_waits_no_more_is_left_alone() {
    let world = installed().await;
    world.pending("one", "mail").await;
    let mut mail = world.stored("mail").await;
    mail.authorization.state = AuthorizationState::Disconnected;
    world.save(mail).await;
    let before = world.state().await;
    assert!(settle(&world).await.intents.is_empty());
    assert_eq!(world.state().await, before);
    assert_eq!(world.authorization.observed.lock().len(), 0);
}

async fn a_provider_that_cannot_observe_settles_nothing() {
    let world = installed().await;
    world.pending("one", "mail").await;
    world.authorization.cannot_observe.store(true, Ordering::SeqCst);
    world.clock.advance(Duration::from_secs(6000));
    let before = world.state().await;
    assert!(settle(&world).await.intents.is_empty());
    assert_eq!(world.state().await, before);
}

/// What is delisted and nobody installed is deleted, an open attempt or not.
async fn an_attempt_ends_when_its_connector_is_taken_off_the_catalog() {
    for cannot_cancel in [false, true] {
        let world = World::with_remote().await;
        world.authorization.cannot_cancel.store(cannot_cancel, Ordering::SeqCst);
        world.offer(&[local("mail", "1.0.0"), release("echo", "1.0.0")]).await;
        let attempt = world.pending("one", "mail").await;
        world.offer(&[release("echo", "1.0.0")]).await;

        let round = settle(&world).await;
        assert!(round.intents.is_empty() && round.failures.is_empty(), "{:?}", round.failures);
        assert_eq!(world.resolution(&attempt.operation).await, Some(Resolution::Superseded));
        assert_eq!(world.authorization.cancelled.lock().len(), usize::from(!cannot_cancel));
        assert_eq!(world.authorization.observed.lock().len(), 0);
    }
}

async fn s097_s098_a_command_of_an_older_boot_is_failed_and_the_others_are_scheduled() {
    let mut world = installed().await;
    world.authorization.begin_gate.close();
    let begin = world.begin("one", "mail").await;
    let app = world.app.clone();
    let hanging = tokio::spawn(async move { app.begin_authorization(begin).await });
    world.authorization.begin_gate.arrival().await;
    let uninstall = world.accept_uninstall("cloud").await;
    let hinted = world.scheduler.count();

    // While it runs, a recovery leaves it alone (hazard 6).
    world.app.recover().await.expect("recovered");
    let running = world.app.recoverable_operations().await.expect("operations");
    let begun = |one: &&Operation| one.kind == OperationKind::StartAuthorization;
    let operation = running.iter().find(begun).expect("it runs on").clone();
    assert_eq!(world.scheduler.count(), hinted + 1, "the uninstall, and it alone");
    // So does another daemon, as long as its lease holds.
    world.beside().recover().await.expect("recovered");
    let still = world.store.operation(&operation.operation_id).await.expect("a reading").expect("it");
    assert!(still.is_active());

    hanging.abort();
    world.reboot();
    world.clock.advance(Duration::from_secs(31));
    world.app.recover().await.expect("recovered");
    let ended = world.store.operation(&operation.operation_id).await.expect("a reading").expect("it");
    assert!(matches!(
        ended.state,
        OperationState::Failed { failure_code: ErrorCode::AuthorizationFailed, .. }
    ));
    assert_eq!(world.stored("mail").await.authorization.state, AuthorizationState::Failed);
    assert_eq!(world.scheduler.scheduled.lock().last(), Some(&uninstall.operation.operation_id));
    assert!(!world.scheduler.scheduled.lock().contains(&operation.operation_id));
}

on_every_store! {
    an_attempt_ends_when_its_connector_is_taken_off_the_catalog,
    s169_an_account_that_is_connected_needs_no_question,
    s170_a_local_attempt_that_is_connected_moves_device_and_account,
    s171_s177_a_cancellation_that_was_interrupted_is_finished_after_a_restart,
    s172_an_attempt_whose_time_is_over_has_failed_unasked,
    an_attempt_a_moment_before_its_time_is_asked_about,
    s173_settling_schedules_nothing,
    s174_a_failure_by_supersession_is_told_apart,
    a_failure_without_a_code_gets_the_general_one,
    s175_an_attempt_that_changed_while_it_was_asked_about_is_left_for_the_next_round,
    one_attempt_that_cannot_be_told_about_does_not_keep_the_others,
    an_attempt_of_a_device_that_waits_no_more_is_left_alone,
    a_provider_that_cannot_observe_settles_nothing,
    s097_s098_a_command_of_an_older_boot_is_failed_and_the_others_are_scheduled,
}
