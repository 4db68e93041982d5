//! Reads and visibility (J.1).

use portcullis::domain::{
    compatibility::Compatibility,
    convergence::{ConnectorRuntime, Convergence},
    error::ErrorCode,
    id::{BootEpoch, ConnectorKey, OperationId},
    operation::{OperationFailure, OperationKind, OperationScope, Visibility},
};

use super::world::{World, ada, altered, bob, broken, key, release};

async fn listed(world: &World, scope: &OperationScope) -> Vec<String> {
    let snapshot = world.app.snapshot(scope).await.expect("a snapshot");
    snapshot.connectors.into_iter().map(|(connector, _)| connector.key.to_string()).collect()
}

async fn spoil(world: &World, key: &str) {
    let mut connector = world.stored(key).await;
    connector.release = broken(key);
    world.save(connector).await;
}

async fn s001_s006_a_connector_whose_release_does_not_hold_is_hidden_and_the_others_are_not() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0"), release("bad", "1.0.0")]).await;
    assert_eq!(listed(&world, &ada()).await, ["bad", "echo"]);
    spoil(&world, "bad").await;
    assert_eq!(listed(&world, &ada()).await, ["echo"]);
    assert_eq!(listed(&world, &OperationScope::default()).await, ["echo"]);
    world.offer(&[release("echo", "1.0.0"), release("bad", "1.0.1")]).await;
    assert_eq!(listed(&world, &ada()).await, ["bad", "echo"], "a verdict ends with the row it is about");
}

async fn s002_getting_that_connector_tells_what_does_not_hold() {
    let world = World::new().await;
    world.offer(&[release("bad", "1.0.0")]).await;
    spoil(&world, "bad").await;
    let error = world.refused(world.app.connector(&key("bad")), ErrorCode::InvalidManifest, false).await;
    assert!(error.message.contains("icon"), "{error}");
}

async fn s003_s004_s005_a_delisted_connector_is_hidden_with_its_operations_and_still_stored() {
    let world = World::with_echo().await;
    let operations = world.app.snapshot(&ada()).await.expect("a snapshot").operations;
    assert!(operations.iter().any(|operation| operation.kind == OperationKind::Install));
    world.offer(&[release("other", "1.0.0")]).await;
    spoil(&world, "echo").await;
    let mut connector = world.stored("echo").await;
    connector.compatibility = Compatibility::removed_from_catalog();
    world.save(connector).await;

    let snapshot = world.app.snapshot(&ada()).await.expect("a snapshot");
    assert_eq!(listed(&world, &ada()).await, ["other"]);
    assert!(snapshot.operations.iter().all(|operation| operation.kind == OperationKind::RefreshCatalog));
    world.refused(world.app.connector(&key("echo")), ErrorCode::NotFound, false).await;
    assert_eq!(world.stored("echo").await.key, key("echo"));
}

async fn s007_an_unscoped_snapshot_has_no_operations() {
    let world = World::with_echo().await;
    let snapshot = world.app.snapshot(&OperationScope::default()).await.expect("a snapshot");
    assert!(snapshot.operations.is_empty());
    assert_eq!(snapshot.connectors.len(), 1);
}

async fn s008_s009_s011_an_operation_is_there_for_its_owner_alone() {
    let world = World::with_echo().await;
    let accepted = world.accept_uninstall("echo").await;
    let id = &accepted.operation.operation_id;
    assert_eq!(world.app.operation(&ada(), id).await.expect("hers").operation_id, *id);
    world.refused(world.app.operation(&bob(), id), ErrorCode::NotFound, false).await;
    let nobody = OperationScope::default();
    let hidden = world.refused(world.app.operation(&nobody, id), ErrorCode::NotFound, false).await;
    let unknown: OperationId = "unknown".parse().expect("an id");
    let missing = world.refused(world.app.operation(&nobody, &unknown), ErrorCode::NotFound, false).await;
    assert_eq!(
        hidden.message.replace(id.as_str(), ""),
        missing.message.replace("unknown", ""),
        "an operation of somebody else reads as one that is not there"
    );
}

