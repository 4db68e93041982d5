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
    authorization::{Authorization, AuthorizationProjection, AuthorizationState},
    connector::Connector,
    convergence::ConnectorRuntime,
    error::Error,
    id::{ConnectorKey, OperationId},
    installation::Installation,
    manifest::AuthorizationKind,
    operation::{Operation, OperationKind, OperationScope},
    release::Release,
    revision::Revision,
    snapshot::{PublicSnapshot, ScopedSnapshot},
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
        let ScopedSnapshot { market: mut stored, projections, convergences } =
            self.config.store.scoped_snapshot(scope).await?;
        let mut projections: HashMap<ConnectorKey, AuthorizationProjection> = projections
            .into_iter()
            .map(|projection| (projection.connector_key.clone(), projection))
            .collect();
        let mut runtimes: HashMap<ConnectorKey, ConnectorRuntime> = convergences
            .into_iter()
            .map(|row| (row.desired.connector_key.clone(), row.runtime(&self.config.boot_epoch)))
            .collect();
        stored.connectors.retain(|connector| !connector.compatibility.is_removed_from_catalog());
        self.verdicts.retain_valid(&mut stored.connectors);
        let connectors: Vec<(Connector, Option<ConnectorRuntime>)> = stored
            .connectors
            .into_iter()
            .map(|mut connector| {
                if let Some(projection) = projections.remove(&connector.key) {
                    overlay(&mut connector, projection);
                }
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
        let connector = self.seen_by(scope, connector).await?;
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

    /// A connector with what `scope`'s account holds in place of the device's own
    /// authorization (spec I.4). Signed out, it is the device's.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn seen_by(
        &self,
        scope: &OperationScope,
        mut connector: Connector,
    ) -> Result<Connector, Error> {
        let Some(account) = &scope.account_id else { return Ok(connector) };
        let manifest = &connector.release.manifest;
        if manifest.authorization_kind == AuthorizationKind::None {
            return Ok(connector);
        }
        let remote = manifest.implementation.is_remote();
        let ready = self.readiness.is_ready(Some(account));
        let held = self.config.store.authorization_projection(account, &connector.key).await?;
        match held.filter(|held| !remote || ready && held.server_synchronized) {
            Some(projection) => overlay(&mut connector, projection),
            None => connector.authorization = Authorization::of(AuthorizationState::Disconnected),
        }
        Ok(connector)
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

fn overlay(connector: &mut Connector, held: AuthorizationProjection) {
    if connector.release.manifest.authorization_kind != AuthorizationKind::None {
        connector.authorization = Authorization { state: held.state, failure_code: held.failure_code };
    }
}

fn is_installed(connector: &Connector) -> bool {
    matches!(connector.installation, Installation::Installed { .. })
}

pub(super) fn unknown_connector(key: &ConnectorKey) -> Error {
    Error::not_found(format!("no connector {key} is listed; refresh the catalog or check the key"))
}
