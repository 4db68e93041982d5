//! Recovery and adoption (J.5, 96 to 100).

use std::time::Duration;

use portcullis::domain::{
    authorization::AuthorizationState,
    error::ErrorCode,
    id::WorkerId,
    operation::{OperationKind, OperationState},
};

use super::{
    fakes::Fault,
    world::{World, release},
};

async fn s096_operations_of_an_earlier_boot_are_adopted_and_scheduled() {
    let mut world = World::with_echo().await;
    world.offer(&[release("echo", "1.0.0"), release("feeds", "1.0.0")]).await;
    let install = world.accept_install("feeds").await;
    let uninstall = world.accept_uninstall("echo").await;
    let refresh = world.app.refresh_catalog(world.mutation("refresh").await).await.expect("accepted");
    world.reboot();
    world.scheduler.scheduled.lock().clear();
    let events = world.events().await.len();
    world.app.recover().await.expect("recovered");

    for accepted in [&install, &uninstall] {
        let generation = world.operation(accepted).await.generation.expect("a generation");
        assert_eq!(generation.boot_epoch.as_str(), "boot-2");
        assert!(generation.number > accepted.revision.0);
    }
    assert_eq!(world.operation(&refresh).await.generation, None);
    assert_eq!(world.scheduler.count(), 3);
    assert_eq!(world.events().await.len(), events + 4, "both adoptions are announced");

    let before = world.revision().await;
    world.app.recover().await.expect("recovered");
    assert_eq!(world.revision().await, before, "what is adopted is not adopted again");
    for accepted in [&install, &uninstall, &refresh] {
        world.run(accepted).await.expect("executed");
    }
}

async fn s097_s098_an_interrupted_authorization_fails_and_the_others_are_scheduled() {
    let mut world = World::with_echo().await;
    world.offer(&[release("echo", "1.0.0"), release("feeds", "1.0.0")]).await;
    let mut authorization = world.accept_install("feeds").await.operation;
    authorization.kind = OperationKind::StartAuthorization;
    world.write(async |tx| tx.save_operation(&authorization).await).await;
    let other = world.accept_uninstall("echo").await;
    world.reboot();
    world.scheduler.scheduled.lock().clear();
    world.app.recover().await.expect("recovered");
    let stored = world.store.operation(&authorization.operation_id).await.expect("a reading").expect("one");
    assert!(matches!(
        stored.state,
        OperationState::Failed { failure_code: ErrorCode::AuthorizationFailed, .. }
    ));
    assert_eq!(world.stored("feeds").await.authorization.state, AuthorizationState::Failed);
    assert_eq!(*world.scheduler.scheduled.lock(), [other.operation.operation_id]);
}

async fn s100_what_another_worker_holds_is_scheduled_once_its_lease_is_over() {
    let world = World::with_echo().await;
    let accepted = world.accept_uninstall("echo").await;
    let other = WorkerId::parse("other").expect("a worker");
    let id = &accepted.operation.operation_id;
    world
        .store
        .claim_operation(id, &other, Duration::from_millis(40))
        .await
        .expect("a claim")
        .expect("granted");
    let generation = world.operation(&accepted).await.generation;
    let beside = world.beside();
    world.scheduler.scheduled.lock().clear();
    beside.recover().await.expect("recovered");
    assert_eq!(world.scheduler.count(), 0);
    assert_eq!(world.operation(&accepted).await.generation, generation, "its worker may be alive");
    for _ in 0..500 {
        if world.scheduler.count() == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("it was not scheduled after the lease was over");
}

async fn whoever_executes_an_operation_of_another_boot_adopts_it() {
    let mut world = World::with_echo().await;
    let accepted = world.accept_uninstall("echo").await;
    world.reboot();
    world.run(&accepted).await.expect("uninstalled");
    let generation = world.operation(&accepted).await.generation.expect("a generation");
    assert_eq!(generation.boot_epoch.as_str(), "boot-2");
    assert_eq!(world.installer.uninstalls.lock()[0].generation, generation);
}

async fn a_recovery_that_cannot_schedule_says_so() {
    let mut world = World::with_echo().await;
    world.accept_uninstall("echo").await;
    world.reboot();
    world.scheduler.faults.push(Fault::of(ErrorCode::Unavailable));
    let error = world.app.recover().await.expect_err("no hint");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
}

async fn an_operation_that_is_cut_off_again_and_again_is_given_up_and_frees_its_lane() {
    let mut world = World::with_echo().await;
    let accepted = world.accept_uninstall("echo").await;
    let mut operation = world.operation(&accepted).await;
    operation.state = OperationState::Running { last_failure: None };
    operation.interrupted = 6;
    world.write(async |tx| tx.save_operation(&operation).await).await;
    world.reboot();
    world.installer.uninstall_faults.push(Fault::of(ErrorCode::Unavailable));
    world.run(&accepted).await.expect_err("cut off seven times, it is still tried");
    assert!(world.operation(&accepted).await.is_active());

    operation = world.operation(&accepted).await;
    operation.state = OperationState::Running { last_failure: None };
    world.write(async |tx| tx.save_operation(&operation).await).await;
    let error = world.run(&accepted).await.expect_err("given up");
    assert_eq!(error.code, ErrorCode::OperationAbandoned);
    let OperationState::Failed { failure_code, failure } = world.operation(&accepted).await.state else {
        panic!("it has not ended")
    };
    assert_eq!((failure_code, failure.code), (ErrorCode::OperationAbandoned, ErrorCode::OperationAbandoned));

    let again = world.accept_uninstall("echo").await;
    world.run(&again).await.expect("its lane is free");
    assert_eq!(world.operation(&again).await.interrupted, 0);
}

on_every_store! {
    s096_operations_of_an_earlier_boot_are_adopted_and_scheduled,
    s097_s098_an_interrupted_authorization_fails_and_the_others_are_scheduled,
    s100_what_another_worker_holds_is_scheduled_once_its_lease_is_over,
    whoever_executes_an_operation_of_another_boot_adopts_it,
    a_recovery_that_cannot_schedule_says_so,
    an_operation_that_is_cut_off_again_and_again_is_given_up_and_frees_its_lane,
}
