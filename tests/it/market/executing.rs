//! Execution under a lease (J.5, 92 to 95, 99 and 105).

use std::time::Duration;

use portcullis::domain::{
    authorization::AuthorizationState,
    error::ErrorCode,
    id::WorkerId,
    operation::{OperationKind, OperationState, Stage},
};

use super::{
    fakes::Fault,
    world::{World, release, state_name},
};

async fn offered(lease: Duration) -> World {
    let world = World::with_lease(lease).await;
    world.offer(&[release("echo", "1.0.0")]).await;
    world
}

async fn s092_what_another_worker_holds_is_left_alone() {
    let world = offered(Duration::ZERO).await;
    let accepted = world.accept_install("echo").await;
    let other = WorkerId::parse("other").expect("a worker");
    let id = &accepted.operation.operation_id;
    let claimed = world.store.claim_operation(id, &other, Duration::from_secs(30)).await.expect("a claim");
    assert!(claimed.is_some());
    let before = world.state().await;
    world.run(&accepted).await.expect("nothing to do");
    assert_eq!(world.state().await, before);
    assert!(world.installer.installs.lock().is_empty());
}

async fn s093_two_executions_are_one() {
    let world = offered(Duration::ZERO).await;
    let accepted = world.accept_install("echo").await;
    world.installer.install_gate.close();
    let execute = || {
        let (app, id) = (world.app.clone(), accepted.operation.operation_id.clone());
        tokio::spawn(async move { app.execute(&id).await })
    };
    let first = execute();
    world.installer.install_gate.arrival().await;
    let second = execute();
    tokio::task::yield_now().await;
    assert!(!second.is_finished(), "it waits for the first");
    world.installer.install_gate.open();
    first.await.expect("no panic").expect("installed");
    second.await.expect("no panic").expect("installed");
    assert_eq!(world.installer.installs.lock().len(), 1);
}

async fn s094_two_executions_share_a_failure_and_the_next_one_is_new() {
    let world = offered(Duration::ZERO).await;
    let accepted = world.accept_install("echo").await;
    world.installer.install_faults.push(Fault::of(ErrorCode::ArtifactUnavailable));
    world.installer.install_gate.close();
    let execute = || {
        let (app, id) = (world.app.clone(), accepted.operation.operation_id.clone());
        tokio::spawn(async move { app.execute(&id).await })
    };
    let first = execute();
    world.installer.install_gate.arrival().await;
    let second = execute();
    tokio::task::yield_now().await;
    world.installer.install_gate.open();
    for attempt in [first, second] {
        let error = attempt.await.expect("no panic").expect_err("a failure");
        assert_eq!((error.code, error.retryable), (ErrorCode::InstallFailed, true));
        assert_eq!(error.innermost().code, ErrorCode::ArtifactUnavailable);
    }
    assert!(world.operation(&accepted).await.is_active());
    world.run(&accepted).await.expect("installed");
    assert_eq!(world.installer.installs.lock().len(), 2);
}

async fn a_follower_leads_when_its_leader_goes_away() {
    let world = offered(Duration::ZERO).await;
    let accepted = world.accept_install("echo").await;
    world.installer.install_gate.close();
    let execute = || {
        let (app, id) = (world.app.clone(), accepted.operation.operation_id.clone());
        tokio::spawn(async move { app.execute(&id).await })
    };
    let leader = execute();
    world.installer.install_gate.arrival().await;
    let follower = execute();
    tokio::task::yield_now().await;
    leader.abort();
    leader.await.expect_err("it was cut off");
    world.installer.install_gate.open();
    follower.await.expect("no panic").expect("it led, or found the lease still held");
    // The leader's lease was given back, so whoever comes next need not wait for it.
    for _ in 0..200 {
        if world.operation(&accepted).await.state == OperationState::Completed {
            return;
        }
        world.run(&accepted).await.expect("executed");
        tokio::task::yield_now().await;
    }
    panic!("the lease of a leader that went away was not given back");
}

