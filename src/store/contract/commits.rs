//! Transactions: all of it or nothing, at one revision.

use std::sync::Arc;

use super::{
    StoreFactory,
    samples::{
        self, ROUNDS, attempt_of, connector, handles, insist, install, install_of, key, lease_of, open,
        operation_id, planned, projection, receipt, refused, save_connectors, save_convergence,
        save_operations, scope, worker,
    },
};
use crate::{
    domain::{
        catalog::CatalogState,
        compatibility::Compatibility,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        event::ChangedEvent,
        id::AccountId,
        installation::{FailureCode, Installation, InstalledRelease},
        lease::LeaseToken,
        operation::OperationScope,
        revision::Revision,
        snapshot::{ScopedSnapshot, Snapshot},
        timestamp::Timestamp,
    },
    ports::Store,
};

pub(super) async fn a_new_store_is_empty(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let empty = Snapshot {
        revision: Revision(0),
        catalog_state: CatalogState::Stale,
        source_revision: String::new(),
        event_cursor: 0,
        connectors: Vec::new(),
        operations: Vec::new(),
    };
    assert_eq!(store.snapshot().await?, empty);
    assert_eq!(store.connector(&key("alpha")?).await?, None);
    assert_eq!(store.operation(&operation_id("one")?).await?, None);
    assert_eq!(store.recoverable_operations().await?, []);
    assert_eq!(store.installed_release(&key("alpha")?, &Sha256Digest::of(b"")).await?, None);
    assert_eq!(store.convergence(&OperationScope::default(), &key("alpha")?).await?, None);
    assert_eq!(store.convergences(&OperationScope::default()).await?, []);
    assert_eq!(store.pending_events(10).await?, []);
    let scoped = store.scoped_snapshot(&scope("ann")?).await?;
    assert_eq!(scoped, ScopedSnapshot { market: empty, projections: Vec::new(), convergences: Vec::new() });
    assert_eq!(store.open_authorizations(&scope("ann")?).await?, []);
    Ok(())
}

pub(super) async fn a_commit_writes_revision_rows_and_events_together(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut alpha = connector("alpha")?;
    let operation = install_of("ann", "one", "alpha")?;
    let mut tx = store.begin().await?;
    assert_eq!(tx.revision(), Revision(0));
    assert_eq!(tx.advance_revision(), Revision(1));
    alpha.revision = tx.advance_revision();
    assert_eq!(tx.revision(), Revision(2), "a transaction may advance more than once");
    tx.save_connector(&alpha).await?;
    tx.save_operation(&operation).await?;
    tx.enqueue_changed(&ChangedEvent {
        connector_key: Some(alpha.key.clone()),
        operation_id: Some(operation.operation_id.clone()),
        revision: tx.revision(),
    })
    .await?;
    tx.commit().await?;

    let snapshot = open(&factory).await?.store.snapshot().await?;
    assert_eq!(snapshot.revision, Revision(2));
    assert_eq!(snapshot.event_cursor, 2);
    assert_eq!(snapshot.connectors, [alpha]);
    assert_eq!(snapshot.operations, [operation]);
    Ok(())
}

pub(super) async fn a_dropped_transaction_leaves_nothing(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_connectors(&*store, &[connector("alpha")?]).await?;
    let before = store.snapshot().await?;
    let mut tx = store.begin().await?;
    write_one_of_each(&mut *tx).await?;
    drop(tx);
    assert_eq!(store.snapshot().await?, before);
    assert_eq!(store.convergences(&OperationScope::default()).await?, []);
    assert_eq!(store.pending_events(10).await?, []);
    assert_eq!(store.scoped_snapshot(&scope("ann")?).await?.projections, []);
    Ok(())
}

pub(super) async fn a_failed_step_spoils_its_transaction(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let before = store.snapshot().await?;
    let mut never_claimed = install("one", "alpha")?;
    never_claimed.lease_token = LeaseToken(1);
    let mut tx = store.begin().await?;
    tx.save_connector(&connector("beta")?).await?;
    assert_eq!(refused(tx.save_operation(&never_claimed).await), ErrorCode::LeaseLost);
    assert_eq!(refused(tx.save_connector(&connector("gamma")?).await), ErrorCode::Unavailable);
    assert_eq!(refused(tx.commit().await), ErrorCode::Unavailable);
    assert_eq!(store.snapshot().await?, before);
    Ok(())
}

async fn write_one_of_each(tx: &mut dyn crate::ports::Tx) -> Result<(), Error> {
    let revision = tx.advance_revision();
    tx.delete_connector(&key("alpha")?).await?;
    tx.save_connector(&connector("beta")?).await?;
    tx.save_operation(&install("one", "beta")?).await?;
    tx.save_convergence(&samples::planned(&OperationScope::default(), "beta")?).await?;
    tx.save_authorization_projection(&projection("ann", "beta")?).await?;
    tx.save_authorization_revision(&AccountId::parse("ann")?, 7).await?;
    tx.set_catalog_state(CatalogState::Ready).await?;
    tx.save_source_revision("rev").await?;
    tx.enqueue_changed(&ChangedEvent { revision, ..ChangedEvent::default() }).await
}

