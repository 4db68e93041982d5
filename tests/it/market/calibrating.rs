//! Comparing what is called installed with the files (J.9).

use portcullis::{
    domain::{
        error::ErrorCode,
        installation::{FailureCode, Installation},
        revision::Revision,
    },
    ports::{PhysicalState, ReleaseObservation},
};

use super::world::{World, ada, installed_version, key, release, state_name};

fn disk(world: &World, state: PhysicalState) {
    world.installer.disk.lock().insert(key("echo"), state);
}

async fn s178_s179_s181_drift_is_noted_with_its_evidence_and_believed_to_be_gone() {
    for (state, code) in [
        (PhysicalState::Absent, FailureCode::PHYSICALLY_ABSENT),
        (PhysicalState::Invalid, FailureCode::PHYSICALLY_INVALID),
    ] {
        let world = World::with_echo().await;
        assert_eq!(world.app.calibration_candidates().await.expect("candidates"), [key("echo")]);
        disk(&world, state);
        let (revision, events) = (world.revision().await, world.events().await.len());
        let connector = world.app.calibrate(&key("echo")).await.expect("calibrated");
        assert_eq!(connector, world.stored("echo").await);
        assert_eq!((state_name(&connector), installed_version(&connector)), ("failed", "1.0.0".into()));
        assert_eq!(connector.installation.failure_code(), Some(&FailureCode(code.into())));
        assert_eq!(connector.revision, Revision(revision.0 + 1));
        assert_eq!(world.events().await.len(), events + 1);

        let before = world.state().await;
        world.app.calibrate(&key("echo")).await.expect("calibrated");
        assert_eq!(world.state().await, before, "the same again is no change");

        assert_eq!(world.app.calibration_candidates().await.expect("candidates"), [key("echo")]);
        disk(&world, PhysicalState::Present);
        let connector = world.app.calibrate(&key("echo")).await.expect("calibrated");
        assert_eq!((state_name(&connector), connector.installation.failure_code()), ("installed", None));
    }
}

async fn s180_what_cannot_be_told_changes_nothing() {
    let world = World::with_echo().await;
    disk(&world, PhysicalState::Indeterminate);
    let before = world.state().await;
    let connector = world.app.calibrate(&key("echo")).await.expect("calibrated");
    assert_eq!(state_name(&connector), "installed");
    assert_eq!(world.state().await, before);
}

async fn s182_an_observation_of_something_else_is_refused() {
    let world = World::with_echo().await;
    let misreadings: [fn(&mut ReleaseObservation); 2] = [
        |seen| seen.connector_key = key("other"),
        |seen| seen.release_digest = release("other", "1.0.0").release_digest,
    ];
    disk(&world, PhysicalState::Absent);
    for misread in misreadings {
        *world.installer.misread.lock() = Some(misread);
        world.refused(world.app.calibrate(&key("echo")), ErrorCode::InstallFailed, false).await;
    }
}

async fn s183_a_row_that_changed_meanwhile_is_not_overwritten() {
    let world = World::with_echo().await;
    disk(&world, PhysicalState::Absent);
    world.installer.inspect_gate.close();
    let app = world.app.clone();
    let slow = tokio::spawn(async move { app.calibrate(&key("echo")).await });
    world.installer.inspect_gate.arrival().await;
    world.accept_uninstall("echo").await;
    let before = world.state().await;
    world.installer.inspect_gate.open();
    let connector = slow.await.expect("no panic").expect("calibrated");
    assert_eq!(state_name(&connector), "uninstalling");
    assert_eq!(world.state().await, before);
}

async fn what_has_drifted_is_not_prepared_to_run() {
    let world = World::with_echo().await;
    disk(&world, PhysicalState::Invalid);
    let row = world.row("echo").await;
    assert!(!world.app.prepare_runtime(&ada(), &key("echo")).await.expect("calibrated"));
    assert_eq!(world.row("echo").await, row);
    world.app.converge(&ada(), &key("echo")).await.expect("nothing is due");
    let host_calls = world.host.count();
    world.install("echo").await;
    assert_eq!(world.host.count(), host_calls + 1);
    assert!(world.app.prepare_runtime(&ada(), &key("echo")).await.is_ok_and(|planned| !planned));
}

async fn what_is_not_installed_is_no_candidate() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0")]).await;
    assert_eq!(world.app.calibration_candidates().await.expect("candidates"), []);
    let before = world.state().await;
    world.app.calibrate(&key("echo")).await.expect("nothing to compare");
    assert!(!world.app.prepare_runtime(&ada(), &key("echo")).await.expect("nothing to prepare"));
    assert_eq!(world.state().await, before);
    world.refused(world.app.calibrate(&key("nothing")), ErrorCode::NotFound, false).await;

    let mut connector = world.stored("echo").await;
    let failure_code = FailureCode::from(ErrorCode::InstallFailed);
    connector.installation = Installation::Failed { failure_code, installed: None };
    world.save(connector).await;
    assert_eq!(world.app.calibration_candidates().await.expect("candidates"), []);
}

on_every_store! {
    s178_s179_s181_drift_is_noted_with_its_evidence_and_believed_to_be_gone,
    s180_what_cannot_be_told_changes_nothing,
    s182_an_observation_of_something_else_is_refused,
    s183_a_row_that_changed_meanwhile_is_not_overwritten,
    what_has_drifted_is_not_prepared_to_run,
    what_is_not_installed_is_no_candidate,
}
