//! Acceptance and idempotency (J.2).

use std::time::Duration;

use portcullis::{
    domain::{
        catalog::CatalogState,
        error::ErrorCode,
        id::ClientRequestId,
        installation::{FailureCode, Installation},
        operation::{OperationKind, OperationState, Stage},
        revision::Revision,
    },
    market::ConnectorMutation,
    ports::{CleanupRequest, Clock},
};

use super::{
    fakes::Fault,
    world::{World, ada, altered, bob, installed_version, key, release, request_id, state_name},
};

async fn world() -> World {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0"), release("feeds", "1.0.0")]).await;
    world
}

async fn s021_the_same_command_again_is_the_same_operation() {
    let world = world().await;
    let command = world.command("one", "echo").await;
    let first = world.app.install(command.clone()).await.expect("accepted");
    let events = world.events().await.len();
    let again = world.app.install(command).await.expect("replayed");
    assert_eq!(again.operation, first.operation);
    assert_eq!(again.revision, first.revision);
    assert_eq!(again.connector, first.connector);
    let hints = world.scheduler.scheduled.lock().clone();
    assert_eq!(hints.iter().filter(|id| **id == first.operation.operation_id).count(), 2);
    assert_eq!(world.events().await.len(), events, "a replay announces nothing");
    assert_eq!(world.revision().await, first.revision);
}

async fn s022_a_stale_revision_is_refused() {
    let world = world().await;
    let mut command = world.command("one", "echo").await;
    command.mutation.expected_revision.0 -= 1;
    world.refused(world.app.install(command), ErrorCode::RevisionConflict, true).await;
    let mut mutation = world.mutation("two").await;
    mutation.expected_revision.0 += 1;
    world.refused(world.app.refresh_catalog(mutation), ErrorCode::RevisionConflict, true).await;
}

async fn s023_a_connectors_own_revision_stands_in_for_the_global_one() {
    let world = world().await;
    for name in ["echo", "feeds"] {
        let mut command = world.command(name, name).await;
        command.mutation.expected_revision = Revision(0);
        command.expected_connector_revision = Some(world.stored(name).await.revision);
        world.app.install(command).await.expect("accepted");
    }
}

async fn s024_a_wrong_connector_revision_is_refused_whatever_the_global_one_is() {
    let world = world().await;
    let mut command = world.command("one", "echo").await;
    command.expected_connector_revision = Some(Revision(99));
    world.refused(world.app.install(command), ErrorCode::RevisionConflict, true).await;
}

async fn s025_a_second_operation_in_the_lane_is_refused() {
    let world = world().await;
    world.accept_install("echo").await;
    let command = world.command("two", "echo").await;
    world.refused(world.app.uninstall(command), ErrorCode::OperationInProgress, true).await;
    world.accept_install("feeds").await;
}

async fn s026_the_lane_is_one_for_all_accounts() {
    let world = world().await;
    let hers = world.accept_install("echo").await;
    let mut command = world.command("two", "echo").await;
    command.mutation.scope = bob();
    let error = world.refused(world.app.install(command), ErrorCode::OperationInProgress, true).await;
    assert!(
        !error.message.contains(hers.operation.operation_id.as_str()),
        "another's operation is not named"
    );
}

async fn s027_a_request_id_belongs_to_its_account() {
    let world = World::with_echo().await;
    let hers = world.accept_uninstall("echo").await;
    world.run(&hers).await.expect("uninstalled");
    let mut command = world.command(hers.operation.client_request_id.as_str(), "echo").await;
    command.mutation.scope = bob();
    let his = world.app.install(command).await.expect("accepted");
    assert_ne!(his.operation.operation_id, hers.operation.operation_id);
    assert_eq!(his.operation.owner_account_id, bob().account_id);
}

async fn s028_a_request_id_is_not_used_for_another_command() {
    let world = world().await;
    let first = world.app.install(world.command("one", "echo").await).await.expect("accepted");
    let other = world.command("one", "feeds").await;
    world.refused(world.app.install(other), ErrorCode::InvalidRequest, false).await;
    let other = world.command("one", "echo").await;
    world.refused(world.app.uninstall(other), ErrorCode::InvalidRequest, false).await;
    let other = world.mutation("one").await;
    world.refused(world.app.refresh_catalog(other), ErrorCode::InvalidRequest, false).await;
    assert_eq!(world.operation(&first).await.state, OperationState::Accepted);
}

