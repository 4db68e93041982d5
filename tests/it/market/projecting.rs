//! What accounts hold: projections and their truth (J.8, 167 and 168; J.13, 285 to
//! 291), and what of it a connector runs on (J.6 and J.7).

use std::time::Duration;

use portcullis::{
    domain::{
        authorization::{AuthorizationProjection, AuthorizationSnapshot, AuthorizationState},
        error::ErrorCode,
        id::ConnectionId,
        installation::Installation,
        revision::Revision,
    },
    ports::Clock as _,
};

use super::{
    fakes::Fault,
    provider::{account, connection, held, installed, local, remote},
    world::{World, ada, altered, bob, key},
};

use AuthorizationState::{Connected, Disconnected, Expired, Failed, Pending};

fn truth(revision: u64, projections: Vec<AuthorizationProjection>) -> AuthorizationSnapshot {
    AuthorizationSnapshot { revision, projections }
}

async fn apply(world: &World, truth: &AuthorizationSnapshot) -> Vec<String> {
    let applied = world.app.apply_authorizations(&account(), truth).await.expect("applied");
    applied.changed.iter().map(ToString::to_string).collect()
}

async fn state(world: &World, connector: &str) -> Option<AuthorizationState> {
    world.projection(connector).await.map(|projection| projection.state)
}

/// A remote "cloud" that its account is connected with, read in this boot.
async fn with_cloud() -> World {
    let world = installed().await;
    apply(&world, &truth(12, vec![held("cloud", Connected, Some("server-1"))])).await;
    world.app.set_authorization_ready(&account(), true);
    world.app.reconcile_runtime(&ada(), &key("cloud")).await.expect("the runtime follows");
    world
}

async fn s167_s168_the_runtime_follows_what_is_observed_and_the_installation_stays() {
    let world = installed().await;
    let installation = world.stored("mail").await.installation;
    let observed = held("mail", Connected, Some("connection-1"));
    world.app.observe_authorization(&observed).await.expect("observed");
    let request = world.host.last();
    assert_eq!((request.enabled, &request.connection_id), (true, &connection("connection-1")));
    world.app.observe_authorization(&held("mail", Expired, None)).await.expect("observed");
    assert!(!world.host.last().enabled);
    assert_eq!(world.stored("mail").await.installation, installation);
    let asked = world.host.count();
    world.app.observe_authorization(&held("mail", Expired, None)).await.expect("observed");
    assert_eq!(world.host.count(), asked, "the same again asks the host nothing");
}

async fn what_no_account_can_hold_is_refused() {
    let world = installed().await;
    for (observed, code) in [
        (held("mail", AuthorizationState::NotRequired, None), ErrorCode::InvalidRequest),
        (held("mail", Connected, None), ErrorCode::InstallFailed),
        (held("unknown", Disconnected, None), ErrorCode::NotFound),
    ] {
        world.refused(world.app.observe_authorization(&observed), code, false).await;
    }
}

async fn s285_projections_are_apart_by_account() {
    let world = installed().await;
    world.app.observe_authorization(&held("mail", Connected, Some("adas"))).await.expect("observed");
    let bobs = bob().account_id.expect("an account");
    let observed = AuthorizationProjection { account_id: bobs, ..held("mail", Failed, None) };
    world.app.observe_authorization(&observed).await.expect("observed");
    for (scope, expected) in [(ada(), Connected), (bob(), Failed)] {
        let snapshot = world.app.snapshot(&scope).await.expect("a snapshot");
        let (mail, _) = snapshot.connectors.iter().find(|(one, _)| one.key == key("mail")).expect("mail");
        assert_eq!(mail.authorization.state, expected);
    }
}

async fn s286_s287_readers_are_told_of_what_they_would_see_and_of_nothing_else() {
    let world = installed().await;
    let observed = held("mail", Failed, None);
    world.app.observe_authorization(&observed).await.expect("observed");
    let snapshot = world.app.snapshot(&ada()).await.expect("a snapshot");
    assert_eq!(snapshot.revision, world.revision().await);
    assert_eq!(snapshot.event_cursor, world.events().await.last().expect("an event").sequence);

    let (revision, events) = (world.revision().await, world.events().await);
    let touched = AuthorizationProjection { updated_at: world.clock.now(), ..observed };
    world.app.observe_authorization(&touched).await.expect("observed");
    assert_eq!(world.projection("mail").await, Some(touched));
    assert_eq!((world.revision().await, world.events().await), (revision, events));
}

