//! Beginning authorizations, and ending them (J.8, 143 to 168 and 176).

use std::sync::atomic::Ordering;

use portcullis::{
    domain::{
        authorization::{
            AuthorizationProgress, AuthorizationState, AuthorizationViewContent, Resolution, SessionAction,
        },
        error::ErrorCode,
        operation::{OperationScope, OperationState, Stage},
    },
    market::authorize::parse_replacement_policy,
    ports::{Clock as _, ReplacementPolicy},
};
use secrecy::SecretSlice;

use super::{
    fakes::Fault,
    provider::{connected, connection, installed, local, remote},
    world::{World, ada, bob, key},
};

fn secret(text: &str) -> Option<SecretSlice<u8>> {
    Some(text.as_bytes().to_vec().into())
}

async fn s143_a_remote_attempt_waits_for_its_user_and_leaves_the_device_alone() {
    let world = installed().await;
    let mut cloud = world.stored("cloud").await;
    cloud.authorization.state = AuthorizationState::Connected;
    world.save(cloud).await;

    let result = world.pending("one", "cloud").await;
    assert_eq!(result.connector.authorization.state, AuthorizationState::Pending);
    let url = "https://provider.example/authorize?step=1";
    assert_eq!(result.authorization_url.as_deref(), Some(url));
    let view = result.authorization_view.expect("a view");
    assert_eq!(view.content, AuthorizationViewContent::ExternalLink { url: url.into() });
    let ten_minutes = std::time::Duration::from_secs(600);
    assert_eq!(result.authorization_expires_at, world.clock.now().plus(ten_minutes));
    assert_eq!(result.operation.state, OperationState::Completed);
    assert_eq!(world.stored("cloud").await.authorization.state, AuthorizationState::Connected);
    assert_eq!(world.resolution(&result.operation).await, None);
    assert_eq!(world.open(&ada()).await.len(), 1);
    assert_eq!(world.open(&bob()).await, [], "an attempt is its account's alone");
}

async fn s144_s155_an_open_attempt_keeps_another_request_out() {
    for connector in ["cloud", "mail"] {
        let world = installed().await;
        world.pending("one", connector).await;
        let begin = world.begin("two", connector).await;
        world.refused(world.authorize(begin), ErrorCode::OperationInProgress, true).await;
        assert_eq!(world.authorization.begun.lock().len(), 1);
    }
}

async fn s145_s146_a_cancelled_attempt_is_superseded_and_makes_room() {
    for connector in ["cloud", "mail"] {
        let world = installed().await;
        let first = world.pending("one", connector).await;
        world.app.cancel_authorization(&ada(), &key(connector)).await.expect("cancelled");
        assert_eq!(world.resolution(&first.operation).await, Some(Resolution::Superseded));
        assert_eq!(world.authorization.cancelled.lock().len(), 1);
        assert_eq!(world.open(&ada()).await, []);
        let before = world.state().await;
        world.app.cancel_authorization(&ada(), &key(connector)).await.expect("cancelled before");
        assert_eq!(world.state().await, before, "a cancellation of nothing changed something");

        let second = world.pending("two", connector).await;
        assert_ne!(second.operation.operation_id, first.operation.operation_id);
        assert_eq!(second.connector.authorization.state, AuthorizationState::Pending);
    }
}

async fn s147_a_provider_that_refuses_fails_the_operation() {
    let world = installed().await;
    world.authorization.begin_faults.push(Fault::of(ErrorCode::UpstreamUnavailable));
    let begin = world.begin("one", "mail").await;
    let error = world.authorize(begin).await.expect_err("a refusal");
    assert_eq!((error.code, error.retryable), (ErrorCode::AuthorizationFailed, true));
    let operations = world.app.snapshot(&ada()).await.expect("a snapshot").operations;
    let operation = operations.iter().find(|one| one.client_request_id.as_str() == "one").expect("it");
    assert!(matches!(
        operation.state,
        OperationState::Failed { failure_code: ErrorCode::AuthorizationFailed, .. }
    ));
    assert_eq!(operation.stage, Stage::Failed);
    let device = world.stored("mail").await.authorization;
    assert_eq!(device.state, AuthorizationState::Failed);
    assert_eq!(device.failure_code.as_deref(), Some("connector_authorization_failed"));
}

