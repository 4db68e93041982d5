//! An account's truth, applied to what is stored (J.13, 285 and 287 to 291; spec E.6).

use portcullis::domain::{
    authorization::{
        AppliedAuthorizations, AuthorizationProjection, AuthorizationSnapshot, AuthorizationState,
    },
    error::{Error, ErrorCode},
    id::AccountId,
    timestamp::Timestamp,
};

use super::{
    provider::{account, held, installed},
    world::{World, bob, key},
};

const CONNECTED: AuthorizationState = AuthorizationState::Connected;

async fn apply(
    world: &World,
    revision: u64,
    projections: Vec<AuthorizationProjection>,
) -> Result<AppliedAuthorizations, Error> {
    world.app.apply_authorizations(&account(), &AuthorizationSnapshot { revision, projections }).await
}

/// A world in which "cloud" is connected by the truth at revision 5.
async fn connected() -> World {
    let world = installed().await;
    let applied = apply(&world, 5, vec![held("cloud", CONNECTED, Some("one"))]).await.expect("applied");
    assert_eq!(applied, AppliedAuthorizations { changed: vec![key("cloud")], pending_receipts: vec![] });
    world
}

fn his(connector: &str, id: &str) -> AuthorizationProjection {
    let account_id: AccountId = bob().account_id.expect("an account");
    AuthorizationProjection { account_id, ..held(connector, CONNECTED, Some(id)) }
}

async fn s285_each_account_has_projections_of_its_own() {
    let world = installed().await;
    world.hold(held("mail", AuthorizationState::Expired, Some("hers"))).await;
    world.hold(his("mail", "his")).await;
    let of = async |scope| {
        let snapshot = world.store.scoped_snapshot(&scope).await.expect("a snapshot");
        snapshot
            .projections
            .into_iter()
            .map(|one| one.connection_id.expect("one").to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(super::world::ada()).await, ["hers"]);
    assert_eq!(of(bob()).await, ["his"]);
    assert_eq!(of(Default::default()).await, [""; 0]);
}

async fn s287_what_readers_do_not_see_is_stored_without_a_word() {
    let world = installed().await;
    let first = held("mail", CONNECTED, Some("one"));
    world.app.observe_authorization(&first).await.expect("observed");
    let (revision, events, calls) = (world.revision().await, world.events().await, world.host.count());
    let later = AuthorizationProjection { updated_at: Timestamp(9), ..first };
    world.app.observe_authorization(&later).await.expect("observed");
    assert_eq!(world.projection("mail").await, Some(later));
    assert_eq!((world.revision().await, world.events().await), (revision, events));
    assert_eq!(world.host.count(), calls, "and the runtime is left alone");
}

async fn s288_s289_what_is_older_than_the_truth_is_ignored() {
    let world = connected().await;
    let stored = world.projection("cloud").await.expect("a projection");
    assert_eq!((stored.server_revision, stored.server_synchronized), (5, true));
    let before = world.state().await;
    let local = held("cloud", AuthorizationState::Failed, None);
    world.app.observe_authorization(&local).await.expect("nothing to do");
    assert_eq!(world.projection("cloud").await, Some(stored.clone()), "a word of this host alone");
    let older = AuthorizationProjection { server_synchronized: true, server_revision: 4, ..local };
    world.app.observe_authorization(&older).await.expect("nothing to do");
    let applied = apply(&world, 4, vec![]).await.expect("read");
    assert_eq!(applied.changed, []);
    assert_eq!(world.projection("cloud").await, Some(stored));
    assert_eq!(world.state().await, before);
}

async fn s290_what_a_newer_truth_does_not_list_is_disconnected() {
    let world = connected().await;
    world.hold(held("mail", CONNECTED, Some("local"))).await;
    let (revision, events) = (world.stored("cloud").await.revision, world.events().await.len());
    let applied = apply(&world, 6, vec![]).await.expect("applied");
    assert_eq!(applied.changed, [key("cloud")]);
    let gone = world.projection("cloud").await.expect("it");
    assert_eq!((gone.state, gone.connection_id), (AuthorizationState::Disconnected, None));
    assert_eq!((gone.server_revision, gone.server_synchronized), (6, true));
    assert!(world.stored("cloud").await.revision > revision);
    assert_eq!(world.events().await.len(), events + 1);
    let local = world.projection("mail").await.expect("it");
    assert_eq!(
        (local.state, local.server_synchronized),
        (CONNECTED, false),
        "what only this host knows stays"
    );
}

async fn s291_the_same_truth_again_changes_nothing_and_still_tells_of_open_attempts() {
    let world = installed().await;
    world.pending("one", "cloud").await;
    let truth = || vec![held("cloud", CONNECTED, Some("one"))];
    let first = apply(&world, 5, truth()).await.expect("applied");
    assert_eq!(first.pending_receipts, [key("cloud")]);
    let before = world.state().await;
    let again = apply(&world, 5, truth()).await.expect("read");
    assert_eq!(again, AppliedAuthorizations { changed: vec![], pending_receipts: vec![key("cloud")] });
    assert_eq!(world.state().await, before);
    let snapshot = AuthorizationSnapshot { revision: 5, projections: vec![his("cloud", "his")] };
    let other = bob().account_id.expect("an account");
    let applied = world.app.apply_authorizations(&other, &snapshot).await.expect("applied");
    assert_eq!(applied.pending_receipts, [], "the attempt is ada's");
}

async fn a_truth_that_contradicts_itself_is_refused_whole() {
    let world = connected().await;
    let good = || held("cloud", CONNECTED, Some("two"));
    let nowhere = held("mail", CONNECTED, None);
    let not_required = held("mail", AuthorizationState::NotRequired, None);
    for wrong in [
        vec![good(), his("mail", "his")],
        vec![good(), good()],
        vec![good(), nowhere.clone()],
        vec![good(), not_required.clone()],
    ] {
        world.refused(apply(&world, 7, wrong), ErrorCode::UpstreamUnavailable, false).await;
    }
    let observed = world.app.observe_authorization(&nowhere);
    world.refused(observed, ErrorCode::InstallFailed, false).await;
    let observed = world.app.observe_authorization(&not_required);
    world.refused(observed, ErrorCode::InvalidRequest, false).await;
    let unknown = held("unknown", CONNECTED, Some("one"));
    world.refused(world.app.observe_authorization(&unknown), ErrorCode::NotFound, false).await;
}

async fn a_truth_may_name_connectors_that_no_catalog_lists() {
    let world = connected().await;
    let listed = vec![held("cloud", CONNECTED, Some("one")), held("unknown", CONNECTED, Some("two"))];
    let applied = apply(&world, 6, listed).await.expect("applied");
    assert_eq!(applied.changed, [key("unknown")]);
    assert_eq!(world.store.connector(&key("unknown")).await.expect("a reading"), None);
}

on_every_store! {
    s285_each_account_has_projections_of_its_own,
    s287_what_readers_do_not_see_is_stored_without_a_word,
    s288_s289_what_is_older_than_the_truth_is_ignored,
    s290_what_a_newer_truth_does_not_list_is_disconnected,
    s291_the_same_truth_again_changes_nothing_and_still_tells_of_open_attempts,
    a_truth_that_contradicts_itself_is_refused_whole,
    a_truth_may_name_connectors_that_no_catalog_lists,
}