async fn s288_s289_what_the_account_says_gives_way_to_a_newer_saying_only() {
    let world = with_cloud().await;
    let before = world.projection("cloud").await;
    let local = held("cloud", Failed, None);
    let older = AuthorizationProjection { server_synchronized: true, server_revision: 11, ..local.clone() };
    for observed in [local, older.clone()] {
        world.app.observe_authorization(&observed).await.expect("observed");
        assert_eq!(world.projection("cloud").await, before);
    }
    let newer = AuthorizationProjection { server_revision: 13, ..older };
    world.app.observe_authorization(&newer).await.expect("observed");
    assert_eq!(state(&world, "cloud").await, Some(Failed));
}

async fn s290_what_a_newer_truth_does_not_list_is_disconnected() {
    let world = with_cloud().await;
    world.connect("mail", "connection-1").await;
    let revision = world.revision().await;
    assert_eq!(apply(&world, &truth(13, Vec::new())).await, ["cloud"]);
    let projection = world.projection("cloud").await.expect("a projection");
    assert_eq!((projection.state, projection.connection_id), (Disconnected, None));
    assert_eq!(projection.server_revision, 13);
    assert_eq!(state(&world, "mail").await, Some(Connected), "only this host knows of it");
    assert_eq!(world.revision().await, revision.next());
    assert_eq!(world.stored("cloud").await.revision, revision.next());
}

async fn s291_a_truth_that_is_not_newer_changes_nothing_and_still_tells_open_attempts() {
    let world = installed().await;
    world.pending("one", "cloud").await;
    let connected = truth(12, vec![held("cloud", Connected, Some("server-1"))]);
    apply(&world, &connected).await;
    let before = world.state().await;
    for again in [connected, truth(11, Vec::new())] {
        let applied = world.app.apply_authorizations(&account(), &again).await.expect("applied");
        assert_eq!((applied.changed, applied.pending_receipts), (vec![], vec![key("cloud")]));
    }
    assert_eq!(world.state().await, before);
    let bobs = bob().account_id.expect("an account");
    let others = world.app.apply_authorizations(&bobs, &truth(1, Vec::new())).await.expect("applied");
    assert_eq!(others.pending_receipts, []);
}

async fn a_truth_at_revision_0_is_told_from_none() {
    let world = installed().await;
    assert_eq!(apply(&world, &truth(0, vec![held("cloud", Disconnected, None)])).await, ["cloud"]);
    assert!(world.projection("cloud").await.expect("a projection").server_synchronized);
    assert!(apply(&world, &truth(0, Vec::new())).await.is_empty());
}

async fn a_truth_is_applied_whole_and_in_the_order_of_keys() {
    let world = installed().await;
    let revision = world.revision().await;
    let both = vec![held("mail", Connected, Some("server-2")), held("cloud", Connected, Some("server-1"))];
    assert_eq!(apply(&world, &truth(1, both)).await, ["cloud", "mail"]);
    assert_eq!(world.stored("cloud").await.revision, Revision(revision.0 + 1));
    assert_eq!(world.stored("mail").await.revision, Revision(revision.0 + 2));
}

async fn a_truth_that_contradicts_itself_changes_nothing() {
    let world = with_cloud().await;
    let bobs = bob().account_id.expect("an account");
    for wrong in [
        vec![held("mail", Connected, Some("one")), held("mail", Disconnected, None)],
        vec![held("mail", Connected, None)],
        vec![AuthorizationProjection { account_id: bobs, ..held("mail", Disconnected, None) }],
    ] {
        let (account, truth) = (account(), truth(20, wrong));
        let attempt = world.app.apply_authorizations(&account, &truth);
        world.refused(attempt, ErrorCode::UpstreamUnavailable, false).await;
    }
}

