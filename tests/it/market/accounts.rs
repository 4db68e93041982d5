//! What an account holds, as the market's verbs take it: what it sees, what runs for
//! it, and what an installation leaves of it (J.1, J.4, J.6, J.13).

use std::sync::atomic::Ordering;

use portcullis::domain::{
    authorization::{AuthorizationProjection, AuthorizationSnapshot, AuthorizationState},
    catalog::CatalogPageQuery,
    convergence::ConnectorRuntime,
    error::ErrorCode,
    operation::{OperationKind, OperationScope, OperationState},
};

use super::{
    fakes::Fault,
    provider::{account, connection, held, installed, local, remote},
    world::{World, ada, bob, installed_version, key, state_name},
};

const CONNECTED: AuthorizationState = AuthorizationState::Connected;
const DISCONNECTED: AuthorizationState = AuthorizationState::Disconnected;

/// What the keeper of the account's truth says, in this boot.
async fn say(world: &World, revision: u64, projections: Vec<AuthorizationProjection>) {
    let truth = AuthorizationSnapshot { revision, projections };
    world.app.apply_authorizations(&account(), &truth).await.expect("applied");
    world.app.set_authorization_ready(&account(), true);
}

/// Remote "cloud", connected for ada, not installed.
async fn connected_cloud() -> World {
    let world = World::with_remote().await;
    world.offer(&[remote("cloud", "1.0.0")]).await;
    say(&world, 12, vec![held("cloud", CONNECTED, Some("one"))]).await;
    world
}

/// Local "mail", connected for ada, installed.
async fn connected_mail() -> World {
    let world = installed().await;
    world.app.observe_authorization(&held("mail", CONNECTED, Some("one"))).await.expect("observed");
    world
}

async fn state_in_snapshot(world: &World, scope: &OperationScope, name: &str) -> AuthorizationState {
    let snapshot = world.app.snapshot(scope).await.expect("a snapshot");
    let mut connectors = snapshot.connectors.into_iter().map(|(connector, _)| connector);
    connectors.find(|connector| connector.key == key(name)).expect("it is listed").authorization.state
}

async fn everybody_sees_what_they_hold_themselves() {
    let world = connected_mail().await;
    world.page("", "", &[local("mail", "1.0.0")]);
    let query = CatalogPageQuery::parse("tools", 5, "", "").expect("a query");
    let device = world.stored("mail").await.authorization.state;
    assert_eq!(device, DISCONNECTED, "the device's own field is not the account's");
    for (scope, seen) in
        [(ada(), CONNECTED), (bob(), DISCONNECTED), (OperationScope::default(), DISCONNECTED)]
    {
        assert_eq!(state_in_snapshot(&world, &scope, "mail").await, seen, "{scope:?}");
        let (connector, _) = world.app.connector_view(&scope, &key("mail")).await.expect("a view");
        assert_eq!(connector.authorization.state, seen, "{scope:?}");
        let page = world.app.catalog_page(&scope, &query).await.expect("a page");
        assert_eq!(page.items[0].connector.authorization.state, seen, "{scope:?}");
    }
    assert_eq!(world.stored("mail").await.authorization.state, device, "reading writes nothing");
}

async fn an_account_without_a_word_of_its_own_sees_the_device_in_the_snapshot_alone() {
    let world = installed().await;
    let mut mail = world.stored("mail").await;
    mail.authorization.state = CONNECTED;
    world.save(mail).await;
    assert_eq!(state_in_snapshot(&world, &bob(), "mail").await, CONNECTED);
    let (connector, _) = world.app.connector_view(&bob(), &key("mail")).await.expect("a view");
    assert_eq!(connector.authorization.state, DISCONNECTED);
}

async fn a_remote_connector_is_disconnected_until_the_accounts_truth_was_read() {
    let mut world = connected_cloud().await;
    let seen = |world: &World| {
        let app = world.app.clone();
        async move { app.connector_view(&ada(), &key("cloud")).await.expect("a view").0.authorization.state }
    };
    assert_eq!(seen(&world).await, CONNECTED);
    world.reboot();
    assert_eq!(seen(&world).await, DISCONNECTED, "not in this boot yet");
    assert!(world.app.set_authorization_ready(&account(), true), "that is news");
    assert!(!world.app.set_authorization_ready(&account(), true));
    assert_eq!(seen(&world).await, CONNECTED);
    world.hold(held("cloud", CONNECTED, Some("one"))).await;
    assert_eq!(seen(&world).await, DISCONNECTED, "it was never read from the truth");
}

