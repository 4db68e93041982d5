//! Ending what an account holds for a connector (J.8, 165 and 166).

use portcullis::domain::{
    authorization::{AuthorizationState, Resolution},
    error::ErrorCode,
    operation::{OperationState, Stage},
};

use super::{
    fakes::Fault,
    provider::{held, installed},
    world::ada,
};

async fn s165_s166_a_disconnection_runs_until_the_route_is_seen_to_be_gone() {
    let world = installed().await;
    world.connect("mail", "connection-1").await;
    world.host.faults.push(Fault::of(ErrorCode::Unavailable));
    let command = world.command("end", "mail").await;
    let accepted = world.app.disconnect_authorization(command).await.expect("accepted");
    world.run(&accepted).await.expect_err("the runtime does not follow");
    let operation = world.operation(&accepted).await;
    assert!(matches!(operation.state, OperationState::Running { last_failure: Some(_) }));
    assert_eq!(operation.stage, Stage::Disconnecting);

    world.clock.advance(std::time::Duration::from_secs(5));
    world.run(&accepted).await.expect("disconnected");
    assert_eq!(world.operation(&accepted).await.state, OperationState::Completed);
    assert_eq!(world.authorization.disconnected.lock().len(), 2);
    assert!(!world.host.last().enabled);
    assert_eq!(world.stored("mail").await.authorization.state, AuthorizationState::Disconnected);
    let projection = world.projection("mail").await.expect("a projection");
    assert_eq!((projection.state, projection.connection_id), (AuthorizationState::Disconnected, None));
}

async fn a_provider_that_does_not_disconnect_is_asked_again() {
    let world = installed().await;
    world.connect("mail", "connection-1").await;
    world.authorization.disconnect_faults.push(Fault::of(ErrorCode::UpstreamUnavailable));
    let command = world.command("end", "mail").await;
    let accepted = world.app.disconnect_authorization(command).await.expect("accepted");
    let error = world.run(&accepted).await.expect_err("a refusal");
    assert_eq!((error.code, error.retryable), (ErrorCode::AuthorizationFailed, true));
    assert!(world.host.last().enabled, "nothing was taken away yet");
    world.run(&accepted).await.expect("disconnected");
    assert!(!world.host.last().enabled);
}

async fn a_remote_disconnection_supersedes_open_attempts() {
    let world = installed().await;
    world.accounts.say(1, vec![held("cloud", AuthorizationState::Disconnected, None)]);
    let first = world.pending("one", "cloud").await;
    let command = world.command("end", "cloud").await;
    let accepted = world.app.disconnect_authorization(command).await.expect("accepted");
    world.run(&accepted).await.expect("disconnected");
    assert_eq!(world.resolution(&first.operation).await, Some(Resolution::Superseded));
    assert_eq!(world.open(&ada()).await, []);
}

on_every_store! {
    s165_s166_a_disconnection_runs_until_the_route_is_seen_to_be_gone,
    a_provider_that_does_not_disconnect_is_asked_again,
    a_remote_disconnection_supersedes_open_attempts,
}
