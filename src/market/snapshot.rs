//! Reading: the snapshot, one connector, one operation.
//!
//! A connector that its catalog delisted, or whose release does not hold, is
//! hidden with its operations. The rows stay: they are what an uninstall needs.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use super::application::Application;
use crate::domain::{
    connector::Connector,
    convergence::ConnectorRuntime,
    error::Error,
    id::{ConnectorKey, OperationId},
    installation::Installation,
    operation::{Operation, OperationKind, OperationScope},
    release::Release,
    revision::Revision,
    snapshot::PublicSnapshot,
};

/// Whether the release of a connector holds, by the revision of its row: every
/// change of a row stamps a new one, so digests are recomputed once a change.
#[derive(Debug, Default)]
pub(super) struct Verdicts(Mutex<HashMap<ConnectorKey, (Revision, bool)>>);

impl Verdicts {
    /// Keeps the connectors whose release holds.
    fn retain_valid(&self, connectors: &mut Vec<Connector>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut current = HashMap::with_capacity(connectors.len());
        connectors.retain(|connector| {
            let holds = match known.get(&connector.key) {
                Some((revision, holds)) if *revision == connector.revision => *holds,
                _ => connector.release.validate().is_ok(),
            };
            current.insert(connector.key.clone(), (connector.revision, holds));
            holds
        });
        *known = current;
    }
}

impl Application {
    /// Everything that `scope` may see, at one revision (spec C.1).
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn snapshot(&self, scope: &OperationScope) -> Result<PublicSnapshot, Error> {
        let store = &self.config.store;
        let mut stored = store.snapshot().await?;
        let mut runtimes: HashMap<ConnectorKey, ConnectorRuntime> = store
            .convergences(scope)
            .await?
            .into_iter()
            .map(|row| (row.desired.connector_key.clone(), row.runtime(&self.config.boot_epoch)))
            .collect();
        stored.connectors.retain(|connector| !connector.compatibility.is_removed_from_catalog());
        self.verdicts.retain_valid(&mut stored.connectors);
        let connectors: Vec<(Connector, Option<ConnectorRuntime>)> = stored
            .connectors
            .into_iter()
            .map(|connector| {
                let runtime = runtimes.remove(&connector.key);
                let runtime = is_installed(&connector).then(|| runtime.unwrap_or(ConnectorRuntime::Starting));
                (connector, runtime)
            })
            .collect();
        let visible: std::collections::HashSet<&ConnectorKey> =
            connectors.iter().map(|(connector, _)| &connector.key).collect();
        let operations = stored
            .operations
            .into_iter()
            .filter(|operation| {
                operation.connector_key.as_ref().is_none_or(|key| visible.contains(key))
                    && operation.is_visible_to(scope)
            })
            .collect();
        Ok(PublicSnapshot {
            revision: stored.revision,
            catalog_state: stored.catalog_state,
            event_cursor: stored.event_cursor,
            connectors,
            operations,
        })
    }

    /// One connector.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::NotFound`] for an unknown or delisted one;
    /// [`crate::domain::error::ErrorCode::InvalidManifest`] when its release does not hold.
    pub async fn connector(&self, key: &ConnectorKey) -> Result<Connector, Error> {
        let stored = self.config.store.connector(key).await?;
        let connector = stored
            .filter(|connector| !connector.compatibility.is_removed_from_catalog())
            .ok_or_else(|| unknown_connector(key))?;
        connector.release.validate()?;
        Ok(connector)
    }

    /// One connector with its derived runtime, as `scope` sees it.
    ///
    /// # Errors
    /// As [`connector`](Self::connector).
    pub async fn connector_view(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<(Connector, Option<ConnectorRuntime>), Error> {
        let connector = self.connector(key).await?;
        if !is_installed(&connector) {
            return Ok((connector, None));
        }
        let row = self.config.store.convergence(scope, key).await?;
        let runtime = row.map_or(ConnectorRuntime::Starting, |row| row.runtime(&self.config.boot_epoch));
        Ok((connector, Some(runtime)))
    }

    /// The release in place, where the catalog offers another; none when its
    /// evidence is gone.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn installed_release(&self, connector: &Connector) -> Result<Option<Release>, Error> {
        let installed = connector.installation.installed().map(|one| one.identity.release_digest);
        match installed.filter(|digest| *digest != connector.release.release_digest) {
            Some(digest) => self.config.store.installed_release(&connector.key, &digest).await,
            None => Ok(None),
        }
    }

    /// One operation, for whoever may see it.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::NotFound`] for an unknown one, and for
    /// one that is not the caller's, so that nobody learns that it exists.
    pub async fn operation(&self, scope: &OperationScope, id: &OperationId) -> Result<Operation, Error> {
        self.config
            .store
            .operation(id)
            .await?
            .filter(|operation| {
                operation.kind != OperationKind::ReconcileRuntime && operation.is_visible_to(scope)
            })
            .ok_or_else(|| Error::not_found(format!("no operation {id} of yours is known")))
    }
}

fn is_installed(connector: &Connector) -> bool {
    matches!(connector.installation, Installation::Installed { .. })
}

pub(super) fn unknown_connector(key: &ConnectorKey) -> Error {
    Error::not_found(format!("no connector {key} is listed; refresh the catalog or check the key"))
}