async fn s132_s134_a_local_connection_identifies_the_route() {
    let world = installed().await;
    world.connect("mail", "connection-1").await;
    assert_eq!(world.host.last().connection_id, connection("connection-1"));
    world.app.fence_installed(&ada()).await.expect("fenced");
    let fenced = world.host.deactivated.lock().clone();
    let mail = fenced.iter().find(|one| one.connector_key == key("mail")).expect("mail was fenced");
    assert_eq!(mail.connection_id, Some(connection("connection-1")));
}

async fn s133_what_an_account_no_longer_holds_does_not_run() {
    for lost in [Expired, Failed, Pending, Disconnected] {
        let world = installed().await;
        world.app.observe_authorization(&held("mail", lost, None)).await.expect("observed");
        let desired = world.row("mail").await.desired;
        assert_eq!((desired.enabled, desired.authorization_state), (false, lost));
        let expected = ConnectionId::account(Some(&account()), &key("mail"));
        assert_eq!(desired.connection_id, expected);
    }
    let world = installed().await;
    let kept = held("mail", Expired, Some("connection-1"));
    world.app.observe_authorization(&kept).await.expect("observed");
    assert_eq!(world.host.last().connection_id, connection("connection-1"));
}

async fn s114_s136_s139_a_remote_route_is_the_accounts_whatever_connection_is_behind_it() {
    let world = with_cloud().await;
    let request = world.host.last();
    assert_eq!(request.connection_id, ConnectionId::account(Some(&account()), &key("cloud")));
    assert!(request.enabled);
    assert_eq!((request.connection_version, request.server_revision), (1, 12));
}

async fn s114_versions_are_forwarded() {
    let world = installed().await;
    let projection =
        AuthorizationProjection { connection_version: 3, ..held("cloud", Connected, Some("server-1")) };
    apply(&world, &truth(12, vec![projection])).await;
    world.app.set_authorization_ready(&account(), true);
    world.app.reconcile_runtime(&ada(), &key("cloud")).await.expect("the runtime follows");
    let request = world.host.last();
    assert_eq!((request.connection_version, request.server_revision), (3, 12));
}

async fn s137_a_remote_connector_waits_until_the_accounts_truth_was_read_in_this_boot() {
    let mut world = with_cloud().await;
    world.reboot();
    world.app.restart_runtime(&ada(), &key("cloud")).await.expect("the runtime follows");
    let request = world.host.last();
    assert_eq!((request.enabled, request.authorization), (false, Disconnected));
    let (cloud, _) = world.app.connector_view(&ada(), &key("cloud")).await.expect("a view");
    assert_eq!(cloud.authorization.state, Disconnected);
    assert!(world.app.set_authorization_ready(&account(), true), "it is news");
    assert!(!world.app.set_authorization_ready(&account(), true), "it is no news");
    world.app.reconcile_runtime(&ada(), &key("cloud")).await.expect("the runtime follows");
    assert!(world.host.last().enabled);
    world.app.set_authorization_ready(&account(), false);
    world.app.restart_runtime(&ada(), &key("cloud")).await.expect("the runtime follows");
    assert!(!world.host.last().enabled);
}

async fn s138_a_remote_connector_needs_the_accounts_own_word() {
    let world = installed().await;
    world.app.set_authorization_ready(&account(), true);
    let observed = held("cloud", Connected, Some("server-1"));
    world.app.observe_authorization(&observed).await.expect("observed");
    world.app.restart_runtime(&ada(), &key("cloud")).await.expect("the runtime follows");
    assert!(!world.host.last().enabled);
}