async fn s148_s160_a_failed_attempt_is_not_begun_again() {
    let world = installed().await;
    world.authorization.begin_faults.push(Fault::of(ErrorCode::UpstreamUnavailable));
    let begin = world.begin("one", "mail").await;
    world.authorize(begin).await.expect_err("a refusal");
    let begin = world.begin("one", "mail").await;
    world.refused(world.authorize(begin), ErrorCode::AuthorizationFailed, true).await;
    let operations = world.app.snapshot(&ada()).await.expect("a snapshot").operations;
    let id = operations.iter().find(|one| one.client_request_id.as_str() == "one").expect("it");
    world.app.execute(&id.operation_id).await.expect("it has ended");
    assert_eq!(world.authorization.begun.lock().len(), 1);
}

async fn s149_of_two_begins_at_once_one_goes_on() {
    for connector in ["cloud", "mail"] {
        let world = installed().await;
        let (one, two) = (world.begin("one", connector).await, world.begin("two", connector).await);
        let (one, two) = tokio::join!(world.authorize(one), world.authorize(two));
        let refusals: Vec<_> = [one, two].into_iter().filter_map(Result::err).collect();
        let codes: Vec<_> = refusals.iter().map(|error| error.code).collect();
        assert!(
            codes == [ErrorCode::OperationInProgress] || codes == [ErrorCode::RevisionConflict],
            "{codes:?}"
        );
        assert_eq!(world.authorization.begun.lock().len(), 1);
        assert_eq!(world.open(&ada()).await.len(), 1);
    }
}

async fn the_same_request_at_once_is_one_attempt() {
    let world = installed().await;
    let (one, two) = (world.begin("one", "mail").await, world.begin("one", "mail").await);
    let (one, two) = tokio::join!(world.authorize(one), world.authorize(two));
    let (one, two) = (one.expect("an attempt"), two.expect("the same attempt"));
    assert_eq!(one.operation.operation_id, two.operation.operation_id);
    assert_eq!(one.authorization_view, two.authorization_view);
    assert_eq!(world.open(&ada()).await.len(), 1);
}

async fn s150_a_command_that_hangs_is_replaced() {
    let world = installed().await;
    world.authorization.begin_gate.close();
    let begin = world.begin("one", "mail").await;
    let app = world.app.clone();
    let first = tokio::spawn(async move { app.begin_authorization(begin).await });
    world.authorization.begin_gate.arrival().await;
    let begin = world.replace("two", "mail").await;
    let app = world.app.clone();
    let second = tokio::spawn(async move { app.begin_authorization(begin).await });
    let error = first.await.expect("no panic").expect_err("it was replaced");
    assert_eq!((error.code, error.retryable), (ErrorCode::AuthorizationFailed, true));
    world.authorization.begin_gate.open();
    let second = second.await.expect("no panic").expect("an attempt");
    assert_eq!(second.connector.authorization.state, AuthorizationState::Pending);
    let states: Vec<_> = world
        .app
        .snapshot(&ada())
        .await
        .expect("a snapshot")
        .operations
        .into_iter()
        .filter(|one| ["one", "two"].contains(&one.client_request_id.as_str()))
        .map(|one| matches!(one.state, OperationState::Failed { .. }))
        .collect();
    assert_eq!(states, [true, false]);
    assert_eq!(world.open(&ada()).await.len(), 1);
}