pub(super) async fn transactions_that_meet_lose_no_revision(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    const HANDLES: u32 = 4;
    let stores: [Arc<dyn Store>; HANDLES as usize] = handles(&factory).await?;
    let mut advancing = Vec::new();
    for store in &stores {
        advancing.push(async move {
            for _ in 0..ROUNDS {
                insist!(advance_once(&**store))?;
            }
            Ok::<(), Error>(())
        });
    }
    futures::future::try_join_all(advancing).await?;
    let snapshot = stores[0].snapshot().await?;
    assert_eq!(snapshot.revision, Revision(u64::from(HANDLES * ROUNDS)));
    assert_eq!(snapshot.event_cursor, i64::from(HANDLES * ROUNDS));
    let events = stores[0].pending_events(HANDLES * ROUNDS + 1).await?;
    let in_order = (1..).zip(1..).take(events.len());
    assert!(events.iter().map(|event| (event.sequence, event.revision.0)).eq(in_order), "{events:?}");
    assert_eq!(events.len(), (HANDLES * ROUNDS) as usize);
    Ok(())
}

async fn advance_once(store: &dyn Store) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    let revision = tx.advance_revision();
    tx.enqueue_changed(&ChangedEvent { revision, ..ChangedEvent::default() }).await?;
    tx.commit().await
}

pub(super) async fn a_snapshot_is_of_one_revision(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let (writer, reader) = (open(&factory).await?.store, open(&factory).await?.store);
    save_connectors(&*writer, &[]).await?;
    let write = async {
        for _ in 0..ROUNDS {
            let mut tx = writer.begin().await?;
            let revision = tx.advance_revision();
            for name in ["alpha", "beta"] {
                let mut connector = connector(name)?;
                connector.revision = revision;
                tx.save_connector(&connector).await?;
            }
            tx.commit().await?;
        }
        Ok::<(), Error>(())
    };
    let read = async {
        for _ in 0..ROUNDS {
            let snapshot = reader.snapshot().await?;
            let rows: Vec<Revision> = snapshot.connectors.iter().map(|one| one.revision).collect();
            let whole = if rows.is_empty() { vec![] } else { vec![snapshot.revision; 2] };
            assert_eq!(rows, whole);
        }
        Ok::<(), Error>(())
    };
    futures::try_join!(write, read)?;
    Ok(())
}

pub(super) async fn connectors_are_kept_whole_and_listed_by_key(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let digest = |connector: &crate::domain::connector::Connector| (&connector.release).into();
    let mut connectors = Vec::new();
    for name in ["a-b", "a.b", "a0", "ab", "b"] {
        connectors.push(connector(name)?);
    }
    let installed = InstalledRelease { identity: digest(&connectors[0]), installed_at: Timestamp(1_234_567) };
    connectors[0].installation =
        Installation::Updating { installed: installed.clone(), candidate: Some(digest(&connectors[0])) };
    connectors[1].installation = Installation::Failed {
        failure_code: FailureCode(FailureCode::PHYSICALLY_ABSENT.to_owned()),
        installed: Some(installed.clone()),
    };
    connectors[2].installation = Installation::Installed { installed, failure_code: None };
    connectors[3].compatibility = Compatibility::removed_from_catalog();
    let mut shuffled = connectors.clone();
    shuffled.reverse();
    save_connectors(&*store, &shuffled).await?;

    assert_eq!(store.snapshot().await?.connectors, connectors);
    assert_eq!(store.connector(&key("a.b")?).await?.as_ref(), Some(&connectors[1]));
    let mut tx = store.begin().await?;
    assert_eq!(tx.connectors().await?, connectors);
    let mut replaced = connectors[1].clone();
    replaced.installation = Installation::NotInstalled;
    tx.save_connector(&replaced).await?;
    tx.delete_connector(&key("a0")?).await?;
    tx.delete_connector(&key("unknown")?).await?;
    assert_eq!(
        tx.connector(&key("a.b")?).await?.as_ref(),
        Some(&replaced),
        "a transaction sees its own writes"
    );
    assert_eq!(tx.connector(&key("a0")?).await?, None);
    tx.commit().await?;
    let expected = [&connectors[0], &replaced, &connectors[3], &connectors[4]].map(Clone::clone);
    assert_eq!(store.snapshot().await?.connectors, expected);
    Ok(())
}

