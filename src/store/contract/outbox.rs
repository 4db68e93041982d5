//! The outbox: events in order, each once in the store, each at least once outside.

use std::sync::Arc;

use super::{
    StoreFactory,
    samples::{connector, install_of, key, open, operation, operation_id, save_operations},
};
use crate::{
    domain::{
        error::Error,
        event::{ChangedEvent, OutboxEvent},
        id::{AccountId, OperationId},
        operation::{OperationKind, Visibility},
        revision::Revision,
        timestamp::Timestamp,
    },
    ports::{CleanupRequest, Store},
};

async fn announce(store: &dyn Store, operation: Option<OperationId>) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    let revision = tx.advance_revision();
    let event = ChangedEvent { connector_key: Some(key("alpha")?), operation_id: operation, revision };
    tx.enqueue_changed(&event).await?;
    tx.commit().await
}

async fn sequences(store: &dyn Store, limit: u32) -> Result<Vec<i64>, Error> {
    Ok(store.pending_events(limit).await?.iter().map(|event| event.sequence).collect())
}

fn machines(sequence: i64, revision: u64) -> Result<OutboxEvent, Error> {
    Ok(OutboxEvent {
        sequence,
        connector_key: Some(key("alpha")?),
        operation_id: None,
        owner_account_id: None,
        visibility: Visibility::SystemPrivate,
        revision: Revision(revision),
    })
}

pub(super) async fn the_owners_copy_comes_before_the_machines(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install_of("ann", "one", "alpha")?]).await?;
    announce(&*store, Some(operation_id("one")?)).await?;
    let owners = OutboxEvent {
        operation_id: Some(operation_id("one")?),
        owner_account_id: Some(AccountId::parse("ann")?),
        visibility: Visibility::Account,
        ..machines(1, 2)?
    };
    assert_eq!(open(&factory).await?.store.pending_events(10).await?, [owners, machines(2, 2)?]);
    assert_eq!(store.snapshot().await?.event_cursor, 2);
    Ok(())
}

pub(super) async fn a_private_or_unknown_operation_has_no_owners_copy(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut private = operation("private", OperationKind::ReconcileRuntime, Some(&connector("alpha")?))?;
    private.owner_account_id = Some(AccountId::parse("ann")?);
    save_operations(&*store, &[private]).await?;
    announce(&*store, Some(operation_id("private")?)).await?;
    announce(&*store, Some(operation_id("inspect/boot/alpha")?)).await?;
    announce(&*store, None).await?;
    let expected = [machines(1, 2)?, machines(2, 3)?, machines(3, 4)?];
    assert_eq!(store.pending_events(10).await?, expected);
    Ok(())
}

pub(super) async fn the_first_note_of_publication_stands(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    announce(&*store, None).await?;
    announce(&*store, None).await?;
    store.mark_published(1).await?;
    factory.advance_clock(std::time::Duration::from_secs(3_600));
    store.mark_published(2).await?;
    store.mark_published(1).await?;
    store.mark_published(77).await?;
    assert_eq!(sequences(&*store, 10).await?, [0; 0]);

    // The oldest note goes first: it is still the first event's first note.
    let one = CleanupRequest {
        operations_ended_by: Timestamp(0),
        events_published_by: Timestamp(i64::MAX),
        batch: 1,
    };
    assert_eq!(store.clean_up(&one).await?.events, 1);
    store.mark_published(1).await?;
    assert_eq!(store.clean_up(&one).await?.events, 1);
    assert_eq!(store.clean_up(&one).await?.events, 0);
    Ok(())
}

pub(super) async fn pending_events_come_in_order_and_in_portions(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut tx = store.begin().await?;
    for _ in 0..501 {
        tx.enqueue_changed(&ChangedEvent::default()).await?;
    }
    tx.commit().await?;
    assert_eq!(sequences(&*store, 3).await?, [1, 2, 3]);
    assert_eq!(sequences(&*store, u32::MAX).await?.len(), 500);
    store.mark_published(2).await?;
    assert_eq!(sequences(&*store, 3).await?, [1, 3, 4]);
    assert_eq!(sequences(&*store, 0).await?, [0; 0]);
    Ok(())
}

pub(super) async fn a_sequence_is_never_used_again(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    announce(&*store, None).await?;
    announce(&*store, None).await?;
    for sequence in [1, 2] {
        store.mark_published(sequence).await?;
    }
    let all = CleanupRequest {
        operations_ended_by: Timestamp(0),
        events_published_by: Timestamp(i64::MAX),
        batch: 500,
    };
    assert_eq!(store.clean_up(&all).await?.events, 2);
    let reopened = open(&factory).await?.store;
    assert_eq!(reopened.snapshot().await?.event_cursor, 2, "the cursor does not fall back");
    announce(&*reopened, None).await?;
    assert_eq!(sequences(&*reopened, 10).await?, [3]);
    Ok(())
}

pub(super) async fn an_announcement_is_labelled_with_its_own_operation(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut tx = store.begin().await?;
    let revision = tx.advance_revision();
    tx.save_operation(&install_of("ann", "anns", "alpha")?).await?;
    tx.save_operation(&install_of("bob", "bobs", "beta")?).await?;
    let operation_id = Some(operation_id("anns")?);
    let event = ChangedEvent { connector_key: Some(key("alpha")?), operation_id, revision };
    tx.enqueue_changed(&event).await?;
    tx.commit().await?;
    let owners: Vec<_> =
        store.pending_events(10).await?.into_iter().map(|event| event.owner_account_id).collect();
    assert_eq!(owners, [Some(AccountId::parse("ann")?), None]);
    Ok(())
}
