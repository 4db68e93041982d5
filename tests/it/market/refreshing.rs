//! Refreshing the catalog (J.3, 58 to 68).

use portcullis::domain::{
    authorization::AuthorizationState,
    catalog::{CatalogPageQuery, CatalogState},
    compatibility::CompatibilityState,
    error::ErrorCode,
    operation::{OperationState, Stage},
    release::{Release, ReleaseStatus},
};

use super::{
    fakes::Fault,
    world::{World, ada, altered, broken, key, release},
};

/// Refreshes from these and expects the operation to fail with `code`, keeping
/// what was stored.
async fn fails(world: &World, releases: &[Release], code: ErrorCode) {
    let before = world.store.snapshot().await.expect("a snapshot");
    *world.catalog.contents.lock() = releases.to_vec();
    let mutation = world.mutation(&format!("failing-{}", before.revision)).await;
    let accepted = world.app.refresh_catalog(mutation).await.expect("accepted");
    world.run(&accepted).await.expect_err("a failure");
    let after = world.store.snapshot().await.expect("a snapshot");
    assert_eq!(after.catalog_state, CatalogState::Stale);
    assert_eq!(after.connectors, before.connectors, "nothing of it is applied");
    assert_eq!(after.source_revision, before.source_revision);
    let operation = world.operation(&accepted).await;
    let OperationState::Failed { failure_code, failure } = operation.state else {
        panic!("it should have ended: {:?}", operation.state)
    };
    assert_eq!(failure_code, code);
    assert!(!failure.message.is_empty());
    assert_eq!(operation.lease, None);
}

async fn a_refresh_stores_what_is_offered_and_says_so() {
    let world = World::new().await;
    assert_eq!(world.store.snapshot().await.expect("a snapshot").catalog_state, CatalogState::Stale);
    let accepted = world.offer(&[release("echo", "1.0.0"), release("feeds", "1.0.0")]).await;
    let snapshot = world.store.snapshot().await.expect("a snapshot");
    assert_eq!(snapshot.catalog_state, CatalogState::Ready);
    assert_eq!(snapshot.source_revision, "of 2");
    assert_eq!(snapshot.connectors.len(), 2);
    let operation = world.operation(&accepted).await;
    assert_eq!(
        (operation.state, operation.stage, operation.attempt),
        (OperationState::Completed, Stage::Completed, 1)
    );
}

async fn a_refresh_stamps_only_what_changed() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0"), release("feeds", "1.0.0")]).await;
    let before = world.stored("echo").await.revision;
    world.offer(&[release("echo", "1.0.0"), release("feeds", "1.1.0")]).await;
    assert_eq!(world.stored("echo").await.revision, before);
    assert!(world.stored("feeds").await.revision > before);
}

async fn s058_s066_one_wrong_release_and_nothing_is_applied() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0")]).await;
    let mut superseded = release("echo", "2.0.0");
    superseded.status = ReleaseStatus::Superseded;
    let code = ErrorCode::InvalidManifest;
    fails(&world, &[superseded], code).await;
    fails(&world, &[release("echo", "2.0.0"), broken("bad")], code).await;
    fails(&world, &[release("echo", "2.0.0"), release("echo", "2.1.0")], code).await;
}

async fn s059_s060_a_source_that_fails_leaves_the_last_known_good() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0")]).await;
    for (given, code) in [
        (ErrorCode::InvalidManifest, ErrorCode::InvalidManifest),
        (ErrorCode::UpstreamUnavailable, ErrorCode::UpstreamUnavailable),
        (ErrorCode::ArtifactUnavailable, ErrorCode::UpstreamUnavailable),
    ] {
        world.catalog.faults.push(Fault::of(given));
        fails(&world, &[], code).await;
    }
    world.offer(&[release("echo", "1.0.0")]).await;
    assert_eq!(world.store.snapshot().await.expect("a snapshot").catalog_state, CatalogState::Ready);
}