async fn a_caller_that_goes_away_does_not_end_its_attempt() {
    let world = installed().await;
    world.authorization.begin_gate.close();
    let begin = world.begin("one", "mail").await;
    let app = world.app.clone();
    let caller = tokio::spawn(async move { app.begin_authorization(begin).await });
    world.authorization.begin_gate.arrival().await;
    caller.abort();
    world.authorization.begin_gate.open();
    let again = world.pending("one", "mail").await;
    assert_eq!(again.operation.state, OperationState::Completed);
    assert_eq!(world.open(&ada()).await.len(), 1);
}

async fn a_cancellation_ends_a_command_that_hangs() {
    let world = installed().await;
    world.authorization.begin_gate.close();
    let begin = world.begin("one", "mail").await;
    let app = world.app.clone();
    let hanging = tokio::spawn(async move { app.begin_authorization(begin).await });
    world.authorization.begin_gate.arrival().await;
    world.app.cancel_authorization(&ada(), &key("mail")).await.expect("cancelled");
    hanging.await.expect("no panic").expect_err("it was cancelled");
    assert_eq!(world.app.recoverable_operations().await.expect("operations"), []);
    world.authorization.begin_gate.open();
    world.pending("two", "mail").await;
}

async fn s151_replacing_ends_the_open_attempt_at_the_provider_first() {
    for connector in ["cloud", "mail"] {
        let world = installed().await;
        let first = world.pending("one", connector).await;
        let begin = world.replace("two", connector).await;
        let second = world.authorize(begin).await.expect("an attempt");
        assert_ne!(second.operation.operation_id, first.operation.operation_id);
        let cancelled = world.authorization.cancelled.lock().clone();
        assert_eq!(cancelled.len(), 1);
        assert_eq!(cancelled[0].operation_id, first.operation.operation_id);
        assert_eq!(world.resolution(&first.operation).await, Some(Resolution::Superseded));
        let begun = world.authorization.begun.lock().clone();
        assert_eq!(begun[1].replacement, ReplacementPolicy::ReplaceActive);
    }
}

async fn replacing_needs_the_current_revision() {
    let world = installed().await;
    let mut begin = world.replace("two", "mail").await;
    world.pending("one", "mail").await;
    begin.command.mutation.client_request_id = "two".parse().expect("an id");
    world.refused(world.authorize(begin), ErrorCode::RevisionConflict, true).await;
}

async fn s152_what_cannot_be_ended_for_sure_is_not_replaced() {
    let world = installed().await;
    world.pending("one", "mail").await;
    world.authorization.cannot_cancel.store(true, Ordering::SeqCst);
    let begin = world.replace("two", "mail").await;
    world.refused(world.authorize(begin), ErrorCode::Unavailable, false).await;
    world.app.cancel_authorization(&ada(), &key("mail")).await.expect("forgotten");
    assert_eq!(world.open(&ada()).await, []);
}

async fn s153_an_attempt_that_was_not_ended_stays_marked() {
    let world = installed().await;
    let first = world.pending("one", "mail").await;
    world.authorization.cancel_faults.push(Fault::of(ErrorCode::UpstreamUnavailable));
    let begin = world.replace("two", "mail").await;
    let error = world.authorize(begin).await.expect_err("it could not be ended");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
    assert_eq!(world.resolution(&first.operation).await, Some(Resolution::Canceling));
    assert_eq!(world.authorization.begun.lock().len(), 1);
    let begin = world.replace("two", "mail").await;
    world.authorize(begin).await.expect("an attempt");
    assert_eq!(world.resolution(&first.operation).await, Some(Resolution::Superseded));
}

