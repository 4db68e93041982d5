//! Operations: kept whole, one a request, one active a lane.

use std::sync::Arc;

use super::{
    StoreFactory,
    samples::{
        ROUNDS, connector, handles, insist, install, install_of, key, open, operation, operation_id, refused,
        save_operations, stored,
    },
};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        generation::Generation,
        id::{AccountId, BootEpoch, ClientRequestId},
        operation::{Operation, OperationFailure, OperationKind, OperationState, Stage, Visibility},
        timestamp::Timestamp,
    },
    ports::Store,
};

pub(super) async fn an_operation_is_kept_whole(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let failure = OperationFailure { code: ErrorCode::ArtifactUnavailable, message: "no \"route\"".into() };
    let states = [
        OperationState::Accepted,
        OperationState::Running { last_failure: Some(failure.clone()) },
        OperationState::Completed,
        OperationState::Failed { failure_code: ErrorCode::InstallFailed, failure },
    ];
    for (number, state) in states.into_iter().enumerate() {
        let mut operation = install_of("ann", &format!("id-{number}"), &format!("c{number}"))?;
        operation.state = state;
        operation.stage = Stage::RuntimePending;
        operation.generation =
            Some(Generation { boot_epoch: BootEpoch::parse("boot")?, number: i64::MAX as u64 });
        operation.attempt = u32::MAX;
        operation.updated_at = Timestamp(1_234_567_890_123);
        save_operations(&*store, std::slice::from_ref(&operation)).await?;
        assert_eq!(stored(&*store, &format!("id-{number}")).await?, operation);
        let mut tx = store.begin().await?;
        assert_eq!(tx.operation(&operation.operation_id).await?, Some(operation));
    }
    Ok(())
}

pub(super) async fn ownership_is_settled_on_saving(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let ann = AccountId::parse("ann")?;
    let mut by_scope = install("by-scope", "alpha")?;
    by_scope.scope.account_id = Some(ann.clone());
    let mut by_owner = install("by-owner", "beta")?;
    by_owner.owner_account_id = Some(ann.clone());
    let nobodys = install("nobodys", "gamma")?;
    let mut private = operation("private", OperationKind::ReconcileRuntime, Some(&connector("delta")?))?;
    private.owner_account_id = Some(ann.clone());
    save_operations(&*store, &[by_scope, by_owner, nobodys, private]).await?;

    for id in ["by-scope", "by-owner"] {
        let operation = stored(&*store, id).await?;
        assert_eq!(operation.owner_account_id.as_ref(), Some(&ann));
        assert_eq!(operation.scope.account_id.as_ref(), Some(&ann));
        assert_eq!(operation.visibility, Visibility::Account);
    }
    assert_eq!(stored(&*store, "nobodys").await?.visibility, Visibility::SystemPrivate);
    assert_eq!(stored(&*store, "private").await?.visibility, Visibility::SystemPrivate);
    Ok(())
}

pub(super) async fn a_client_request_stands_for_one_operation_an_owner(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let request = ClientRequestId::parse("same")?;
    let mut operations = [
        install_of("ann", "anns", "alpha")?,
        install_of("bob", "bobs", "beta")?,
        install("nobodys", "gamma")?,
    ];
    for operation in &mut operations {
        operation.client_request_id = request.clone();
    }
    save_operations(&*store, &operations).await?;

    let mut second = install_of("ann", "second", "delta")?;
    second.client_request_id = request.clone();
    let before = store.snapshot().await?;
    assert_eq!(refused(save_operations(&*store, &[second]).await), ErrorCode::InvalidRequest);
    assert_eq!(store.snapshot().await?, before);

    let mut tx = store.begin().await?;
    for (owner, id) in [(Some("ann"), "anns"), (Some("bob"), "bobs"), (None, "nobodys")] {
        let owner = owner.map(AccountId::parse).transpose()?;
        let found = tx.operation_by_client_request(owner.as_ref(), &request).await?;
        assert_eq!(found.map(|one| one.operation_id), Some(operation_id(id)?));
    }
    assert_eq!(tx.operation_by_client_request(None, &ClientRequestId::parse("other")?).await?, None);
    assert_eq!(tx.operation_by_client_request(Some(&AccountId::parse("eve")?), &request).await?, None);
    Ok(())
}

pub(super) async fn a_lane_holds_one_active_operation_of_any_account(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(
        &*store,
        &[install_of("ann", "anns", "alpha")?, install_of("ann", "other-lane", "beta")?],
    )
    .await?;
    let before = store.snapshot().await?;
    let refusal = save_operations(&*store, &[install_of("bob", "bobs", "alpha")?]).await;
    assert_eq!(refused(refusal), ErrorCode::OperationInProgress);
    assert_eq!(store.snapshot().await?, before);

    let mut tx = store.begin().await?;
    let active = tx.active_operation_in_lane(Some(&key("alpha")?)).await?;
    assert_eq!(active.map(|one| one.operation_id), Some(operation_id("anns")?));
    assert_eq!(tx.active_operation_in_lane(Some(&key("gamma")?)).await?, None);
    assert_eq!(tx.active_operation_in_lane(None).await?, None, "no lane is not every lane");
    Ok(())
}

pub(super) async fn the_catalog_has_a_lane_of_its_own(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let refresh = |id| operation(id, OperationKind::RefreshCatalog, None);
    save_operations(&*store, &[install("one", "alpha")?]).await?;
    save_operations(&*store, &[refresh("first")?]).await?;
    let refusal = save_operations(&*store, &[refresh("second")?]).await;
    assert_eq!(refused(refusal), ErrorCode::OperationInProgress);
    let mut tx = store.begin().await?;
    let active = tx.active_operation_in_lane(None).await?;
    assert_eq!(active.map(|one| one.operation_id), Some(operation_id("first")?));
    Ok(())
}

