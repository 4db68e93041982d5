//! Desired and observed (J.6).

use std::time::Duration;

use portcullis::domain::{
    authorization::AuthorizationState,
    convergence::ConnectorRuntime,
    error::ErrorCode,
    id::{ConnectionId, WorkerId},
    installation::Installation,
    revision::Revision,
    runtime::{InterfaceKind, InterfaceReadiness, ReadinessState, RuntimeReadiness, RuntimeReceipt},
};

use super::{
    fakes::Fault,
    world::{World, ada, installed_version, key, release},
};

async fn switch(world: &World, on: bool) -> Option<ConnectorRuntime> {
    let request = format!("switch-{}", world.revision().await);
    let command = world.command(&request, "echo").await;
    world.app.set_runtime_enabled(command, on).await.expect("switched").1
}

async fn converge(world: &World) {
    world.app.converge(&ada(), &key("echo")).await.expect("converged");
}

async fn s106_the_same_intent_twice_is_one_generation() {
    let world = World::with_echo().await;
    switch(&world, true).await;
    let (generation, state) = (world.row("echo").await.desired.generation, world.state().await);
    switch(&world, true).await;
    assert_eq!(world.row("echo").await.desired.generation, generation);
    assert_eq!(world.state().await, state);
}

async fn s107_what_was_observed_is_stored_announced_and_no_longer_due() {
    let world = World::with_echo().await;
    switch(&world, false).await;
    assert_eq!(world.app.due_convergences(&ada(), 10).await.expect("due"), [key("echo")]);
    let (events, revision) = (world.events().await.len(), world.revision().await);
    converge(&world).await;
    let row = world.row("echo").await;
    assert!(row.is_converged(world.app.boot_epoch()));
    assert_eq!(row.lease, None);
    assert_eq!(world.events().await.len(), events + 1);
    assert_eq!(world.stored("echo").await.revision, Revision(revision.0 + 1));
    assert_eq!(world.app.due_convergences(&ada(), 10).await.expect("due"), []);

    let before = (world.state().await, world.host.count());
    converge(&world).await;
    assert_eq!((world.state().await, world.host.count()), before);
}

async fn s108_s109_s110_the_users_switch_is_kept() {
    let world = World::with_echo().await;
    assert_eq!(switch(&world, false).await, Some(ConnectorRuntime::Stopped));
    assert_eq!(world.row("echo").await.desired.activation_enabled, Some(false));
    converge(&world).await;
    assert!(!world.host.last().enabled);

    assert!(world.app.prepare_runtime(&ada(), &key("echo")).await.expect("planned"));
    let desired = world.row("echo").await.desired;
    assert_eq!((desired.activation_enabled, desired.enabled), (Some(false), false));

    world.install("echo").await;
    assert!(!world.host.last().enabled, "an update does not switch it on");

    assert_eq!(switch(&world, true).await, Some(ConnectorRuntime::Starting));
    converge(&world).await;
    assert!(world.host.last().enabled);
}

async fn the_switch_is_refused_under_a_stale_revision_and_for_what_is_not_installed() {
    let world = World::with_echo().await;
    world.offer(&[release("echo", "1.0.0"), release("feeds", "1.0.0")]).await;
    let mut stale = world.command("one", "echo").await;
    stale.mutation.expected_revision.0 -= 1;
    world
        .refused(world.app.set_runtime_enabled(stale.clone(), false), ErrorCode::RevisionConflict, true)
        .await;
    stale.expected_connector_revision = Some(Revision(1));
    world.refused(world.app.set_runtime_enabled(stale, false), ErrorCode::RevisionConflict, true).await;
    let absent = world.command("two", "feeds").await;
    world.refused(world.app.set_runtime_enabled(absent, false), ErrorCode::OperationInProgress, true).await;
    let unknown = world.command("three", "nothing").await;
    world.refused(world.app.set_runtime_enabled(unknown, false), ErrorCode::NotFound, false).await;
    world.accept_uninstall("echo").await;
    let leaving = world.command("four", "echo").await;
    world.refused(world.app.set_runtime_enabled(leaving, false), ErrorCode::OperationInProgress, true).await;
}