async fn s010_s012_a_private_operation_is_there_for_nobody() {
    let world = World::with_echo().await;
    let mut operation = world.accept_uninstall("echo").await.operation;
    operation.kind = OperationKind::ReconcileRuntime;
    operation.visibility = Visibility::SystemPrivate;
    let id = operation.operation_id.clone();
    world.write(async |tx| tx.save_operation(&operation).await).await;
    world.refused(world.app.operation(&ada(), &id), ErrorCode::NotFound, false).await;
    let snapshot = world.app.snapshot(&ada()).await.expect("a snapshot");
    assert!(snapshot.operations.iter().all(|operation| operation.operation_id != id));
}

#[test]
fn s013_blank_keys_and_ids_are_refused_where_they_come_in() {
    for error in
        [ConnectorKey::parse("").expect_err("a blank key"), OperationId::parse("  ").expect_err("a blank id")]
    {
        assert_eq!((error.code, error.retryable), (ErrorCode::InvalidRequest, false));
    }
}

async fn runtime_after(world: &World, change: impl FnOnce(&mut Convergence)) -> Option<ConnectorRuntime> {
    let mut row = world.row("echo").await;
    change(&mut row);
    world.write(async |tx| tx.save_convergence(&row).await).await;
    let (_, shown) = world.app.connector_view(&ada(), &key("echo")).await.expect("a view");
    let snapshot = world.app.snapshot(&ada()).await.expect("a snapshot");
    assert_eq!(snapshot.connectors[0].1, shown, "both readings tell the same");
    shown
}

async fn s014_s016_s017_s018_s019_the_runtime_is_told_from_the_intent_and_what_was_seen() {
    let world = World::with_echo().await;
    assert_eq!(runtime_after(&world, |_| {}).await, Some(ConnectorRuntime::Started));
    let older = runtime_after(&world, |row| row.desired.generation += 1).await;
    assert_eq!(older, Some(ConnectorRuntime::Starting));
    let failed = runtime_after(&world, |row| {
        row.last_error =
            Some(OperationFailure { code: ErrorCode::ComponentInvalid, message: "no component".into() });
    });
    let failure_code = ErrorCode::ComponentInvalid;
    assert_eq!(failed.await, Some(ConnectorRuntime::Failed { failure_code }));
    let stopped = runtime_after(&world, |row| row.desired.enabled = false).await;
    assert_eq!(stopped, Some(ConnectorRuntime::Stopped));
}

async fn s019_what_an_earlier_boot_saw_is_starting() {
    let world = World::with_echo().await;
    let earlier = runtime_after(&world, |row| {
        row.observed.as_mut().expect("an observation").boot_epoch = BootEpoch::parse("earlier").expect("one");
    });
    assert_eq!(earlier.await, Some(ConnectorRuntime::Starting));
}

async fn s015_installed_without_an_intent_is_starting() {
    let world = World::with_echo().await;
    world.write(async |tx| tx.delete_convergence(&ada(), &key("echo")).await).await;
    let (_, runtime) = world.app.connector_view(&ada(), &key("echo")).await.expect("a view");
    assert_eq!(runtime, Some(ConnectorRuntime::Starting));
}

async fn s020_what_is_not_installed_has_no_runtime() {
    let world = World::new().await;
    world.offer(&[altered("echo", "1.0.0", |_| {})]).await;
    let (_, runtime) = world.app.connector_view(&ada(), &key("echo")).await.expect("a view");
    assert_eq!(runtime, None);
    let snapshot = world.app.snapshot(&ada()).await.expect("a snapshot");
    assert_eq!(snapshot.connectors[0].1, None);
}

on_every_store! {
    s001_s006_a_connector_whose_release_does_not_hold_is_hidden_and_the_others_are_not,
    s002_getting_that_connector_tells_what_does_not_hold,
    s003_s004_s005_a_delisted_connector_is_hidden_with_its_operations_and_still_stored,
    s007_an_unscoped_snapshot_has_no_operations,
    s008_s009_s011_an_operation_is_there_for_its_owner_alone,
    s010_s012_a_private_operation_is_there_for_nobody,
    s014_s016_s017_s018_s019_the_runtime_is_told_from_the_intent_and_what_was_seen,
    s019_what_an_earlier_boot_saw_is_starting,
    s015_installed_without_an_intent_is_starting,
    s020_what_is_not_installed_has_no_runtime,
}