async fn s141_s142_a_remote_connector_without_authorization_needs_an_account() {
    for (scope, enabled) in [(Default::default(), false), (ada(), true)] {
        let world = World::with_remote().await;
        let open = altered("open", "1.0.0", |manifest| {
            manifest["requiredCapabilities"] = serde_json::json!(["tools"]);
            manifest["implementation"] = serde_json::json!({
                "kind": "remote_streamable_http",
                "endpoint": "https://mcp.example.org/",
                "authentication": "none",
                "allowedHosts": ["mcp.example.org"],
            });
        });
        world.offer(&[open]).await;
        let mut command = world.command("one", "open").await;
        command.mutation.scope = scope.clone();
        let accepted = world.app.install(command).await.expect("accepted");
        world.run(&accepted).await.expect("installed");
        let request = world.host.last();
        let expected = ConnectionId::account(scope.account_id.as_ref(), &key("open"));
        assert_eq!((request.enabled, request.connection_id), (enabled, expected));
    }
}

async fn s112_s113_an_authorization_that_the_upstream_refuses_is_expired_and_stays_off() {
    let world = with_cloud().await;
    world.host.faults.push(Fault(ErrorCode::AuthorizationFailed, false, "revoked".into()));
    world.app.restart_runtime(&ada(), &key("cloud")).await.expect("planned off and seen so");
    let projection = world.projection("cloud").await.expect("a projection");
    assert_eq!(projection.state, Expired);
    assert_eq!(projection.connection_id, Some(connection("server-1")));
    assert_eq!((projection.server_revision, projection.server_synchronized), (12, true));
    let row = world.row("cloud").await;
    assert_eq!((row.desired.enabled, row.desired.authorization_state), (false, Expired));
    assert_eq!((row.attempt, &row.last_error), (0, &None));
    assert!(!world.host.last().enabled);
    assert!(matches!(world.stored("cloud").await.installation, Installation::Installed { .. }));
    let asked = world.host.count();
    world.app.reconcile_runtime(&ada(), &key("cloud")).await.expect("nothing to do");
    assert_eq!(world.host.count(), asked);
}

async fn s082_an_install_completes_although_the_upstream_refuses() {
    let world = World::with_remote().await;
    world.offer(&[remote("cloud", "1.0.0")]).await;
    apply(&world, &truth(12, vec![held("cloud", Connected, Some("server-1"))])).await;
    world.app.set_authorization_ready(&account(), true);
    world.host.faults.push(Fault(ErrorCode::AuthorizationFailed, false, "revoked".into()));
    world.install("cloud").await;
    assert_eq!(state(&world, "cloud").await, Some(Expired));
    assert!(matches!(world.stored("cloud").await.installation, Installation::Installed { .. }));
    assert!(!world.row("cloud").await.desired.enabled);
}

async fn s085_s086_an_uninstall_leaves_authorization_alone() {
    let world = with_cloud().await;
    world.connect("mail", "connection-1").await;
    let before = (world.projection("mail").await, world.projection("cloud").await);
    for connector in ["mail", "cloud"] {
        let accepted = world.accept_uninstall(connector).await;
        world.run(&accepted).await.expect("uninstalled");
        assert!(!world.host.last().enabled);
    }
    assert_eq!((world.projection("mail").await, world.projection("cloud").await), before);
    assert_eq!(world.stored("mail").await.authorization.state, Connected);
    assert_eq!(world.authorization.disconnected.lock().len(), 0);
}

async fn s087_s088_an_authorization_outlives_an_uninstall_and_is_used_again() {
    let world = with_cloud().await;
    let accepted = world.accept_uninstall("cloud").await;
    world.run(&accepted).await.expect("uninstalled");
    let asked = world.host.count();
    world.app.reconcile_runtime(&ada(), &key("cloud")).await.expect("skipped");
    assert_eq!(world.host.count(), asked);
    world.install("cloud").await;
    assert!(world.host.last().enabled);
}

async fn s124_a_remote_route_looks_at_the_account_and_not_at_the_device() {
    let world = with_cloud().await;
    assert_eq!(world.stored("cloud").await.authorization.state, Disconnected);
    assert_eq!(world.host.last().authorization, Connected);
}

async fn s125_a_binding_that_changed_after_planning_is_planned_anew_without_asking_the_host() {
    let world = installed().await;
    world.connect("mail", "connection-1").await;
    let generation = world.row("mail").await.desired.generation;
    world.write(async |tx| tx.save_authorization_projection(&held("mail", Expired, None)).await).await;
    let mut row = world.row("mail").await;
    row.observed = None;
    world.write(async |tx| tx.save_convergence(&row).await).await;
    let asked = world.host.count();
    world.app.converge(&ada(), &key("mail")).await.expect("planned anew");
    assert_eq!(world.host.count(), asked);
    let row = world.row("mail").await;
    assert!(row.desired.generation > generation);
    assert!(!row.desired.enabled);
}

