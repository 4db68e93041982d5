//! What an account holds, as the market's verbs take it: what it sees, what runs for
//! it, and what an installation leaves of it (J.1, J.4, J.6, J.13).

use std::sync::atomic::Ordering;

use portcullis::domain::{
    authorization::{AuthorizationProjection, AuthorizationSnapshot, AuthorizationState},
    catalog::CatalogPageQuery,
    error::ErrorCode,
    operation::{OperationKind, OperationScope},
};

use super::{
    fakes::Fault,
    provider::{account, held, installed, local, remote},
    world::{World, ada, bob, key, state_name},
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

async fn s032_an_authorization_begins_while_the_catalog_is_refreshed() {
    let world = installed().await;
    let refresh = world.app.refresh_catalog(world.mutation("refresh").await).await.expect("accepted");
    let before = world.operation(&refresh).await;
    let result = world.pending("one", "mail").await;
    assert_eq!(result.connector.authorization.state, AuthorizationState::Pending);
    assert_eq!(world.operation(&refresh).await, before);
    world.run(&refresh).await.expect("refreshed");
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

async fn a_truth_may_name_connectors_that_no_catalog_lists() {
    let world = connected_cloud().await;
    let listed = vec![held("cloud", CONNECTED, Some("one")), held("unknown", CONNECTED, Some("two"))];
    let truth = AuthorizationSnapshot { revision: 13, projections: listed };
    let applied = world.app.apply_authorizations(&account(), &truth).await.expect("applied");
    assert_eq!(applied.changed, [key("unknown")]);
    assert_eq!(world.store.connector(&key("unknown")).await.expect("a reading"), None);
}

on_every_store! {
    everybody_sees_what_they_hold_themselves,
    an_account_without_a_word_of_its_own_sees_the_device_in_the_snapshot_alone,
    a_remote_connector_is_disconnected_until_the_accounts_truth_was_read,
    s280_each_account_sees_its_own_operations_and_the_same_connectors,
    s032_an_authorization_begins_while_the_catalog_is_refreshed,
    s284_an_attempt_is_stored_without_what_opens_it,
    a_truth_may_name_connectors_that_no_catalog_lists,
}