async fn s029_s030_a_request_id_counts_as_long_as_its_operation_is_kept() {
    let world = world().await;
    let command = world.command("one", "echo").await;
    let first = world.app.install(command.clone()).await.expect("accepted");
    world.run(&first).await.expect("installed");
    let hints = world.scheduler.count();
    let again = world.app.install(command.clone()).await.expect("replayed");
    assert_eq!(again.operation.operation_id, first.operation.operation_id);
    assert_eq!(again.operation.state, OperationState::Completed);
    assert_eq!(world.scheduler.count(), hints, "what has ended is not scheduled");

    world.clock.advance(Duration::from_secs(1));
    let request = CleanupRequest {
        operations_ended_by: world.clock.now(),
        events_published_by: world.clock.now(),
        batch: 500,
    };
    world.store.clean_up(&request).await.expect("a cleanup");
    world.refused(world.app.install(command), ErrorCode::RevisionConflict, true).await;
    let fresh = world.app.install(world.command("one", "echo").await).await.expect("accepted");
    assert_ne!(fresh.operation.operation_id, first.operation.operation_id);
}

#[test]
fn s031_a_blank_request_id_is_refused_where_it_comes_in() {
    let error = ClientRequestId::parse(" ").expect_err("a blank id");
    assert_eq!((error.code, error.retryable), (ErrorCode::InvalidRequest, false));
}

async fn s033_the_catalogs_lane_is_its_own() {
    let world = world().await;
    world.accept_install("echo").await;
    let refresh = world.app.refresh_catalog(world.mutation("two").await).await.expect("accepted");
    assert_eq!(refresh.operation.connector_key, None);
    assert_eq!(world.store.snapshot().await.expect("a snapshot").catalog_state, CatalogState::Refreshing);
}

async fn s034_a_second_refresh_is_refused() {
    let world = world().await;
    world.app.refresh_catalog(world.mutation("one").await).await.expect("accepted");
    let second = world.mutation("two").await;
    world.refused(world.app.refresh_catalog(second), ErrorCode::OperationInProgress, true).await;
}

async fn s035_the_acceptance_is_announced_with_it() {
    let world = world().await;
    let before = world.events().await.len();
    let accepted = world.accept_install("echo").await;
    let events = world.events().await.split_off(before);
    assert_eq!(events.len(), 2, "one for the owner, one for the machine");
    assert_eq!(events[0].operation_id.as_ref(), Some(&accepted.operation.operation_id));
    assert_eq!(events[0].owner_account_id, ada().account_id);
    assert_eq!(events[1].operation_id, None);
    assert!(events.iter().all(|event| event.revision == accepted.revision));
    assert_eq!(accepted.connector.expect("the connector").revision, accepted.revision);
}

async fn s036_a_hint_that_fails_leaves_the_command_accepted() {
    let world = world().await;
    world.scheduler.faults.push(Fault::of(ErrorCode::Unavailable));
    let command = world.command("one", "echo").await;
    let error = world.app.install(command.clone()).await.expect_err("no hint");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
    let waiting = world.app.recoverable_operations().await.expect("operations");
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].state, OperationState::Accepted);
    let again = world.app.install(command).await.expect("replayed");
    assert_eq!(again.operation.operation_id, waiting[0].operation_id);
}

async fn no_id_to_be_had_is_refused_and_stores_nothing() {
    let world = world().await;
    world.ids.faults.push(Fault::of(ErrorCode::Unavailable));
    let command = world.command("one", "echo").await;
    world.refused(world.app.install(command), ErrorCode::Unavailable, true).await;
}

async fn s037_what_does_not_run_here_is_not_installed() {
    let cases = [
        (
            "product",
            altered("echo", "1.0.0", |m| m["compatibility"] = serde_json::json!({"products": ["x"]})),
        ),
        (
            "platform",
            altered("echo", "1.0.0", |m| m["compatibility"] = serde_json::json!({"platforms": ["x"]})),
        ),
        (
            "version",
            altered("echo", "1.0.0", |m| {
                m["compatibility"] = serde_json::json!({"minimumHostVersion": "1.2.1"});
            }),
        ),
        (
            "implementation",
            altered("echo", "1.0.0", |m| {
                m["requiredCapabilities"] = serde_json::json!(["tools"]);
                m["implementation"] = serde_json::json!({
                    "kind": "remote_streamable_http",
                    "endpoint": "https://mcp.example.org/mcp",
                    "authentication": "none",
                    "allowedHosts": ["mcp.example.org"]
                });
            }),
        ),
    ];
    for (what, release) in cases {
        let world = World::new().await;
        world.offer(&[release]).await;
        let command = world.command("one", "echo").await;
        let error = world.refused(world.app.install(command), ErrorCode::Incompatible, false).await;
        assert!(error.message.contains(&format!("unsupported_{what}")), "{error}");
    }
}

async fn a_host_as_new_as_asked_for_will_do() {
    let world = World::new().await;
    let exact = altered("echo", "1.0.0", |manifest| {
        manifest["compatibility"] = serde_json::json!({
            "products": ["other", "portcullis"], "platforms": ["linux-amd64"], "minimumHostVersion": "1.2.0"
        });
    });
    world.offer(&[exact]).await;
    world.accept_install("echo").await;
}