async fn s111_s127_a_host_that_fails_is_noted_and_tried_later() {
    let world = World::with_echo().await;
    switch(&world, false).await;
    let text = "é".repeat(600);
    world.host.faults.push(Fault(ErrorCode::InstallFailed, true, text.clone()));
    let events = world.events().await.len();
    let error = world.app.converge(&ada(), &key("echo")).await.expect_err("a failure");
    assert_eq!((error.code, error.retryable), (ErrorCode::InstallFailed, true));
    let row = world.row("echo").await;
    assert_eq!(row.attempt, 1);
    assert!(row.next_attempt_at > portcullis::ports::Clock::now(&*world.clock));
    let failure = row.last_error.expect("a reason");
    assert_eq!(failure.code, ErrorCode::InstallFailed);
    assert_eq!(failure.message.len(), 512);
    assert!(text.starts_with(&failure.message));
    assert_eq!(world.events().await.len(), events + 1);
}

async fn s112_s113_a_host_that_asks_for_an_authorization_has_the_runtime_switched_off() {
    let world = World::with_echo().await;
    assert!(world.app.prepare_runtime(&ada(), &key("echo")).await.expect("planned"));
    world.host.faults.push(Fault(ErrorCode::AuthorizationFailed, false, "sign in again".into()));
    let installation = world.stored("echo").await.installation;
    converge(&world).await;
    let row = world.row("echo").await;
    assert_eq!((row.attempt, row.last_error), (0, None));
    assert_eq!((row.desired.enabled, row.desired.authorization_state), (false, AuthorizationState::Expired));
    converge(&world).await;
    assert!(!world.host.last().enabled);
    assert!(world.row("echo").await.is_converged(world.app.boot_epoch()));
    assert_eq!(world.stored("echo").await.installation, installation);
}

async fn s116_s117_a_plan_after_a_fence_is_above_it_every_time() {
    let mut world = World::with_echo().await;
    world.reboot();
    for _ in 0..2 {
        world.app.fence_installed(&ada()).await.expect("fenced");
        let fence = world.host.deactivated.lock().last().cloned().expect("a fence");
        assert_eq!(fence.generation.number, world.stored("echo").await.revision.0);
        assert_eq!(fence.generation.boot_epoch.as_str(), "boot-2");
        assert_eq!(fence.connection_id, Some(ConnectionId::device(&key("echo"))));
        assert!(world.app.prepare_runtime(&ada(), &key("echo")).await.expect("planned"));
        converge(&world).await;
        assert_eq!(world.host.last().generation.number, fence.generation.number + 1);
    }
    assert_eq!(world.app.recoverable_operations().await.expect("operations"), []);
}

async fn s118_s119_one_connector_does_not_keep_another_from_starting() {
    let mut world = World::with_echo().await;
    world.offer(&[release("echo", "1.0.0"), release("feeds", "1.0.0"), release("idle", "1.0.0")]).await;
    world.install("feeds").await;
    switch(&world, false).await;
    world.reboot();
    let feeds = release("feeds", "1.0.0").release_digest;
    world.host.refuses.lock().insert(feeds, Fault::of(ErrorCode::ComponentInvalid));
    for name in ["echo", "feeds"] {
        world.app.prepare_runtime(&ada(), &key(name)).await.expect("planned");
    }
    assert_eq!(world.app.due_convergences(&ada(), 10).await.expect("due"), [key("echo"), key("feeds")]);
    assert_eq!(world.app.due_convergences(&ada(), 1).await.expect("due").len(), 1);
    converge(&world).await;
    world.app.converge(&ada(), &key("feeds")).await.expect_err("it does not start");
    let snapshot = world.app.snapshot(&ada()).await.expect("a snapshot");
    let runtimes: Vec<_> = snapshot.connectors.into_iter().map(|(_, runtime)| runtime).collect();
    let failed = ConnectorRuntime::Failed { failure_code: ErrorCode::ComponentInvalid };
    assert_eq!(runtimes, [Some(ConnectorRuntime::Stopped), Some(failed), None]);
}

async fn s120_what_was_installed_runs_whatever_the_catalog_offers() {
    let mut world = World::with_echo().await;
    world.offer(&[release("echo", "2.0.0")]).await;
    world.reboot();
    world.app.prepare_runtime(&ada(), &key("echo")).await.expect("planned");
    converge(&world).await;
    assert_eq!(world.host.last().release.version.to_string(), "1.0.0");
    assert_eq!(installed_version(&world.stored("echo").await), "1.0.0");
}