async fn s154_an_attempt_goes_on_by_steps_under_one_request() {
    let world = installed().await;
    let first = world.pending("one", "mail").await;
    assert_eq!(first.authorization_step_revision, 1);
    let scheduled = world.scheduler.count();
    let mut begin = world.begin("one", "mail").await;
    begin.after_step = 1;
    let second = world.authorize(begin).await.expect("the second step");
    assert_eq!(second.operation.operation_id, first.operation.operation_id);
    assert_eq!(second.authorization_step_revision, 2);
    let url = "https://provider.example/authorize?step=2";
    assert_eq!(second.authorization_url.as_deref(), Some(url));
    let open = world.open(&ada()).await;
    assert_eq!(open[0].open_session().expect("a receipt").step_revision, 2);
    assert_eq!(world.scheduler.count(), scheduled);
    assert_eq!(world.authorization.begun.lock()[1].step_base, 1);

    let before = world.state().await;
    let mut begin = world.begin("one", "mail").await;
    begin.after_step = 1;
    world.authorize(begin).await.expect("the second step again");
    assert_eq!(world.state().await, before, "the same step changed something");
}

async fn s156_s157_a_step_that_was_never_reached_is_refused() {
    let world = installed().await;
    let mut begin = world.begin("one", "mail").await;
    begin.after_step = 1;
    world.refused(world.authorize(begin), ErrorCode::InvalidRequest, false).await;
    world.pending("one", "mail").await;
    let mut begin = world.begin("one", "mail").await;
    begin.after_step = 2;
    world.refused(world.authorize(begin), ErrorCode::InvalidRequest, false).await;
}

async fn s158_a_provider_that_goes_back_is_refused() {
    let world = installed().await;
    world.pending("one", "mail").await;
    let mut begin = world.begin("one", "mail").await;
    begin.after_step = 1;
    world.authorize(begin).await.expect("the second step");
    *world.authorization.spoil.lock() = Some(|step| step.step_revision = 1);
    let mut begin = world.begin("one", "mail").await;
    begin.after_step = 2;
    world.refused(world.authorize(begin), ErrorCode::InstallFailed, false).await;
}

async fn a_providers_invalid_receipt_fails_the_attempt() {
    type Spoil = fn(&mut portcullis::domain::authorization::AuthorizationStep);
    let spoils: [Spoil; 5] = [
        |step| step.operation_id = "other".parse().expect("an id"),
        |step| step.connector_key = key("other"),
        |step| step.action = Some(SessionAction::SubmitSecret),
        |step| {
            step.action = Some(SessionAction::Redirect);
            step.progress = connected("connection");
        },
        |step| step.progress = AuthorizationProgress::Pending { url: " ".into(), user_code: None },
    ];
    for spoil in spoils {
        let world = installed().await;
        *world.authorization.spoil.lock() = Some(spoil);
        let begin = world.begin("one", "mail").await;
        let error = world.authorize(begin).await.expect_err("an invalid receipt");
        assert_eq!((error.code, error.retryable), (ErrorCode::InstallFailed, false), "{error}");
        assert_eq!(world.open(&ada()).await, []);
        assert_eq!(world.app.recoverable_operations().await.expect("operations"), []);
        assert_eq!(world.projection("mail").await, None);
    }
}

async fn a_code_to_enter_is_shown_with_its_link() {
    let world = installed().await;
    let url = "https://provider.example/device".to_owned();
    let pending = AuthorizationProgress::Pending { url: url.clone(), user_code: Some("ABCD".into()) };
    world.authorization.progress.lock().push_back(pending);
    let view = world.pending("one", "mail").await.authorization_view.expect("a view");
    let content = AuthorizationViewContent::DeviceCode { verification_url: url, user_code: "ABCD".into() };
    assert_eq!(view.content, content);
    assert!(view.view_id.starts_with("authorization-") && view.view_id.len() == 46, "{}", view.view_id);
}

async fn s159_a_resolved_attempt_is_answered_from_its_receipt() {
    let world = installed().await;
    world.authorization.progress.lock().push_back(connected("connection"));
    let first = world.pending("one", "mail").await;
    assert_eq!(first.connector.authorization.state, AuthorizationState::Connected);
    let again = world.pending("one", "mail").await;
    assert_eq!((again.authorization_url, again.authorization_view), (None, None));
    assert_eq!(again.connector.authorization.state, AuthorizationState::Connected);
    assert_eq!(again.operation.operation_id, first.operation.operation_id);
    assert_eq!(world.authorization.begun.lock().len(), 1);
}