async fn s280_each_account_sees_its_own_operations_and_the_same_connectors() {
    let world = installed().await;
    let hers = world.accept_uninstall("mail").await;
    let mut command = world.command("his", "cloud").await;
    command.mutation.scope = bob();
    let his = world.app.uninstall(command).await.expect("accepted");
    for (scope, own, other) in [(ada(), &hers, &his), (bob(), &his, &hers)] {
        let snapshot = world.app.snapshot(&scope).await.expect("a snapshot");
        let listed = |id| snapshot.operations.iter().any(|operation| operation.operation_id == id);
        assert!(listed(own.operation.operation_id.clone()) && !listed(other.operation.operation_id.clone()));
        let states: Vec<_> = snapshot.connectors.iter().map(|(one, _)| state_name(one)).collect();
        assert_eq!(states, ["uninstalling", "uninstalling"]);
    }
}

async fn s286_what_an_account_holds_is_in_its_snapshot_with_revision_and_cursor() {
    let world = connected_mail().await;
    let snapshot = world.app.snapshot(&ada()).await.expect("a snapshot");
    assert_eq!(snapshot.revision, world.revision().await);
    assert_eq!(snapshot.event_cursor, world.events().await.last().expect("an event").sequence);
    assert_eq!(state_in_snapshot(&world, &ada(), "mail").await, CONNECTED);
}

async fn s032_an_authorization_begins_while_the_catalog_is_refreshed() {
    let world = installed().await;
    let refresh = world.app.refresh_catalog(world.mutation("refresh").await).await.expect("accepted");
    let before = world.operation(&refresh).await;
    let result = world.pending("one", "mail").await;
    assert_eq!(result.connector.authorization.state, AuthorizationState::Pending);
    assert_eq!(world.operation(&refresh).await, before);
    world.run(&refresh).await.expect("refreshed");
}

async fn s081_an_update_asks_what_is_held_for_the_release_that_is_to_come() {
    let world = connected_mail().await;
    world.offer(&[local("mail", "2.0.0"), remote("cloud", "1.0.0")]).await;
    *world.authorization.holds.lock() = Some((CONNECTED, Some(connection("one"))));
    world.install("mail").await;
    let asked = world.authorization.inspected.lock().clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].release.version.to_string(), "2.0.0");
    assert_eq!(asked[0].installation.name(), "updating");
    assert_eq!(asked[0].installation.candidate().expect("a candidate").version.to_string(), "2.0.0");
    assert_eq!(
        asked[0].installation.installed().expect("the one before").identity.version.to_string(),
        "1.0.0"
    );
    assert_eq!(installed_version(&world.stored("mail").await), "2.0.0");
    assert!(world.host.last().enabled);
}

async fn s082_an_install_whose_remote_asks_for_an_authorization_completes_without_running() {
    let world = connected_cloud().await;
    world.host.faults.push(Fault(ErrorCode::AuthorizationFailed, false, "sign in again".into()));
    let accepted = world.accept_install("cloud").await;
    world.run(&accepted).await.expect("installed");
    assert_eq!(world.operation(&accepted).await.state, OperationState::Completed);
    let projection = world.projection("cloud").await.expect("a projection");
    assert_eq!(projection.state, AuthorizationState::Expired);
    let row = world.row("cloud").await;
    assert!(!row.desired.enabled && row.is_converged(world.app.boot_epoch()));
    let (connector, runtime) = world.app.connector_view(&ada(), &key("cloud")).await.expect("a view");
    assert_eq!((state_name(&connector), runtime), ("installed", Some(ConnectorRuntime::Stopped)));
}

async fn s112_s113_an_expired_authorization_is_noted_in_the_account_and_switches_off() {
    for (world, name) in [(connected_cloud().await, "cloud"), (connected_mail().await, "mail")] {
        if name == "cloud" {
            world.install(name).await;
        }
        let (before, installation) =
            (world.projection(name).await.expect("it"), world.stored(name).await.installation);
        world.app.prepare_runtime(&ada(), &key(name)).await.expect("planned");
        world.host.faults.push(Fault(ErrorCode::AuthorizationFailed, false, "sign in again".into()));
        world.app.converge(&ada(), &key(name)).await.expect("no error");
        let projection = world.projection(name).await.expect("it");
        let expired = AuthorizationProjection {
            state: AuthorizationState::Expired,
            updated_at: projection.updated_at,
            ..before
        };
        assert_eq!(projection, expired, "connection, versions and origin stay");
        let row = world.row(name).await;
        assert_eq!((row.attempt, row.last_error), (0, None));
        assert_eq!(
            (row.desired.enabled, row.desired.authorization_state),
            (false, AuthorizationState::Expired)
        );

        world.app.converge(&ada(), &key(name)).await.expect("switched off");
        assert!(!world.host.last().enabled);
        assert!(world.row(name).await.is_converged(world.app.boot_epoch()));
        assert_eq!(world.stored(name).await.installation, installation);
        // The next plan does not start it again.
        world.app.prepare_runtime(&ada(), &key(name)).await.expect("planned");
        assert!(!world.row(name).await.desired.enabled);
    }
}