async fn s095_work_whose_lease_is_lost_stops_and_is_left_running() {
    let world = offered(Duration::from_millis(60)).await;
    let accepted = world.accept_install("echo").await;
    world.installer.install_gate.close();
    let (app, id) = (world.app.clone(), accepted.operation.operation_id.clone());
    let working = tokio::spawn(async move { app.execute(&id).await });
    world.installer.install_gate.arrival().await;
    world.clock.advance(Duration::from_secs(1));
    let error = working.await.expect("no panic").expect_err("the lease is over");
    assert_eq!((error.code, error.retryable), (ErrorCode::LeaseLost, true));
    let operation = world.operation(&accepted).await;
    assert_eq!(
        (operation.state, operation.stage),
        (OperationState::Running { last_failure: None }, Stage::Installing)
    );
    world.installer.install_gate.open();
    world.run(&accepted).await.expect("installed");
}

async fn a_worker_that_was_overtaken_writes_nothing() {
    let world = offered(Duration::from_secs(3600)).await;
    let accepted = world.accept_install("echo").await;
    world.installer.install_gate.close();
    let (app, id) = (world.app.clone(), accepted.operation.operation_id.clone());
    let slow = tokio::spawn(async move { app.execute(&id).await });
    world.installer.install_gate.arrival().await;
    // The lease runs out before a heartbeat notices; another worker takes over.
    world.clock.advance(Duration::from_secs(7200));
    let other = WorkerId::parse("other").expect("a worker");
    let id = &accepted.operation.operation_id;
    let claimed = world.store.claim_operation(id, &other, Duration::from_secs(3600)).await.expect("a claim");
    assert!(claimed.is_some());
    let before = world.state().await;
    world.installer.install_gate.open();
    let error = slow.await.expect("no panic").expect_err("it was overtaken");
    assert_eq!(error.code, ErrorCode::LeaseLost);
    assert_eq!(world.state().await, before);
}

async fn s099_an_authorization_is_not_executed_from_its_row() {
    let world = offered(Duration::ZERO).await;
    let mut operation = world.accept_install("echo").await.operation;
    operation.kind = OperationKind::StartAuthorization;
    world.write(async |tx| tx.save_operation(&operation).await).await;
    let error = world.app.execute(&operation.operation_id).await.expect_err("a refusal");
    assert_eq!((error.code, error.retryable), (ErrorCode::AuthorizationFailed, false));
    let stored =
        world.store.operation(&operation.operation_id).await.expect("a reading").expect("an operation");
    assert!(matches!(
        stored.state,
        OperationState::Failed { failure_code: ErrorCode::AuthorizationFailed, .. }
    ));
    assert_eq!(world.stored("echo").await.authorization.state, AuthorizationState::Failed);
}

async fn s105_what_has_ended_is_not_executed_again() {
    let world = offered(Duration::ZERO).await;
    let accepted = world.accept_install("echo").await;
    world.run(&accepted).await.expect("installed");
    let before = world.state().await;
    world.run(&accepted).await.expect("nothing to do");
    assert_eq!(world.state().await, before);
    assert_eq!(state_name(&world.stored("echo").await), "installed");
}

async fn an_operation_without_its_release_is_refused() {
    let world = offered(Duration::ZERO).await;
    let mut operation = world.accept_install("echo").await.operation;
    operation.target.as_mut().expect("a target").release = None;
    world.write(async |tx| tx.save_operation(&operation).await).await;
    let error = world.app.execute(&operation.operation_id).await.expect_err("a refusal");
    assert_eq!((error.code, error.retryable), (ErrorCode::InstallFailed, false));
    assert!(world.installer.installs.lock().is_empty());
}

on_every_store! {
    s092_what_another_worker_holds_is_left_alone,
    s093_two_executions_are_one,
    s094_two_executions_share_a_failure_and_the_next_one_is_new,
    a_follower_leads_when_its_leader_goes_away,
    s095_work_whose_lease_is_lost_stops_and_is_left_running,
    a_worker_that_was_overtaken_writes_nothing,
    s099_an_authorization_is_not_executed_from_its_row,
    s105_what_has_ended_is_not_executed_again,
    an_operation_without_its_release_is_refused,
}
