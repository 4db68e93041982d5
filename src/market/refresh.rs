//! Reading the whole catalog (spec C.6).

use std::collections::{HashMap, HashSet};

use super::{
    accept::{Accepted, Mutation, announce},
    application::Application,
    catalog::{offered, source_error},
    execute::held,
    tx::transaction,
};
use crate::{
    domain::{
        catalog::{CatalogContents, CatalogState},
        compatibility::Compatibility,
        error::Error,
        id::ConnectorKey,
        installation::Installation,
        release::{Release, ReleaseStatus},
        revision::Revision,
    },
    ports::{OperationLease, Tx},
};

impl Application {
    /// Accepts a refresh of the catalog. It does not wait for operations on
    /// connectors, nor do they wait for it.
    ///
    /// # Errors
    /// As every command (spec C.5).
    pub async fn refresh_catalog(&self, mutation: Mutation) -> Result<Accepted, Error> {
        self.accept_refresh(&mutation).await
    }

    pub(super) async fn execute_refresh(&self, lease: &OperationLease) -> Result<(), Error> {
        let number = self.catalog_fence.take();
        let contents = self.config.catalog.contents().await.map_err(source_error)?;
        check_contents(&contents)?;
        let offers: HashMap<&ConnectorKey, (&Release, Compatibility)> = contents
            .releases
            .iter()
            .map(|release| (&release.connector_key, (release, self.compatibility(&release.manifest))))
            .collect();
        match self.catalog_fence.enter(number).await {
            Some(mut applied) => {
                self.apply(lease, &contents.source_revision, &offers).await?;
                *applied = number;
            }
            // What is stored is newer than what was read. The catalog is usable,
            // so it is called ready and not left refreshing (spec C.14, hazard 5).
            None => self.finish_superseded(lease).await?,
        }
        Ok(())
    }

    async fn apply(
        &self,
        lease: &OperationLease,
        source_revision: &str,
        offers: &HashMap<&ConnectorKey, (&Release, Compatibility)>,
    ) -> Result<(), Error> {
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut operation = held(tx, lease).await?;
            let revision = tx.advance_revision();
            let mut unseen = offers.clone();
            for stored in tx.connectors().await? {
                match unseen.remove(&stored.key) {
                    Some((release, compatibility)) => {
                        // Only what changed gets the new revision, so that a
                        // refresh does not invalidate what callers have read.
                        if let Some(mut connector) = offered(Some(stored), release, &compatibility) {
                            connector.revision = revision;
                            tx.save_connector(&connector).await?;
                        }
                    }
                    None => delist(tx, stored, revision).await?,
                }
            }
            for (release, compatibility) in unseen.into_values() {
                if let Some(mut connector) = offered(None, release, &compatibility) {
                    connector.revision = revision;
                    tx.save_connector(&connector).await?;
                }
            }
            tx.save_source_revision(source_revision).await?;
            tx.set_catalog_state(CatalogState::Ready).await?;
            operation.complete(now);
            tx.save_operation(&operation).await?;
            announce(tx, &operation, revision).await?;
        })
    }

    async fn finish_superseded(&self, lease: &OperationLease) -> Result<(), Error> {
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut operation = held(tx, lease).await?;
            let revision = tx.advance_revision();
            tx.set_catalog_state(CatalogState::Ready).await?;
            operation.complete(now);
            tx.save_operation(&operation).await?;
            announce(tx, &operation, revision).await?;
        })
    }
}

/// What becomes of a stored connector that the catalog no longer lists: gone when
/// nothing hangs on it, else kept and marked.
async fn delist(
    tx: &mut dyn Tx,
    mut stored: crate::domain::connector::Connector,
    revision: Revision,
) -> Result<(), Error> {
    let idle = stored.installation == Installation::NotInstalled
        && tx.active_operation_in_lane(Some(&stored.key)).await?.is_none();
    if idle {
        return tx.delete_connector(&stored.key).await;
    }
    if stored.compatibility.is_removed_from_catalog() {
        return Ok(());
    }
    stored.compatibility = Compatibility::removed_from_catalog();
    stored.revision = revision;
    tx.save_connector(&stored).await
}

/// One wrong release and nothing is applied: a catalog is taken whole.
fn check_contents(contents: &CatalogContents) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for release in &contents.releases {
        release.validate()?;
        if release.status != ReleaseStatus::Available {
            return Err(Error::invalid_manifest(format!(
                "the catalog offers release {}, which is superseded",
                release.release_id
            )));
        }
        if !seen.insert(&release.connector_key) {
            return Err(Error::invalid_manifest(format!(
                "the catalog offers two releases of {}",
                release.connector_key
            )));
        }
    }
    Ok(())
}
