//! Scoped snapshots: what concerns the caller, and nothing of anybody else.

use std::sync::Arc;

use super::{
    StoreFactory,
    samples::{
        ROUNDS, attempt_of, connector, handles, install, install_of, open, operation, planned, projection,
        save_connectors, save_convergence, save_operations, save_projection, scope,
    },
};
use crate::{
    domain::{
        error::Error,
        event::ChangedEvent,
        id::NodeId,
        operation::{OperationKind, OperationScope},
        snapshot::ScopedSnapshot,
    },
    ports::Store,
};

fn ids(snapshot: &ScopedSnapshot) -> Vec<&str> {
    snapshot.market.operations.iter().map(|one| one.operation_id.as_str()).collect()
}

/// Something of ann's, of bob's, of nobody's and of the machine's.
async fn fill(store: &dyn Store) -> Result<(), Error> {
    save_connectors(store, &[connector("alpha")?, connector("beta")?]).await?;
    let mut private = operation("anns-private", OperationKind::ReconcileRuntime, Some(&connector("c1")?))?;
    private.scope = scope("ann")?;
    save_operations(
        store,
        &[
            install_of("ann", "b", "c2")?,
            install_of("ann", "a", "c3")?,
            attempt_of("ann", "attempt", "c4")?,
            install_of("bob", "bobs", "c5")?,
            install("nobodys", "c6")?,
            private,
        ],
    )
    .await?;
    for (account, key) in [("ann", "beta"), ("bob", "alpha"), ("ann", "alpha")] {
        save_projection(store, &projection(account, key)?).await?;
        save_convergence(store, &planned(&scope(account)?, key)?).await?;
    }
    save_convergence(store, &planned(&OperationScope::default(), "gamma")?).await?;
    let mut tx = store.begin().await?;
    tx.enqueue_changed(&ChangedEvent::default()).await?;
    tx.commit().await
}

pub(super) async fn a_scoped_snapshot_holds_the_callers_own_alone(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    fill(&*store).await?;
    let everything = store.snapshot().await?;
    let again = open(&factory).await?.store;
    let anns = again.scoped_snapshot(&scope("ann")?).await?;
    assert_eq!(ids(&anns), ["a", "attempt", "b"], "by id, without what is private");
    assert_eq!(anns.projections, [projection("ann", "alpha")?, projection("ann", "beta")?]);
    assert_eq!(anns.convergences, again.convergences(&scope("ann")?).await?);
    assert_eq!(anns.convergences.len(), 2);
    assert_eq!((anns.market.revision, anns.market.event_cursor), (everything.revision, 1));
    assert_eq!(anns.market.connectors, everything.connectors, "connectors are the machine's");
    assert_eq!(anns.market.catalog_state, everything.catalog_state);

    let bobs = again.scoped_snapshot(&scope("bob")?).await?;
    assert_eq!(ids(&bobs), ["bobs"]);
    assert_eq!(bobs.projections, [projection("bob", "alpha")?]);
    assert_eq!(bobs.convergences, again.convergences(&scope("bob")?).await?);
    let eves = again.scoped_snapshot(&scope("eve")?).await?;
    assert_eq!(ids(&eves), [""; 0]);
    assert_eq!((eves.projections, eves.convergences), (vec![], vec![]));

    let elsewhere = factory.open(&NodeId::parse("node-2")?).await?.store;
    let anns = elsewhere.scoped_snapshot(&scope("ann")?).await?;
    assert_eq!((ids(&anns).len(), anns.projections.len()), (3, 2));
    assert_eq!(anns.convergences, [], "they are another node's");
    Ok(())
}

pub(super) async fn signed_out_there_are_no_operations_or_authorizations(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    fill(&*store).await?;
    let signed_out = store.scoped_snapshot(&OperationScope::default()).await?;
    assert_eq!(ids(&signed_out), [""; 0]);
    assert_eq!(signed_out.projections, []);
    assert_eq!(signed_out.convergences, store.convergences(&OperationScope::default()).await?);
    assert_eq!(signed_out.convergences.len(), 1);
    assert_eq!(signed_out.market.connectors.len(), 2);
    Ok(())
}

pub(super) async fn a_scoped_snapshot_is_of_one_revision(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let [writer, reader] = handles(&factory).await?;
    let ann = scope("ann")?;
    let write = async {
        for _ in 0..ROUNDS {
            let mut tx = writer.begin().await?;
            let revision = tx.advance_revision();
            let mut operation = install_of("ann", "one", "alpha")?;
            operation.attempt = u32::try_from(revision.0).unwrap_or(0);
            tx.save_operation(&operation).await?;
            let mut projection = projection("ann", "alpha")?;
            projection.connection_version = revision.0;
            tx.save_authorization_projection(&projection).await?;
            tx.enqueue_changed(&ChangedEvent { revision, ..ChangedEvent::default() }).await?;
            tx.commit().await?;
        }
        Ok::<(), Error>(())
    };
    let read = async {
        for _ in 0..ROUNDS {
            let snapshot = reader.scoped_snapshot(&ann).await?;
            let revision = snapshot.market.revision.0;
            let attempt = snapshot.market.operations.first().map_or(0, |one| u64::from(one.attempt));
            let version = snapshot.projections.first().map_or(0, |one| one.connection_version);
            let cursor = snapshot.market.event_cursor.unsigned_abs();
            assert_eq!((attempt, version, cursor), (revision, revision, revision));
        }
        Ok::<(), Error>(())
    };
    futures::try_join!(write, read)?;
    Ok(())
}