async fn s081_the_provider_is_asked_what_it_holds_for_the_candidate_before_it_starts() {
    let world = installed().await;
    *world.authorization.holds.lock() = Some((Connected, Some(connection("connection-1"))));
    world.connect("mail", "connection-1").await;
    world.offer(&[local("mail", "2.0.0"), remote("cloud", "1.0.0")]).await;
    world.install("mail").await;
    let seen = world.authorization.inspected.lock().last().cloned().expect("it was asked");
    assert_eq!(seen.release.version.to_string(), "2.0.0");
    assert!(matches!(seen.installation, Installation::Updating { .. }));
    assert!(world.host.last().enabled);
}

async fn what_a_provider_lost_is_not_started() {
    let world = installed().await;
    world.connect("mail", "connection-1").await;
    *world.authorization.holds.lock() = Some((Expired, None));
    world.app.restart_runtime(&ada(), &key("mail")).await.expect("planned off");
    assert!(!world.host.last().enabled);
    assert_eq!(world.stored("mail").await.authorization.state, Expired);
    assert_eq!(state(&world, "mail").await, Some(Expired));
}

async fn a_providers_invalid_word_starts_nothing() {
    let world = installed().await;
    world.connect("mail", "connection-1").await;
    *world.authorization.holds.lock() = Some((Connected, None));
    let asked = world.host.count();
    let restart = world.app.restart_runtime(&ada(), &key("mail")).await;
    assert_eq!(restart.expect_err("an invalid word").code, ErrorCode::InstallFailed);
    assert_eq!(world.host.count(), asked);
    assert_eq!(world.row("mail").await.attempt, 1);
    *world.authorization.holds.lock() = None;
    world.clock.advance(Duration::from_secs(3));
    world.app.converge(&ada(), &key("mail")).await.expect("it starts");
    assert!(world.host.last().enabled);
}

on_every_store! {
    s167_s168_the_runtime_follows_what_is_observed_and_the_installation_stays,
    what_no_account_can_hold_is_refused,
    s285_projections_are_apart_by_account,
    s286_s287_readers_are_told_of_what_they_would_see_and_of_nothing_else,
    s288_s289_what_the_account_says_gives_way_to_a_newer_saying_only,
    s290_what_a_newer_truth_does_not_list_is_disconnected,
    s291_a_truth_that_is_not_newer_changes_nothing_and_still_tells_open_attempts,
    a_truth_at_revision_0_is_told_from_none,
    a_truth_is_applied_whole_and_in_the_order_of_keys,
    a_truth_that_contradicts_itself_changes_nothing,
    s132_s134_a_local_connection_identifies_the_route,
    s133_what_an_account_no_longer_holds_does_not_run,
    s114_s136_s139_a_remote_route_is_the_accounts_whatever_connection_is_behind_it,
    s114_versions_are_forwarded,
    s137_a_remote_connector_waits_until_the_accounts_truth_was_read_in_this_boot,
    s138_a_remote_connector_needs_the_accounts_own_word,
    s141_s142_a_remote_connector_without_authorization_needs_an_account,
    s112_s113_an_authorization_that_the_upstream_refuses_is_expired_and_stays_off,
    s082_an_install_completes_although_the_upstream_refuses,
    s085_s086_an_uninstall_leaves_authorization_alone,
    s087_s088_an_authorization_outlives_an_uninstall_and_is_used_again,
    s124_a_remote_route_looks_at_the_account_and_not_at_the_device,
    s125_a_binding_that_changed_after_planning_is_planned_anew_without_asking_the_host,
    s081_the_provider_is_asked_what_it_holds_for_the_candidate_before_it_starts,
    what_a_provider_lost_is_not_started,
    a_providers_invalid_word_starts_nothing,
}