async fn s121_without_the_release_every_connection_is_fenced() {
    let world = World::with_echo().await;
    let mut connector = world.stored("echo").await;
    let Installation::Installed { installed, .. } = &mut connector.installation else { panic!("installed") };
    installed.identity.release_digest = release("other", "1.0.0").release_digest;
    let digest = installed.identity.release_digest;
    world.save(connector).await;
    world.app.fence_installed(&ada()).await.expect("fenced");
    let fence = world.host.deactivated.lock().last().cloned().expect("a fence");
    assert_eq!((fence.connection_id, fence.release_digest), (None, Some(digest)));
    assert_eq!(fence.connector_key, key("echo"));
}

async fn a_fence_that_fails_is_told_and_the_others_are_fenced() {
    let world = World::with_echo().await;
    world.offer(&[release("echo", "1.0.0"), release("feeds", "1.0.0")]).await;
    world.install("feeds").await;
    world.host.deactivate_faults.push(Fault::of(ErrorCode::CapabilityDeadlineExceeded));
    let error = world.app.fence_installed(&ada()).await.expect_err("echo is still there");
    assert!(error.retryable && error.message.contains("echo") && !error.message.contains("feeds"), "{error}");
    assert_eq!(world.host.deactivated.lock().len(), 2);
}

async fn s122_s123_only_an_exact_receipt_is_believed() {
    let spoilers: [fn(&mut RuntimeReceipt); 7] = [
        |receipt| receipt.readiness.state = ReadinessState::Ready,
        |receipt| receipt.readiness = RuntimeReadiness::blocked("another_reason"),
        |receipt| {
            let ready = InterfaceReadiness { kind: InterfaceKind::Mcp, state: ReadinessState::Ready };
            receipt.readiness.interfaces.push(ready);
        },
        |receipt| receipt.generation.number += 1,
        |receipt| receipt.operation_id = "other".parse().expect("an id"),
        |receipt| receipt.connection_id = "other".parse().expect("an id"),
        |receipt| receipt.connector_key = key("other"),
    ];
    for spoil in spoilers {
        let world = World::with_echo().await;
        switch(&world, false).await;
        *world.host.spoil.lock() = Some(spoil);
        let error = world.app.converge(&ada(), &key("echo")).await.expect_err("a wrong receipt");
        assert_eq!((error.code, error.retryable), (ErrorCode::InstallFailed, false));
        let row = world.row("echo").await;
        assert!(!row.is_converged(world.app.boot_epoch()));
        assert_eq!(row.attempt, 1);
    }
}

async fn s125_a_binding_that_changed_is_planned_anew_without_asking_the_host() {
    let world = World::with_echo().await;
    let mut row = world.row("echo").await;
    row.desired.generation += 1;
    row.desired.connection_id = "earlier".parse().expect("a connection");
    let generation = row.desired.generation;
    world.write(async |tx| tx.save_convergence(&row).await).await;
    let calls = world.host.count();
    converge(&world).await;
    assert_eq!(world.host.count(), calls);
    let row = world.row("echo").await;
    assert!(row.desired.generation > generation);
    assert_eq!(row.desired.connection_id, ConnectionId::device(&key("echo")));
    converge(&world).await;
    assert_eq!(world.host.count(), calls + 1);
}

async fn s126_the_pauses_double_up_to_64_seconds() {
    let world = World::with_echo().await;
    switch(&world, false).await;
    for pause in [2, 4, 8, 16, 32, 64, 64] {
        world.host.faults.push(Fault::of(ErrorCode::Unavailable));
        world.app.converge(&ada(), &key("echo")).await.expect_err("a failure");
        let row = world.row("echo").await;
        let now = portcullis::ports::Clock::now(&*world.clock);
        assert_eq!(row.next_attempt_at.since(now), Duration::from_secs(pause));
        let calls = world.host.count();
        world.clock.advance(Duration::from_secs(pause) - Duration::from_millis(1));
        converge(&world).await;
        assert_eq!(world.host.count(), calls, "it is not due yet");
        world.clock.advance(Duration::from_millis(1));
    }
}

async fn s128_a_slow_worker_does_not_overwrite_a_newer_intent() {
    let world = World::with_echo().await;
    world.app.prepare_runtime(&ada(), &key("echo")).await.expect("planned");
    world.host.gate.close();
    let app = world.app.clone();
    let slow = tokio::spawn(async move { app.converge(&ada(), &key("echo")).await });
    world.host.gate.arrival().await;
    switch(&world, false).await;
    let before = world.state().await;
    world.host.gate.open();
    let error = slow.await.expect("no panic").expect_err("it was overtaken");
    assert_eq!((error.code, error.retryable), (ErrorCode::LeaseLost, true));
    assert_eq!(world.state().await, before);
    converge(&world).await;
    assert!(!world.host.last().enabled);
}

