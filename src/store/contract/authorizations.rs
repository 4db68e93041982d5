//! Authorization: what accounts hold, and attempts that are still open.

use std::sync::Arc;

use super::{
    StoreFactory,
    samples::{
        ROUNDS, attempt_of, connector, handles, insist, key, open, operation, projection, receipt,
        save_connectors, save_operations, save_projection, scope, stored,
    },
};
use crate::{
    domain::{
        authorization::{AuthorizationProjection, AuthorizationSession, AuthorizationState, Resolution},
        error::{Error, ErrorCode},
        id::AccountId,
        operation::{Operation, OperationFailure, OperationKind, OperationScope, OperationState},
        revision::Revision,
        timestamp::Timestamp,
    },
    ports::Store,
};

async fn open_ids(store: &dyn Store, scope: &OperationScope) -> Result<Vec<String>, Error> {
    let within = store.begin().await?.open_authorizations(scope).await?;
    let open = store.open_authorizations(scope).await?;
    assert_eq!(within, open, "a transaction sees the same");
    Ok(open.iter().map(|one| one.operation_id.to_string()).collect())
}

fn session(operation: &mut Operation) -> Result<&mut AuthorizationSession, Error> {
    let session = operation.execution.authorization_session.as_mut();
    session.ok_or_else(|| Error::not_found("the operation has begun no attempt"))
}

fn resolved(mut operation: Operation, resolution: Resolution) -> Result<Operation, Error> {
    session(&mut operation)?.resolution = Some(resolution);
    Ok(operation)
}

pub(super) async fn a_projection_is_kept_whole(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let (ann, alpha) = (AccountId::parse("ann")?, key("alpha")?);
    assert_eq!(store.authorization_projection(&ann, &alpha).await?, None);
    let first = projection("ann", "alpha")?;
    let second =
        AuthorizationProjection::local(ann.clone(), alpha.clone(), AuthorizationState::Pending, Timestamp(1));
    for expected in [first, second] {
        save_projection(&*store, &expected).await?;
        let again = open(&factory).await?.store;
        assert_eq!(again.authorization_projection(&ann, &alpha).await?.as_ref(), Some(&expected));
        let mut tx = store.begin().await?;
        assert_eq!(tx.authorization_projection(&ann, &alpha).await?.as_ref(), Some(&expected));
        assert_eq!(tx.authorization_projections(&ann).await?, [expected]);
    }
    Ok(())
}

pub(super) async fn projections_are_apart_by_account(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let anns = [projection("ann", "a-b")?, projection("ann", "a.b")?, projection("ann", "ab")?];
    let mut bobs = projection("bob", "a.b")?;
    bobs.state = AuthorizationState::Expired;
    for one in anns.iter().rev().chain([&bobs]) {
        save_projection(&*store, one).await?;
    }
    let [ann, bob, eve] = ["ann", "bob", "eve"].map(AccountId::parse);
    let (ann, bob, eve) = (ann?, bob?, eve?);
    let mut tx = store.begin().await?;
    assert_eq!(tx.authorization_projections(&ann).await?, anns, "by connector");
    assert_eq!(tx.authorization_projections(&bob).await?, std::slice::from_ref(&bobs));
    assert_eq!(tx.authorization_projections(&eve).await?, []);
    drop(tx);
    assert_eq!(store.authorization_projection(&bob, &key("a.b")?).await?, Some(bobs));
    assert_eq!(store.authorization_projection(&bob, &key("ab")?).await?, None);
    Ok(())
}

pub(super) async fn a_projection_outlives_the_removal_of_its_connector(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let alpha = connector("alpha")?;
    save_connectors(&*store, std::slice::from_ref(&alpha)).await?;
    let held = projection("ann", "alpha")?;
    save_projection(&*store, &held).await?;
    let mut install = operation("install", OperationKind::Install, Some(&alpha))?;
    install.execution.release_receipt = Some(receipt(&install)?);
    install.complete(Timestamp(2_000));
    let mut uninstall = operation("uninstall", OperationKind::Uninstall, Some(&alpha))?;
    uninstall.complete(Timestamp(3_000));
    save_operations(&*store, &[install, uninstall]).await?;
    let mut tx = store.begin().await?;
    tx.delete_connector(&alpha.key).await?;
    tx.commit().await?;
    let found = store.authorization_projection(&held.account_id, &alpha.key).await?;
    assert_eq!(found, Some(held));
    Ok(())
}

pub(super) async fn the_revision_of_an_accounts_truth_is_kept(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let (ann, bob) = (AccountId::parse("ann")?, AccountId::parse("bob")?);
    assert_eq!(store.begin().await?.authorization_revision(&ann).await?, None);
    for revision in [0, 7, i64::MAX as u64] {
        let mut tx = store.begin().await?;
        tx.save_authorization_revision(&ann, revision).await?;
        assert_eq!(tx.authorization_revision(&ann).await?, Some(revision));
        tx.commit().await?;
        let again = open(&factory).await?.store;
        let mut tx = again.begin().await?;
        assert_eq!(tx.authorization_revision(&ann).await?, Some(revision), "0 is not none");
        assert_eq!(tx.authorization_revision(&bob).await?, None);
    }
    let mut undone = store.begin().await?;
    undone.save_authorization_revision(&ann, 1).await?;
    drop(undone);
    assert_eq!(store.begin().await?.authorization_revision(&ann).await?, Some(i64::MAX as u64));
    Ok(())
}