async fn s061_s062_what_is_delisted_goes_once_nothing_hangs_on_it() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0"), release("idle", "1.0.0")]).await;
    // Not installed, and yet an operation is under way.
    let accepted = world.accept_install("echo").await;
    let mut connector = world.stored("echo").await;
    connector.installation = portcullis::domain::installation::Installation::NotInstalled;
    world.save(connector).await;
    world.offer(&[]).await;
    assert!(world.stored("echo").await.compatibility.is_removed_from_catalog());
    assert_eq!(world.store.connector(&key("idle")).await.expect("a reading"), None);

    let mut operation = accepted.operation;
    operation.complete(operation.created_at);
    world.write(async |tx| tx.save_operation(&operation).await).await;
    world.offer(&[]).await;
    assert_eq!(world.store.connector(&key("echo")).await.expect("a reading"), None);
}

async fn s063_what_is_delisted_and_installed_stays_and_can_be_uninstalled() {
    let world = World::with_echo().await;
    world.offer(&[]).await;
    let connector = world.stored("echo").await;
    assert_eq!(connector.compatibility.state, CompatibilityState::UnsupportedVersion);
    assert!(connector.compatibility.is_removed_from_catalog());
    let accepted = world.accept_uninstall("echo").await;
    world.run(&accepted).await.expect("uninstalled");
}

async fn s065_a_refresh_that_was_overtaken_applies_nothing_and_leaves_the_catalog_ready() {
    let world = World::new().await;
    *world.catalog.contents.lock() = vec![release("echo", "1.0.0")];
    world.catalog.contents_gate.close();
    let accepted = world.app.refresh_catalog(world.mutation("slow").await).await.expect("accepted");
    let (app, id) = (world.app.clone(), accepted.operation.operation_id.clone());
    let slow = tokio::spawn(async move { app.execute(&id).await });
    world.catalog.contents_gate.arrival().await;
    world.page("", "", &[release("echo", "2.0.0")]);
    let query = CatalogPageQuery::parse("tools", 5, "", "").expect("a query");
    world.app.catalog_page(&ada(), &query).await.expect("a page");
    world.catalog.contents_gate.open();
    slow.await.expect("no panic").expect("it completes");
    assert_eq!(world.operation(&accepted).await.state, OperationState::Completed);
    let snapshot = world.store.snapshot().await.expect("a snapshot");
    assert_eq!(snapshot.catalog_state, CatalogState::Ready);
    assert_eq!(snapshot.source_revision, "");
    assert_eq!(snapshot.connectors[0].release.version.to_string(), "2.0.0");
}

async fn s067_s068_authorization_follows_what_the_release_asks_for() {
    let world = World::new().await;
    let asking = |version: &str, kind: &str| {
        altered("echo", version, |manifest| manifest["authorizationKind"] = kind.into())
    };
    world.offer(&[asking("1.0.0", "none")]).await;
    assert_eq!(world.stored("echo").await.authorization.state, AuthorizationState::NotRequired);
    world.offer(&[asking("1.1.0", "api_key")]).await;
    assert_eq!(world.stored("echo").await.authorization.state, AuthorizationState::Disconnected);
    world.offer(&[asking("1.2.0", "none")]).await;
    assert_eq!(world.stored("echo").await.authorization.state, AuthorizationState::NotRequired);
}

on_every_store! {
    a_refresh_stores_what_is_offered_and_says_so,
    a_refresh_stamps_only_what_changed,
    s058_s066_one_wrong_release_and_nothing_is_applied,
    s059_s060_a_source_that_fails_leaves_the_last_known_good,
    s061_s062_what_is_delisted_goes_once_nothing_hangs_on_it,
    s063_what_is_delisted_and_installed_stays_and_can_be_uninstalled,
    s065_a_refresh_that_was_overtaken_applies_nothing_and_leaves_the_catalog_ready,
    s067_s068_authorization_follows_what_the_release_asks_for,
}