pub(super) async fn an_ended_operation_frees_its_lane(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let failure = OperationFailure { code: ErrorCode::InstallFailed, message: "it broke".into() };
    let mut first = install("first", "alpha")?;
    save_operations(&*store, std::slice::from_ref(&first)).await?;
    first.complete(Timestamp(2_000));
    save_operations(&*store, &[first]).await?;
    let mut second = install("second", "alpha")?;
    save_operations(&*store, std::slice::from_ref(&second)).await?;
    second.fail(ErrorCode::InstallFailed, failure, Timestamp(3_000));
    save_operations(&*store, &[second]).await?;
    save_operations(&*store, &[install("third", "alpha")?]).await?;

    // Nor can one that ended come back into a lane that is taken.
    let mut revived = stored(&*store, "first").await?;
    revived.state = OperationState::Accepted;
    assert_eq!(refused(save_operations(&*store, &[revived]).await), ErrorCode::OperationInProgress);
    assert_eq!(stored(&*store, "first").await?.state, OperationState::Completed);
    Ok(())
}

pub(super) async fn active_operations_are_recoverable_whoever_owns_them(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut running = install_of("ann", "b-running", "alpha")?;
    running.start(Timestamp(2_000));
    let mut ended = install_of("ann", "a-ended", "beta")?;
    ended.complete(Timestamp(2_000));
    let private = operation("c-private", OperationKind::ReconcileRuntime, Some(&connector("gamma")?))?;
    let accepted = install("a-accepted", "delta")?;
    save_operations(&*store, &[running, ended, private, accepted]).await?;

    let recoverable = open(&factory).await?.store.recoverable_operations().await?;
    let ids: Vec<&str> = recoverable.iter().map(|one| one.operation_id.as_str()).collect();
    assert_eq!(ids, ["a-accepted", "b-running", "c-private"]);
    Ok(())
}

pub(super) async fn a_snapshot_hides_runtime_operations(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let hidden = operation("hidden", OperationKind::ReconcileRuntime, Some(&connector("alpha")?))?;
    save_operations(&*store, &[install("b", "beta")?, hidden, install("a", "gamma")?]).await?;
    let snapshot = store.snapshot().await?;
    let ids: Vec<&str> = snapshot.operations.iter().map(|one| one.operation_id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(stored(&*store, "hidden").await?.kind, OperationKind::ReconcileRuntime);
    Ok(())
}

/// Stores each through a handle of its own, at once; answers which one was stored.
/// The others must have been refused with `code`.
async fn race(
    stores: &[Arc<dyn Store>],
    operations: &[Operation],
    code: ErrorCode,
) -> Result<Operation, Error> {
    let mut saving = Vec::new();
    for (store, operation) in stores.iter().zip(operations) {
        saving.push(async move { insist!(save_operations(&**store, std::slice::from_ref(operation))) });
    }
    let answers = futures::future::join_all(saving).await;
    let mut winners = Vec::new();
    for (answer, operation) in answers.into_iter().zip(operations) {
        match answer {
            Ok(()) => winners.push(operation),
            Err(error) => assert_eq!(error.code, code, "{error:?}"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    Ok(winners[0].clone())
}

pub(super) async fn of_operations_at_once_in_one_lane_one_is_stored(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let stores: [Arc<dyn Store>; 3] = handles(&factory).await?;
    for round in 0..ROUNDS {
        let lane = format!("c{round}");
        let mut operations = Vec::new();
        for (number, account) in ["ann", "bob", "ann"].into_iter().enumerate() {
            operations.push(install_of(account, &format!("op-{round}-{number}"), &lane)?);
        }
        let winner = race(&stores, &operations, ErrorCode::OperationInProgress).await?;
        let active = stores[0].begin().await?.active_operation_in_lane(Some(&key(&lane)?)).await?;
        assert_eq!(active, Some(winner));
    }
    assert_eq!(stores[0].recoverable_operations().await?.len(), ROUNDS as usize);
    Ok(())
}

pub(super) async fn of_requests_at_once_under_one_id_one_is_stored(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let stores: [Arc<dyn Store>; 3] = handles(&factory).await?;
    let ann = AccountId::parse("ann")?;
    for round in 0..ROUNDS {
        let request = ClientRequestId::parse(format!("request {round}"))?;
        let mut operations = Vec::new();
        for number in 0..3 {
            let mut operation =
                install_of("ann", &format!("op-{round}-{number}"), &format!("c{round}-{number}"))?;
            operation.client_request_id = request.clone();
            operations.push(operation);
        }
        let winner = race(&stores, &operations, ErrorCode::InvalidRequest).await?;
        let found = stores[0].begin().await?.operation_by_client_request(Some(&ann), &request).await?;
        assert_eq!(found, Some(winner));
    }
    assert_eq!(stores[0].recoverable_operations().await?.len(), ROUNDS as usize);
    Ok(())
}

pub(super) async fn what_was_found_free_is_free_for_one_operation(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install_of("ann", "taken", "beta")?]).await?;
    let before = store.snapshot().await?;
    let first = install_of("ann", "first", "alpha")?;
    let ann = AccountId::parse("ann")?;
    for second in [install_of("ann", "second", "alpha")?, install_of("ann", "second", "beta")?] {
        let mut tx = store.begin().await?;
        assert_eq!(tx.operation_by_client_request(Some(&ann), &first.client_request_id).await?, None);
        assert_eq!(tx.active_operation_in_lane(Some(&key("alpha")?)).await?, None);
        tx.save_operation(&first).await?;
        assert_eq!(refused(tx.save_operation(&second).await), ErrorCode::OperationInProgress);
        drop(tx);
        assert_eq!(store.snapshot().await?, before);
    }
    Ok(())
}