async fn s161_an_account_is_connected_at_once_and_its_runtime_follows() {
    let world = installed().await;
    assert!(!world.host.last().enabled);
    let result = world.connect("mail", "connection-1").await;
    assert_eq!(result.connector.authorization.state, AuthorizationState::Connected);
    let projection = world.projection("mail").await.expect("a projection");
    assert_eq!(projection.state, AuthorizationState::Connected);
    assert_eq!(projection.connection_id, Some(connection("connection-1")));
    assert_eq!(projection.connector_version.expect("a version").to_string(), "1.0.0");
    assert!(!projection.server_synchronized);
    let request = world.host.last();
    assert!(request.enabled);
    assert_eq!(request.connection_id, connection("connection-1"));
    assert_eq!(request.authorization, AuthorizationState::Connected);
}

async fn a_connector_can_be_authorized_before_it_is_installed() {
    let world = World::with_remote().await;
    world.offer(&[local("mail", "1.0.0")]).await;
    world.connect("mail", "connection-1").await;
    assert_eq!(world.host.count(), 0);
    world.install("mail").await;
    assert!(world.host.last().enabled);
}

async fn s162_another_accounts_device_credential_stays_while_this_one_is_bound() {
    let world = installed().await;
    world.connect("mail", "connection-1").await;
    let mut begin = world.begin("bobs", "mail").await;
    begin.command.mutation.scope = bob();
    let result = world.authorize(begin).await.expect("a challenge");
    assert_eq!(result.connector.authorization.state, AuthorizationState::Pending);
    assert!(result.authorization_url.is_some());
    assert_eq!(world.stored("mail").await.authorization.state, AuthorizationState::Connected);

    // Nor does its failure take anything away.
    let mut begin = world.replace("bobs-second", "mail").await;
    begin.command.mutation.scope = bob();
    world.authorization.begin_faults.push(Fault::of(ErrorCode::UpstreamUnavailable));
    world.authorize(begin).await.expect_err("a refusal");
    assert_eq!(world.stored("mail").await.authorization.state, AuthorizationState::Connected);
    assert_eq!(world.projection("mail").await.expect("ada's").state, AuthorizationState::Connected);
}

async fn s163_a_remote_connector_needs_an_account() {
    let world = installed().await;
    let mut begin = world.begin("one", "cloud").await;
    begin.command.mutation.scope = OperationScope::default();
    world.refused(world.authorize(begin), ErrorCode::InvalidRequest, false).await;
    let mut command = world.command("two", "cloud").await;
    command.mutation.scope = OperationScope::default();
    world.refused(world.app.disconnect_authorization(command), ErrorCode::InvalidRequest, false).await;
}

async fn s164_an_unknown_replacement_policy_is_refused() {
    let error = parse_replacement_policy("replace_all").expect_err("a refusal");
    assert_eq!((error.code, error.retryable), (ErrorCode::InvalidRequest, false));
    assert_eq!(parse_replacement_policy("").expect("a policy"), ReplacementPolicy::Keep);
    let replaces = parse_replacement_policy("replace_active").expect("a policy");
    assert_eq!(replaces, ReplacementPolicy::ReplaceActive);
}