pub(super) async fn an_open_attempt_is_its_owners_alone(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let attempts = [
        attempt_of("ann", "c", "alpha")?,
        attempt_of("ann", "a", "beta")?,
        attempt_of("bob", "b", "alpha")?,
        attempt_of("ann", "B", "gamma")?,
    ];
    save_operations(&*store, &attempts).await?;
    let again = open(&factory).await?.store;
    assert_eq!(open_ids(&*again, &scope("ann")?).await?, ["B", "a", "c"], "by id");
    assert_eq!(open_ids(&*again, &scope("bob")?).await?, ["b"]);
    assert_eq!(open_ids(&*again, &scope("eve")?).await?, [""; 0]);
    assert_eq!(open_ids(&*again, &OperationScope::default()).await?, [""; 0]);
    let [_, _, bobs, _] = attempts;
    assert_eq!(again.open_authorizations(&scope("bob")?).await?, [bobs]);
    Ok(())
}

pub(super) async fn an_attempt_is_open_from_its_operations_end_to_its_own(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let ann = scope("ann")?;
    let mut attempt = attempt_of("ann", "one", "alpha")?;
    let failure = OperationFailure { code: ErrorCode::AuthorizationFailed, message: "it broke".into() };
    let failed = OperationState::Failed { failure_code: ErrorCode::AuthorizationFailed, failure };
    for state in [OperationState::Accepted, OperationState::Running { last_failure: None }, failed] {
        attempt.state = state;
        save_operations(&*store, std::slice::from_ref(&attempt)).await?;
        assert_eq!(open_ids(&*store, &ann).await?, [""; 0], "{:?}", attempt.state);
    }
    attempt.state = OperationState::Completed;
    save_operations(&*store, std::slice::from_ref(&attempt)).await?;
    assert_eq!(open_ids(&*store, &ann).await?, ["one"]);

    let attempt = resolved(attempt, Resolution::Canceling)?;
    save_operations(&*store, std::slice::from_ref(&attempt)).await?;
    let again = open(&factory).await?.store;
    assert_eq!(again.open_authorizations(&ann).await?, std::slice::from_ref(&attempt), "canceling is no end");

    save_operations(&*store, &[resolved(attempt, Resolution::Superseded)?]).await?;
    assert_eq!(open_ids(&*store, &ann).await?, [""; 0]);
    Ok(())
}

pub(super) async fn a_resolved_attempt_never_changes_again(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let ends = [
        Resolution::ProviderConnected,
        Resolution::ProviderFailed,
        Resolution::AccountStateConverged,
        Resolution::Superseded,
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let id = format!("op-{number}");
        let open_attempt = attempt_of("ann", &id, "alpha")?;
        let ended = resolved(open_attempt.clone(), end)?;
        save_operations(&*store, &[open_attempt.clone(), ended.clone()]).await?;

        let mut without = open_attempt.clone();
        without.execution.authorization_session = None;
        let mut further = resolved(open_attempt.clone(), Resolution::Canceling)?;
        session(&mut further)?.step_revision = 99;
        let other =
            if end == Resolution::Superseded { Resolution::ProviderFailed } else { Resolution::Superseded };
        let late = [open_attempt.clone(), without, further, resolved(open_attempt, other)?];
        for (moment, mut late) in (5_000..).zip(late) {
            late.updated_at = Timestamp(moment);
            save_operations(&*store, &[late]).await?;
            let again = stored(&*open(&factory).await?.store, &id).await?;
            assert_eq!(again.execution.authorization_session, ended.execution.authorization_session);
            assert_eq!(again.updated_at, Timestamp(moment), "the rest of it is stored");
        }
        assert_eq!(open_ids(&*store, &scope("ann")?).await?, [""; 0]);
    }
    Ok(())
}

pub(super) async fn of_resolutions_at_once_the_first_stands(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let stores: [Arc<dyn Store>; 3] = handles(&factory).await?;
    let ends = [Resolution::ProviderConnected, Resolution::ProviderFailed, Resolution::Superseded];
    for round in 0..ROUNDS {
        let attempt = attempt_of("ann", &format!("op-{round:02}"), "alpha")?;
        save_operations(&*stores[0], std::slice::from_ref(&attempt)).await?;
        let mut turns = Vec::new();
        for (store, end) in stores.iter().zip(ends) {
            let ended = resolved(attempt.clone(), end)?;
            turns.push(async move { insist!(resolve(&**store, &ended)).map(|revision| (revision, end)) });
        }
        let turns = futures::future::try_join_all(turns).await?;
        let first = turns.iter().min_by_key(|(revision, _)| revision.0).map(|(_, end)| *end);
        let mut stored = stored(&*stores[0], attempt.operation_id.as_str()).await?;
        assert_eq!(session(&mut stored)?.resolution, first, "{turns:?}");
    }
    Ok(())
}

/// Without reading first, so that nobody knows of the others.
async fn resolve(store: &dyn Store, ended: &Operation) -> Result<Revision, Error> {
    let mut tx = store.begin().await?;
    let revision = tx.advance_revision();
    tx.save_operation(ended).await?;
    tx.commit().await?;
    Ok(revision)
}