async fn s038_an_update_without_its_operation_is_not_begun_again() {
    let world = World::with_echo().await;
    let mut connector = world.stored("echo").await;
    let installed = connector.installation.installed().expect("installed").clone();
    connector.installation = Installation::Updating { installed, candidate: None };
    world.save(connector).await;
    let command = world.command("one", "echo").await;
    world.refused(world.app.install(command), ErrorCode::OperationInProgress, true).await;
}

async fn s039_s040_a_repair_forgets_the_evidence_first() {
    for code in [FailureCode::PHYSICALLY_ABSENT, FailureCode::PHYSICALLY_INVALID] {
        let world = World::with_echo().await;
        let mut connector = world.stored("echo").await;
        let installed = connector.installation.installed().cloned();
        connector.installation = Installation::Failed { failure_code: FailureCode(code.into()), installed };
        world.save(connector).await;
        let accepted = world.accept_install("echo").await;
        let connector = accepted.connector.clone().expect("the connector");
        assert_eq!(connector.installation, Installation::Installing { installed: None, candidate: None });
        let host_calls = world.host.count();
        world.run(&accepted).await.expect("repaired");
        assert_eq!(world.host.count(), host_calls + 1, "what was repaired is started anew");
        assert_eq!(installed_version(&world.stored("echo").await), "1.0.0");
    }
}

async fn s041_an_update_keeps_what_is_installed() {
    let world = World::with_echo().await;
    world.offer(&[release("echo", "2.0.0")]).await;
    let accepted = world.accept_install("echo").await;
    let connector = accepted.connector.expect("the connector");
    assert_eq!(state_name(&connector), "updating");
    assert_eq!(installed_version(&connector), "1.0.0");
    let target = accepted.operation.target.expect("a target");
    assert_eq!(target.identity.version.to_string(), "2.0.0");
    assert!(target.release.is_some(), "the whole release is frozen");
    assert_eq!(accepted.operation.stage, Stage::Accepted);
    let generation = accepted.operation.generation.expect("a generation");
    assert_eq!((generation.boot_epoch.as_str(), generation.number), ("boot-1", accepted.revision.0));
}

async fn s042_what_is_not_installed_is_not_uninstalled() {
    let world = world().await;
    let command = world.command("one", "echo").await;
    world.refused(world.app.uninstall(command), ErrorCode::OperationInProgress, true).await;
}

async fn an_unknown_connector_is_not_found() {
    let world = world().await;
    let command = world.command("one", "nothing").await;
    world.refused(world.app.install(command.clone()), ErrorCode::NotFound, false).await;
    world.refused(world.app.uninstall(command), ErrorCode::NotFound, false).await;
}

async fn a_signed_out_command_is_private() {
    let world = world().await;
    let mut command = world.command("one", "echo").await;
    command.mutation.scope = Default::default();
    let command = ConnectorMutation { connector_key: key("echo"), ..command };
    let accepted = world.app.install(command).await.expect("accepted");
    assert_eq!(accepted.operation.kind, OperationKind::Install);
    assert_eq!(accepted.operation.client_request_id, request_id("one"));
    let id = &accepted.operation.operation_id;
    world.refused(world.app.operation(&Default::default(), id), ErrorCode::NotFound, false).await;
}

on_every_store! {
    s021_the_same_command_again_is_the_same_operation,
    s022_a_stale_revision_is_refused,
    s023_a_connectors_own_revision_stands_in_for_the_global_one,
    s024_a_wrong_connector_revision_is_refused_whatever_the_global_one_is,
    s025_a_second_operation_in_the_lane_is_refused,
    s026_the_lane_is_one_for_all_accounts,
    s027_a_request_id_belongs_to_its_account,
    s028_a_request_id_is_not_used_for_another_command,
    s029_s030_a_request_id_counts_as_long_as_its_operation_is_kept,
    s033_the_catalogs_lane_is_its_own,
    s034_a_second_refresh_is_refused,
    s035_the_acceptance_is_announced_with_it,
    s036_a_hint_that_fails_leaves_the_command_accepted,
    no_id_to_be_had_is_refused_and_stores_nothing,
    s037_what_does_not_run_here_is_not_installed,
    a_host_as_new_as_asked_for_will_do,
    s038_an_update_without_its_operation_is_not_begun_again,
    s039_s040_a_repair_forgets_the_evidence_first,
    s041_an_update_keeps_what_is_installed,
    s042_what_is_not_installed_is_not_uninstalled,
    an_unknown_connector_is_not_found,
    a_signed_out_command_is_private,
}