async fn other_refusals_change_nothing() {
    let world = installed().await;
    let refresh = world
        .offer(&[super::world::release("echo", "1.0.0"), local("mail", "1.0.0"), remote("cloud", "1.0.0")])
        .await;
    let begin = world.begin("one", "unknown").await;
    world.refused(world.authorize(begin), ErrorCode::NotFound, false).await;
    let (scope, unknown) = (ada(), key("unknown"));
    let cancel = world.app.cancel_authorization(&scope, &unknown);
    world.refused(cancel, ErrorCode::NotFound, false).await;
    // Nothing to authorize.
    let begin = world.begin("one", "echo").await;
    world.refused(world.authorize(begin), ErrorCode::OperationInProgress, true).await;
    let command = world.command("two", "echo").await;
    world.refused(world.app.disconnect_authorization(command), ErrorCode::OperationInProgress, true).await;
    // The account is connected already.
    world.connect("mail", "connection-1").await;
    let begin = world.begin("three", "mail").await;
    world.refused(world.authorize(begin), ErrorCode::OperationInProgress, true).await;
    // A stale revision.
    let mut begin = world.begin("four", "cloud").await;
    begin.command.mutation.expected_revision = portcullis::domain::revision::Revision(1);
    world.refused(world.authorize(begin), ErrorCode::RevisionConflict, true).await;
    // The id of another command.
    let begin = world.begin(refresh.operation.client_request_id.as_str(), "mail").await;
    world.refused(world.authorize(begin), ErrorCode::InvalidRequest, false).await;
}

async fn s176_a_secret_reaches_the_provider_and_nothing_else() {
    const SECRET: &str = "s3cr3t-of-ada";
    let world = installed().await;
    let mut begin = world.begin("one", "mail").await;
    begin.secret = secret(SECRET);
    let words = format!("the key {SECRET} is not valid");
    world.authorization.begin_faults.push(Fault(ErrorCode::UpstreamUnavailable, false, words));
    let error = world.authorize(begin).await.expect_err("a refusal");
    assert!(!error.mentions(SECRET), "{error:?}");
    let mut begin = world.begin("two", "mail").await;
    begin.secret = secret(SECRET);
    world.authorization.progress.lock().push_back(connected("connection-1"));
    world.authorize(begin).await.expect("connected");
    let given: Vec<_> = world.authorization.begun.lock().iter().map(|begun| begun.secret.clone()).collect();
    assert_eq!(given, [Some(SECRET.as_bytes().to_vec()), Some(SECRET.as_bytes().to_vec())]);
    let stored = world.store.snapshot().await.expect("a snapshot");
    let everything = format!("{stored:?} {:?} {:?}", world.events().await, world.projection("mail").await);
    assert!(!everything.contains(SECRET));
}

on_every_store! {
    s143_a_remote_attempt_waits_for_its_user_and_leaves_the_device_alone,
    s144_s155_an_open_attempt_keeps_another_request_out,
    s145_s146_a_cancelled_attempt_is_superseded_and_makes_room,
    s147_a_provider_that_refuses_fails_the_operation,
    s148_s160_a_failed_attempt_is_not_begun_again,
    s149_of_two_begins_at_once_one_goes_on,
    the_same_request_at_once_is_one_attempt,
    s150_a_command_that_hangs_is_replaced,
    a_caller_that_goes_away_does_not_end_its_attempt,
    a_cancellation_ends_a_command_that_hangs,
    s151_replacing_ends_the_open_attempt_at_the_provider_first,
    replacing_needs_the_current_revision,
    s152_what_cannot_be_ended_for_sure_is_not_replaced,
    s153_an_attempt_that_was_not_ended_stays_marked,
    s154_an_attempt_goes_on_by_steps_under_one_request,
    s156_s157_a_step_that_was_never_reached_is_refused,
    s158_a_provider_that_goes_back_is_refused,
    a_providers_invalid_receipt_fails_the_attempt,
    a_code_to_enter_is_shown_with_its_link,
    s159_a_resolved_attempt_is_answered_from_its_receipt,
    s161_an_account_is_connected_at_once_and_its_runtime_follows,
    a_connector_can_be_authorized_before_it_is_installed,
    s162_another_accounts_device_credential_stays_while_this_one_is_bound,
    s163_a_remote_connector_needs_an_account,
    s164_an_unknown_replacement_policy_is_refused,
    other_refusals_change_nothing,
    s176_a_secret_reaches_the_provider_and_nothing_else,
}
