//! Evidence of what was installed, in step with operations and outliving them.

use std::sync::Arc;

use super::{
    StoreFactory,
    samples::{connector, install, key, open, operation, receipt, refused, release, save_operations},
};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        installation::{Installation, InstalledRelease},
        operation::{Operation, OperationFailure, OperationKind},
        release::Release,
        timestamp::Timestamp,
    },
    ports::{CleanupRequest, Store},
};

/// An install of `version` of alpha whose files were received.
fn received(id: &str, version: &str) -> Result<Operation, Error> {
    let mut alpha = connector("alpha")?;
    alpha.release = release("alpha", version)?;
    let mut operation = operation(id, OperationKind::Install, Some(&alpha))?;
    operation.execution.release_receipt = Some(receipt(&operation)?);
    Ok(operation)
}

fn removal(id: &str) -> Result<Operation, Error> {
    let mut alpha = connector("alpha")?;
    let installed = InstalledRelease { identity: (&alpha.release).into(), installed_at: Timestamp(1) };
    alpha.installation = Installation::Installed { installed, failure_code: None };
    operation(id, OperationKind::Uninstall, Some(&alpha))
}

async fn completed(store: &dyn Store, mut operation: Operation) -> Result<(), Error> {
    save_operations(store, std::slice::from_ref(&operation)).await?;
    operation.complete(Timestamp(2_000));
    save_operations(store, &[operation]).await
}

async fn found(store: &dyn Store, version: &str) -> Result<Option<Release>, Error> {
    store.installed_release(&key("alpha")?, &release("alpha", version)?.release_digest).await
}

pub(super) async fn a_received_release_is_found_beside_the_current_one(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    completed(&*store, received("first", "1.0.0")?).await?;
    let mut update = received("second", "2.0.0")?;
    save_operations(&*store, std::slice::from_ref(&update)).await?;
    assert_eq!(found(&*store, "1.0.0").await?, Some(release("alpha", "1.0.0")?));
    assert_eq!(found(&*store, "2.0.0").await?, Some(release("alpha", "2.0.0")?));
    assert_eq!(found(&*store, "3.0.0").await?, None);
    assert_eq!(
        store.installed_release(&key("beta")?, &release("alpha", "1.0.0")?.release_digest).await?,
        None,
        "a digest is evidence for its own connector"
    );

    update.complete(Timestamp(2_000));
    save_operations(&*store, &[update]).await?;
    assert_eq!(found(&*store, "2.0.0").await?, Some(release("alpha", "2.0.0")?));
    Ok(())
}

pub(super) async fn a_release_that_was_not_received_is_not_evidence(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install("one", "alpha")?]).await?;
    assert_eq!(found(&*store, "1.0.0").await?, None);
    Ok(())
}

pub(super) async fn evidence_outlives_its_operation(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    completed(&*store, received("first", "1.0.0")?).await?;
    let all = CleanupRequest {
        operations_ended_by: Timestamp(i64::MAX),
        events_published_by: Timestamp(i64::MAX),
        batch: 500,
    };
    assert_eq!(store.clean_up(&all).await?.operations, 1);
    let again = open(&factory).await?.store;
    let evidence = found(&*again, "1.0.0").await?;
    assert_eq!(evidence, Some(release("alpha", "1.0.0")?));
    if let Some(release) = evidence {
        release.validate()?; // to the last digit: its digests still hold
    }
    Ok(())
}

pub(super) async fn a_completed_removal_takes_the_evidence_away(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    completed(&*store, received("first", "1.0.0")?).await?;
    completed(&*store, received("second", "2.0.0")?).await?;
    let mut removal = removal("third")?;
    save_operations(&*store, std::slice::from_ref(&removal)).await?;
    assert_eq!(found(&*store, "2.0.0").await?, Some(release("alpha", "2.0.0")?));
    removal.complete(Timestamp(3_000));
    save_operations(&*store, &[removal]).await?;
    assert_eq!(found(&*store, "1.0.0").await?, None);
    assert_eq!(found(&*store, "2.0.0").await?, None);
    Ok(())
}

pub(super) async fn a_failed_removal_keeps_the_evidence(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    completed(&*store, received("first", "1.0.0")?).await?;
    let mut removal = removal("second")?;
    let failure = OperationFailure { code: ErrorCode::Unavailable, message: "busy".into() };
    removal.fail(ErrorCode::InstallFailed, failure, Timestamp(3_000));
    save_operations(&*store, &[removal]).await?;
    assert_eq!(found(&*store, "1.0.0").await?, Some(release("alpha", "1.0.0")?));
    Ok(())
}

pub(super) async fn a_receipt_without_its_release_is_refused(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut operation = received("first", "1.0.0")?;
    if let Some(target) = &mut operation.target {
        target.release = None;
    }
    let before = store.snapshot().await?;
    assert_eq!(refused(save_operations(&*store, &[operation]).await), ErrorCode::InstallFailed);
    assert_eq!(store.snapshot().await?, before);
    Ok(())
}
