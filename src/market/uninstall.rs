//! Removing a connector: its route first, then its files. Its authorization is the
//! account's, not the device's, and stays (spec C.8).

use super::{
    accept::{Accepted, ConnectorMutation, announce},
    application::Application,
    execute::held,
    install::install_failed,
    plan::{other_release, save_intent},
    snapshot::unknown_connector,
    tx::transaction,
};
use crate::{
    domain::{
        connector::Connector,
        convergence::Intent,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        id::ConnectorKey,
        installation::Installation,
        operation::{Operation, OperationKind, OperationScope, Stage},
        release::Release,
    },
    ports::{OperationLease, UninstallRequest},
};

impl Application {
    /// Accepts the removal of a connector from this device.
    ///
    /// # Errors
    /// As every command (spec C.5); [`ErrorCode::OperationInProgress`] when
    /// nothing is installed.
    pub async fn uninstall(&self, command: ConnectorMutation) -> Result<Accepted, Error> {
        self.accept_connector(&command, OperationKind::Uninstall, begin).await
    }

    pub(super) async fn execute_uninstall(
        &self,
        lease: &OperationLease,
        operation: &Operation,
    ) -> Result<(), Error> {
        let no_target =
            || Error::new(ErrorCode::InstallFailed, "the operation does not name the release to remove");
        let target = operation.target.as_ref().ok_or_else(no_target)?;
        let (key, digest) = (&target.connector_key, target.identity.release_digest);
        let scope = &operation.scope;
        let generation = operation.generation.clone().ok_or_else(no_target)?;

        let connector = self.config.store.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
        let release = self.release_evidence(&connector, &digest).await?;
        self.switch_off(lease, scope, &release).await?;
        self.settle(scope, key).await?;

        self.enter(lease, Stage::Removing).await?;
        let request = UninstallRequest {
            operation_id: operation.operation_id.clone(),
            scope: scope.clone(),
            generation,
            connector_key: key.clone(),
        };
        self.config
            .installer
            .uninstall(&request)
            .await
            .map_err(|cause| install_failed(format!("the files of {key} could not be removed"), cause))?;
        self.forget(lease, scope, key, &digest).await
    }

    /// Plans the runtime off, whatever the binding says.
    async fn switch_off(
        &self,
        lease: &OperationLease,
        scope: &OperationScope,
        release: &Release,
    ) -> Result<(), Error> {
        let key = &release.connector_key;
        let binding = self.binding(scope, release).await?;
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let operation = held(tx, lease).await?;
            let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            if !matches!(connector.installation, Installation::Uninstalling { .. }) {
                Err(other_release(key))?;
            }
            let intent = Intent {
                binding_enabled: false,
                activation: None,
                connection_id: binding.connection_id.clone(),
                release_digest: release.release_digest,
                authorization_state: binding.authorization,
                force: false,
            };
            if save_intent(tx, scope, &connector, &intent, now).await? {
                let revision = tx.advance_revision();
                connector.revision = revision;
                tx.save_connector(&connector).await?;
                announce(tx, &operation, revision).await?;
            }
        })?;
        self.intent_saved.notify_one();
        Ok(())
    }

    async fn forget(
        &self,
        lease: &OperationLease,
        scope: &OperationScope,
        key: &ConnectorKey,
        digest: &Sha256Digest,
    ) -> Result<(), Error> {
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut operation = held(tx, lease).await?;
            let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            let revision = tx.advance_revision();
            connector.installation = connector.installation.finish_uninstall(digest)?;
            connector.revision = revision;
            operation.complete(now);
            tx.delete_convergence(scope, key).await?;
            tx.delete_connector_state(key).await?;
            tx.save_connector(&connector).await?;
            tx.save_operation(&operation).await?;
            announce(tx, &operation, revision).await?;
        })
    }
}

fn begin(connector: &mut Connector) -> Result<(), Error> {
    connector.installation = connector.installation.clone().begin_uninstall()?;
    Ok(())
}