async fn s114_the_host_learns_of_which_connection_and_truth_it_is() {
    let world = connected_cloud().await;
    let projection = AuthorizationProjection {
        connection_version: 3,
        server_revision: 12,
        server_synchronized: true,
        ..held("cloud", CONNECTED, Some("one"))
    };
    world.hold(projection).await;
    world.install("cloud").await;
    let request = world.host.last();
    assert_eq!((request.connection_version, request.server_revision), (3, 12));
    assert_eq!((request.enabled, request.authorization), (true, CONNECTED));
}

async fn s124_a_remote_runs_on_the_account_and_leaves_the_devices_field_alone() {
    let world = connected_cloud().await;
    let device = world.stored("cloud").await.authorization;
    assert_eq!(device.state, DISCONNECTED);
    world.install("cloud").await;
    assert!(world.host.last().enabled);
    assert_eq!(world.stored("cloud").await.authorization, device);
}

async fn s086_s088_an_uninstall_leaves_the_accounts_authorization_for_the_next_install() {
    for (world, name) in [(connected_cloud().await, "cloud"), (connected_mail().await, "mail")] {
        if name == "cloud" {
            world.install(name).await;
        }
        let (held, device) = (world.projection(name).await, world.stored(name).await.authorization);
        let accepted = world.accept_uninstall(name).await;
        world.run(&accepted).await.expect("uninstalled");
        assert_eq!(world.projection(name).await, held);
        assert_eq!(world.stored(name).await.authorization, device);
        assert!(world.authorization.disconnected.lock().is_empty(), "the provider was not asked");

        world.install(name).await;
        assert!(world.host.last().enabled, "{name} runs at once");
        assert!(world.authorization.begun.lock().is_empty(), "nobody authorized it again");
        let (_, runtime) = world.app.connector_view(&ada(), &key(name)).await.expect("a view");
        assert_eq!(runtime, Some(ConnectorRuntime::Started));
    }
}

async fn s284_an_attempt_is_stored_without_what_opens_it() {
    let mut world = installed().await;
    let result = world.pending("one", "mail").await;
    world.reboot();
    let open = world.open(&ada()).await;
    assert_eq!(open.len(), 1);
    assert_eq!(
        (open[0].kind, &open[0].operation_id),
        (OperationKind::StartAuthorization, &result.operation.operation_id)
    );
    let text = serde_json::to_string(&open[0]).expect("JSON");
    assert!(text.contains("session-of-"), "{text}");
    assert!(!text.contains("provider.example"), "{text}");
    // A cancellation that the provider did not confirm is still one after a restart.
    world.authorization.cancel_faults.push(Fault::of(ErrorCode::UpstreamUnavailable));
    world.app.cancel_authorization(&ada(), &key("mail")).await.expect_err("a failure");
    world.reboot();
    assert!(world.open(&ada()).await[0].open_session().expect("a receipt").is_canceling());
    world.authorization.cannot_observe.store(true, Ordering::SeqCst);
    world.app.reconcile_authorizations(&ada()).await.expect("settled");
    assert_eq!(world.open(&ada()).await, []);
}

on_every_store! {
    everybody_sees_what_they_hold_themselves,
    an_account_without_a_word_of_its_own_sees_the_device_in_the_snapshot_alone,
    a_remote_connector_is_disconnected_until_the_accounts_truth_was_read,
    s280_each_account_sees_its_own_operations_and_the_same_connectors,
    s286_what_an_account_holds_is_in_its_snapshot_with_revision_and_cursor,
    s032_an_authorization_begins_while_the_catalog_is_refreshed,
    s081_an_update_asks_what_is_held_for_the_release_that_is_to_come,
    s082_an_install_whose_remote_asks_for_an_authorization_completes_without_running,
    s112_s113_an_expired_authorization_is_noted_in_the_account_and_switches_off,
    s114_the_host_learns_of_which_connection_and_truth_it_is,
    s124_a_remote_runs_on_the_account_and_leaves_the_devices_field_alone,
    s086_s088_an_uninstall_leaves_the_accounts_authorization_for_the_next_install,
    s284_an_attempt_is_stored_without_what_opens_it,
}
