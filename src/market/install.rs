//! Installing, updating and repairing: one command, and one gate. Nothing is
//! called installed before the new release has answered (spec C.7).

use super::{
    accept::{Accepted, ConnectorMutation, announce},
    application::Application,
    execute::held,
    plan::{other_release, save_intent},
    snapshot::unknown_connector,
    tx::transaction,
};
use crate::{
    domain::{
        compatibility::CompatibilityState,
        connector::Connector,
        convergence::Intent,
        error::{Error, ErrorCode},
        id::ConnectorKey,
        installation::ReleaseIdentity,
        operation::{Operation, OperationKind, OperationScope, Stage},
        release::Release,
        runtime::ReleaseReceipt,
    },
    ports::{InstallRequest, OperationLease},
};

impl Application {
    /// Accepts the installation of what the catalog offers: the first one, an
    /// update, or the repair of files that have drifted.
    ///
    /// # Errors
    /// As every command (spec C.5); [`ErrorCode::Incompatible`] when the release
    /// does not run on this host.
    pub async fn install(&self, command: ConnectorMutation) -> Result<Accepted, Error> {
        self.accept_connector(&command, OperationKind::Install, begin).await
    }

    pub(super) async fn execute_install(
        &self,
        lease: &OperationLease,
        operation: &Operation,
        left_at: Stage,
    ) -> Result<(), Error> {
        let release = operation.frozen_release()?;
        self.config.registry.check(release)?;
        let scope = &operation.scope;
        // An attempt that had got as far as the runtime waits for the same intent;
        // a first one starts the release anew, even where the same one ran before.
        let resumed = left_at == Stage::RuntimePending;
        let request = InstallRequest {
            operation_id: operation.operation_id.clone(),
            scope: scope.clone(),
            generation: operation.generation.clone().ok_or_else(|| {
                Error::new(ErrorCode::InstallFailed, "the operation does not bear a generation")
            })?,
            release: release.clone(),
        };

        let receipt = self.config.installer.install(&request).await.map_err(|cause| {
            install_failed(format!("release {} could not be put in place", release.release_id), cause)
        })?;
        verify_receipt(&receipt, operation, release)?;
        self.aim(lease, &receipt, scope, release, !resumed).await?;
        self.settle(scope, &release.connector_key).await?;

        // The files become the current ones only now, after the release has
        // answered: until then an update can return to the release before it.
        self.config.installer.commit(&request, &receipt).await.map_err(|cause| {
            install_failed(format!("release {} could not be made current", release.release_id), cause)
        })?;
        self.promote(lease, scope, release).await
    }

    /// Stores the receipt, makes the release the candidate and plans its runtime: its
    /// stages `installed` and `runtime_pending`, which nothing comes between.
    async fn aim(
        &self,
        lease: &OperationLease,
        receipt: &ReleaseReceipt,
        scope: &OperationScope,
        release: &Release,
        force: bool,
    ) -> Result<(), Error> {
        let key = &release.connector_key;
        let binding = self.binding(scope, release).await?;
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut operation = held(tx, lease).await?;
            let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            let revision = tx.advance_revision();
            connector.installation = connector.installation.with_candidate(ReleaseIdentity::from(release))?;
            connector.revision = revision;
            let intent = Intent {
                binding_enabled: binding.enabled,
                activation: None,
                connection_id: binding.connection_id.clone(),
                release_digest: release.release_digest,
                authorization_state: binding.authorization,
                force,
            };
            save_intent(tx, scope, &connector, &intent, now).await?;
            operation.execution.release_receipt = Some(receipt.clone());
            operation.enter(Stage::RuntimePending, now);
            tx.save_connector(&connector).await?;
            tx.save_operation(&operation).await?;
            announce(tx, &operation, revision).await?;
        })?;
        self.intent_saved.notify_one();
        Ok(())
    }

    /// Calls the candidate installed. A runtime that was switched off and seen so
    /// will do.
    async fn promote(
        &self,
        lease: &OperationLease,
        scope: &OperationScope,
        release: &Release,
    ) -> Result<(), Error> {
        let (key, digest) = (&release.connector_key, &release.release_digest);
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut operation = held(tx, lease).await?;
            let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            if !connector.installation.targets(digest) {
                Err(other_release(key))?;
            }
            let seen = tx.convergence(scope, key).await?.is_some_and(|row| {
                row.desired.release_digest == *digest && row.is_converged(&self.config.boot_epoch)
            });
            if !seen {
                Err(Error::unavailable(format!("the runtime of {key} moved on; it is awaited again")))?;
            }
            let revision = tx.advance_revision();
            connector.installation = connector.installation.promote(digest, now)?;
            connector.revision = revision;
            operation.complete(now);
            tx.save_connector(&connector).await?;
            tx.save_operation(&operation).await?;
            announce(tx, &operation, revision).await?;
        })
    }
}

fn begin(connector: &mut Connector) -> Result<(), Error> {
    let compatibility = &connector.compatibility;
    if compatibility.state != CompatibilityState::Supported {
        return Err(incompatible(&connector.key, compatibility.reason.as_deref()));
    }
    connector.installation = connector.installation.clone().begin_install()?;
    Ok(())
}

fn incompatible(key: &ConnectorKey, reason: Option<&str>) -> Error {
    Error::new(
        ErrorCode::Incompatible,
        format!("connector {key} does not run on this host: {}", reason.unwrap_or("no reason was given")),
    )
}

/// The receipt must be for this operation and this release (spec A.6).
fn verify_receipt(receipt: &ReleaseReceipt, operation: &Operation, release: &Release) -> Result<(), Error> {
    let matches = receipt.operation_id == operation.operation_id
        && receipt.connector_key == release.connector_key
        && receipt.version == release.version
        && receipt.release_digest == release.release_digest
        && receipt.artifact_sha256 == release.artifact.sha256;
    if matches {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::InstallFailed,
        format!("the installer answered with a receipt that is not for {}", release.release_id),
    ))
}

/// A failure of a port during an installation or removal. The port's own word on
/// whether repeating helps is kept, and its error is the detail that people see.
pub(super) fn install_failed(message: String, cause: Error) -> Error {
    let retryable = cause.retryable;
    Error::new(ErrorCode::InstallFailed, message).with_retryable(retryable).with_cause(cause)
}