async fn s129_what_an_earlier_boot_saw_is_due_again() {
    let mut world = World::with_echo().await;
    assert_eq!(world.app.due_convergences(&ada(), 10).await.expect("due"), []);
    world.reboot();
    assert_eq!(world.app.due_convergences(&ada(), 10).await.expect("due"), [key("echo")]);
    converge(&world).await;
    assert_eq!(world.host.last().generation.boot_epoch.as_str(), "boot-2");
}

async fn a_generation_that_is_fenced_is_left_behind_after_a_pause() {
    let world = World::with_echo().await;
    world.app.prepare_runtime(&ada(), &key("echo")).await.expect("planned");
    let refused = world.row("echo").await.desired.generation;
    world.host.faults.push(Fault::of(ErrorCode::RevisionConflict));
    world.app.converge(&ada(), &key("echo")).await.expect_err("a refusal");
    let row = world.row("echo").await;
    assert!(row.desired.generation > refused);
    assert_eq!(row.attempt, 1);
    assert!(row.last_error.is_some());
    assert_eq!(world.app.due_convergences(&ada(), 10).await.expect("due"), []);
    world.clock.advance(Duration::from_secs(2));
    converge(&world).await;
    assert!(world.row("echo").await.is_converged(world.app.boot_epoch()));
}

async fn an_install_waits_for_whoever_converges_already() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0")]).await;
    let accepted = world.accept_install("echo").await;
    world.host.gate.close();
    let (app, id) = (world.app.clone(), accepted.operation.operation_id.clone());
    let installing = tokio::spawn(async move { app.execute(&id).await });
    world.host.gate.arrival().await;
    let other = WorkerId::parse("other").expect("a worker");
    let epoch = world.app.boot_epoch().clone();
    let lease = Duration::from_secs(9);
    let claim = world.store.claim_convergence(&ada(), &key("echo"), &epoch, &other, lease).await;
    assert_eq!(claim.expect("a claim"), None, "one at a time");
    converge(&world).await;
    world.host.gate.open();
    installing.await.expect("no panic").expect("installed");
    assert_eq!(world.host.count(), 1);
}

async fn whoever_converges_is_woken_by_a_new_intent() {
    let world = World::with_echo().await;
    let app = world.app.clone();
    app.intent_saved().await;
    let waiting = tokio::spawn(async move { app.intent_saved().await });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    switch(&world, false).await;
    tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("no panic");
}

async fn what_is_no_longer_the_release_in_place_does_not_run() {
    let world = World::with_echo().await;
    world.app.prepare_runtime(&ada(), &key("echo")).await.expect("planned");
    let mut connector = world.stored("echo").await;
    connector.installation = Installation::NotInstalled;
    world.save(connector).await;
    let calls = world.host.count();
    let error = world.app.converge(&ada(), &key("echo")).await.expect_err("a refusal");
    assert_eq!((error.code, error.retryable), (ErrorCode::RevisionConflict, true));
    assert_eq!(world.host.count(), calls);
}

on_every_store! {
    s106_the_same_intent_twice_is_one_generation,
    s107_what_was_observed_is_stored_announced_and_no_longer_due,
    s108_s109_s110_the_users_switch_is_kept,
    the_switch_is_refused_under_a_stale_revision_and_for_what_is_not_installed,
    s111_s127_a_host_that_fails_is_noted_and_tried_later,
    s112_s113_a_host_that_asks_for_an_authorization_has_the_runtime_switched_off,
    s116_s117_a_plan_after_a_fence_is_above_it_every_time,
    s118_s119_one_connector_does_not_keep_another_from_starting,
    s120_what_was_installed_runs_whatever_the_catalog_offers,
    s121_without_the_release_every_connection_is_fenced,
    a_fence_that_fails_is_told_and_the_others_are_fenced,
    s122_s123_only_an_exact_receipt_is_believed,
    s125_a_binding_that_changed_is_planned_anew_without_asking_the_host,
    s126_the_pauses_double_up_to_64_seconds,
    s128_a_slow_worker_does_not_overwrite_a_newer_intent,
    s129_what_an_earlier_boot_saw_is_due_again,
    a_generation_that_is_fenced_is_left_behind_after_a_pause,
    an_install_waits_for_whoever_converges_already,
    whoever_converges_is_woken_by_a_new_intent,
    what_is_no_longer_the_release_in_place_does_not_run,
}