pub(super) async fn many_connectors_keep_their_order(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut connectors = Vec::new();
    for number in 0..1_100 {
        let mut connector = connector("sample")?;
        connector.key = key(&format!("c{number:04}"))?;
        connectors.push(connector);
    }
    save_connectors(&*store, &connectors).await?;
    assert!(store.snapshot().await?.connectors == connectors, "each is there once, by key");
    Ok(())
}

pub(super) async fn the_catalog_remembers_its_state_and_source(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    for state in [CatalogState::Refreshing, CatalogState::Ready, CatalogState::Failed, CatalogState::Stale] {
        let source = format!("source {state:?}");
        let mut tx = store.begin().await?;
        tx.set_catalog_state(state).await?;
        tx.save_source_revision(&source).await?;
        tx.commit().await?;
        let snapshot = open(&factory).await?.store.snapshot().await?;
        assert_eq!((snapshot.catalog_state, snapshot.source_revision), (state, source));
        assert_eq!(snapshot.revision, Revision(0), "only the caller advances the revision");
    }
    Ok(())
}

pub(super) async fn settings_are_kept(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    assert_eq!(store.setting("node").await?, None);
    store.set_setting("node", "one").await?;
    store.set_setting("other", "").await?;
    store.set_setting("node", "two 'quoted' $1").await?;
    let again = open(&factory).await?.store;
    assert_eq!(again.setting("node").await?.as_deref(), Some("two 'quoted' $1"));
    assert_eq!(again.setting("other").await?.as_deref(), Some(""));
    Ok(())
}

pub(super) async fn counters_reach_their_limit_and_not_beyond(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    const MOST: u64 = i64::MAX as u64;
    let store = open(&factory).await?.store;
    let (signed_out, ann) = (OperationScope::default(), AccountId::parse("ann")?);
    let mut row = planned(&signed_out, "alpha")?;
    row.desired.generation = MOST;
    row.lease_token = LeaseToken(MOST);
    save_convergence(&*store, &row).await?;
    assert_eq!(store.convergence(&signed_out, &row.desired.connector_key).await?.as_ref(), Some(&row));
    let mut tx = store.begin().await?;
    tx.save_authorization_revision(&ann, MOST).await?;
    tx.commit().await?;

    let before = store.scoped_snapshot(&signed_out).await?;
    row.desired.generation = MOST + 1;
    assert_eq!(refused(save_convergence(&*store, &row).await), ErrorCode::Unavailable);
    let mut tx = store.begin().await?;
    tx.advance_revision();
    assert_eq!(refused(tx.save_authorization_revision(&ann, MOST + 1).await), ErrorCode::Unavailable);
    assert_eq!(refused(tx.commit().await), ErrorCode::Unavailable);
    assert_eq!(store.scoped_snapshot(&signed_out).await?, before);
    assert_eq!(store.begin().await?.authorization_revision(&ann).await?, Some(MOST));
    Ok(())
}

pub(super) async fn reopening_keeps_everything(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let ann = scope("ann")?;
    let mut received = install_of("ann", "received", "gamma")?;
    received.execution.release_receipt = Some(receipt(&received)?);
    let release = received.frozen_release()?.clone();
    save_operations(&*store, &[received, attempt_of("ann", "attempt", "delta")?]).await?;
    save_convergence(&*store, &planned(&ann, "gamma")?).await?;
    let mut tx = store.begin().await?;
    write_one_of_each(&mut *tx).await?;
    tx.commit().await?;
    store.set_setting("name", "value").await?;
    let minute = std::time::Duration::from_secs(60);
    let claimed = store.claim_operation(&operation_id("received")?, &worker("w1")?, minute).await?;
    let snapshot = store.snapshot().await?;
    let scoped = store.scoped_snapshot(&ann).await?;
    let (recoverable, pending) = (store.recoverable_operations().await?, store.pending_events(10).await?);
    assert_eq!((scoped.market.operations.len(), recoverable.len(), pending.len()), (2, 2, 1));
    drop(store);

    let again = open(&factory).await?.store;
    assert_eq!(again.snapshot().await?, snapshot);
    assert_eq!(again.scoped_snapshot(&ann).await?, scoped);
    assert_eq!(again.recoverable_operations().await?, recoverable);
    assert_eq!(again.pending_events(10).await?, pending);
    assert_eq!(again.operation(&operation_id("received")?).await?, claimed);
    assert_eq!(again.open_authorizations(&ann).await?.len(), 1);
    let found = again.installed_release(&release.connector_key, &release.release_digest).await?;
    assert_eq!(found, Some(release));
    assert_eq!(again.setting("name").await?.as_deref(), Some("value"));
    let truth = again.begin().await?.authorization_revision(&AccountId::parse("ann")?).await?;
    assert_eq!(truth, Some(7));
    let lease = claimed.as_ref().map(lease_of).transpose()?;
    let lease = lease.ok_or_else(|| Error::unavailable("the operation could not be claimed"))?;
    again.renew_operation(&lease, minute).await?;
    Ok(())
}
