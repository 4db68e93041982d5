//! Cleanup: only what has ended, in bounded batches, nothing twice.

use std::sync::Arc;

use super::{
    StoreFactory,
    samples::{ROUNDS, handles, insist, install, open, refused, save_operations, stored},
};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        event::ChangedEvent,
        operation::{Operation, OperationFailure},
        timestamp::Timestamp,
    },
    ports::{CleanupRequest, CleanupResult, Store},
};

fn up_to(cut_off: i64, batch: u32) -> CleanupRequest {
    CleanupRequest { operations_ended_by: Timestamp(cut_off), events_published_by: Timestamp(cut_off), batch }
}

fn ended(number: u32, at: i64) -> Result<Operation, Error> {
    let mut operation = install(&format!("op-{number:02}"), &format!("c{number}"))?;
    operation.complete(Timestamp(at));
    Ok(operation)
}

async fn ids(store: &dyn Store) -> Result<Vec<String>, Error> {
    Ok(store.snapshot().await?.operations.iter().map(|one| one.operation_id.to_string()).collect())
}

async fn publish(store: &dyn Store, events: u32) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    for _ in 0..events {
        tx.enqueue_changed(&ChangedEvent::default()).await?;
    }
    tx.commit().await?;
    for event in store.pending_events(events).await? {
        store.mark_published(event.sequence).await?;
    }
    Ok(())
}

pub(super) async fn what_ended_by_the_cut_off_is_forgotten(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let failure = OperationFailure { code: ErrorCode::InstallFailed, message: "it broke".into() };
    let mut failed = install("failed", "alpha")?;
    failed.fail(ErrorCode::InstallFailed, failure, Timestamp(5_000));
    save_operations(&*store, &[ended(1, 5_000)?, ended(2, 5_001)?, failed]).await?;
    publish(&*store, 2).await?;

    assert_eq!(store.clean_up(&up_to(5_000, 500)).await?, CleanupResult { operations: 2, events: 0 });
    assert_eq!(ids(&*store).await?, ["op-02"]);
    let everything = store.clean_up(&up_to(i64::MAX, 500)).await?;
    assert_eq!(everything, CleanupResult { operations: 1, events: 2 });
    Ok(())
}

pub(super) async fn active_operations_and_unpublished_events_stay(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut running = install("running", "beta")?;
    running.start(Timestamp(2_000));
    save_operations(&*store, &[install("accepted", "alpha")?, running]).await?;
    let mut tx = store.begin().await?;
    tx.enqueue_changed(&ChangedEvent::default()).await?;
    tx.commit().await?;
    assert_eq!(store.clean_up(&up_to(i64::MAX, 500)).await?, CleanupResult::default());
    let reopened = open(&factory).await?.store;
    assert_eq!(reopened.recoverable_operations().await?.len(), 2);
    assert_eq!(reopened.pending_events(10).await?.len(), 1);
    Ok(())
}

pub(super) async fn a_forgotten_request_id_is_free_again(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let first = ended(1, 5_000)?;
    let mut second = install("second", "alpha")?;
    second.client_request_id = first.client_request_id.clone();
    save_operations(&*store, &[first]).await?;
    let refusal = save_operations(&*store, std::slice::from_ref(&second)).await;
    assert_eq!(refused(refusal), ErrorCode::InvalidRequest);
    store.clean_up(&up_to(5_000, 500)).await?;
    save_operations(&*store, std::slice::from_ref(&second)).await?;
    assert_eq!(stored(&*store, "second").await?.client_request_id, second.client_request_id);
    Ok(())
}

pub(super) async fn a_batch_has_bounds(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[ended(1, 5_000)?]).await?;
    for batch in [0, 501, u32::MAX] {
        assert_eq!(refused(store.clean_up(&up_to(i64::MAX, batch)).await), ErrorCode::InvalidRequest);
    }
    assert_eq!(ids(&*store).await?, ["op-01"]);
    assert_eq!(store.clean_up(&up_to(i64::MAX, 1)).await?.operations, 1);
    Ok(())
}

pub(super) async fn the_oldest_go_first(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[ended(1, 300)?, ended(2, 100)?, ended(3, 200)?, ended(4, 100)?]).await?;
    assert_eq!(store.clean_up(&up_to(i64::MAX, 1)).await?.operations, 1);
    assert_eq!(ids(&*store).await?, ["op-01", "op-03", "op-04"]);
    assert_eq!(store.clean_up(&up_to(i64::MAX, 2)).await?.operations, 2);
    assert_eq!(ids(&*store).await?, ["op-01"]);
    Ok(())
}

pub(super) async fn two_cleanups_at_once_forget_no_row_twice(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let [here, there] = handles(&factory).await?;
    let batch = up_to(i64::MAX, 7);
    for _ in 0..ROUNDS {
        let operations = (0..20).map(|number| ended(number, 100)).collect::<Result<Vec<_>, _>>()?;
        save_operations(&*here, &operations).await?;
        publish(&*here, 20).await?;
        let (first, second) = futures::try_join!(async { insist!(here.clean_up(&batch)) }, async {
            insist!(there.clean_up(&batch))
        })?;
        assert_eq!((first.operations + second.operations, first.events + second.events), (14, 14));
        assert_eq!(ids(&*here).await?.len(), 6);
        let rest = CleanupResult { operations: 6, events: 6 };
        assert_eq!(here.clean_up(&up_to(i64::MAX, 500)).await?, rest);
    }
    Ok(())
}
