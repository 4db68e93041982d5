//! Ending an operation without success, so that nothing half done stays behind.

use std::time::Duration;

use super::{accept::announce, application::Application, execute::held, plan::save_intent, tx::transaction};
use crate::{
    domain::{
        authorization::{Authorization, AuthorizationState},
        catalog::CatalogState,
        connector::Connector,
        convergence::Intent,
        error::{Error, ErrorCode},
        id::ConnectorKey,
        installation::Installation,
        operation::{Operation, OperationFailure, OperationKind},
        runtime::DeactivateRequest,
        timestamp::Timestamp,
    },
    ports::{OperationLease, Tx, UninstallRequest},
};

/// How long routes of an abandoned installation may take to go.
const FENCE_DEADLINE: Duration = Duration::from_secs(4);

impl Application {
    /// Fails an operation for good; nothing when it has ended (spec C.12).
    pub(super) async fn fail(
        &self,
        operation: &Operation,
        lease: Option<&OperationLease>,
        code: ErrorCode,
        failure: &OperationFailure,
    ) -> Result<(), Error> {
        let fallback = match operation.kind {
            OperationKind::Install => self.retreat(operation).await?,
            _ => None,
        };
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let stored = match lease {
                Some(lease) => Some(held(tx, lease).await?),
                None => tx.operation(&operation.operation_id).await?.filter(Operation::is_active),
            };
            if let Some(mut operation) = stored {
                let revision = tx.advance_revision();
                operation.fail(code, failure.clone(), now);
                if operation.kind == OperationKind::RefreshCatalog {
                    tx.set_catalog_state(CatalogState::Stale).await?;
                }
                let connector = match &operation.connector_key {
                    Some(key) => tx.connector(key).await?,
                    None => None,
                };
                if let Some(mut connector) = connector {
                    connector.revision = revision;
                    settle_connector(tx, &operation, &mut connector, code, fallback.as_ref(), now).await?;
                    tx.save_connector(&connector).await?;
                }
                tx.save_operation(&operation).await?;
                announce(tx, &operation, revision).await?;
            }
        })?;
        self.intent_saved.notify_one();
        Ok(())
    }

    /// Takes back what a failing installation has done outside the database, while
    /// the lane still keeps others out. Answers with the intent to return to.
    async fn retreat(&self, operation: &Operation) -> Result<Option<Intent>, Error> {
        let Some(key) = &operation.connector_key else { return Ok(None) };
        let Some(connector) = self.config.store.connector(key).await? else { return Ok(None) };
        if let Some(installed) = connector.installation.installed() {
            // An update returns to the release before it by itself.
            let digest = installed.identity.release_digest;
            if let Ok(release) = self.release_evidence(&connector, &digest).await {
                let binding = self.binding(&operation.scope, &release).await?;
                return Ok(Some(Intent {
                    binding_enabled: binding.enabled,
                    activation: None,
                    connection_id: binding.connection_id,
                    release_digest: digest,
                    authorization_state: binding.authorization,
                    force: false,
                }));
            }
        }
        // The convergence goes with the failure, so no one else would fence a
        // route that the candidate may have.
        if let Some(row) = self.config.store.convergence(&operation.scope, key).await? {
            let request = DeactivateRequest {
                scope: operation.scope.clone(),
                connection_id: None,
                connector_key: key.clone(),
                release_digest: None,
                generation: self.generation(row.desired.generation),
            };
            self.config.host.deactivate(&request, FENCE_DEADLINE).await.map_err(|cause| {
                Error::unavailable(format!("the routes of {key} could not be fenced")).with_cause(cause)
            })?;
        }
        if matches!(connector.installation, Installation::Installing { installed: None, .. }) {
            self.clear_away(operation, key).await;
        }
        Ok(None)
    }

    /// Removes the files of a connector that was never installed: nobody could
    /// uninstall it later. What stays is overwritten by the next install.
    async fn clear_away(&self, operation: &Operation, key: &ConnectorKey) {
        let request = UninstallRequest {
            operation_id: operation.operation_id.clone(),
            scope: operation.scope.clone(),
            generation: operation.generation.clone().unwrap_or_else(|| self.generation(1)),
            connector_key: key.clone(),
        };
        if let Err(error) = self.config.installer.uninstall(&request).await {
            tracing::warn!(connector.key = %key, %error, "the files of a failed installation were not removed");
        }
    }
}

/// What the failure of `operation` makes of its connector.
async fn settle_connector(
    tx: &mut dyn Tx,
    operation: &Operation,
    connector: &mut Connector,
    code: ErrorCode,
    fallback: Option<&Intent>,
    now: Timestamp,
) -> Result<(), Error> {
    match operation.kind {
        OperationKind::Install => {
            let had_candidate = connector.installation.candidate().is_some();
            connector.installation = connector.installation.clone().fail_install(code.into());
            match fallback {
                // The row is planned back and not deleted: it holds the user's switch.
                Some(intent) if connector.installation.targets(&intent.release_digest) => {
                    let intent = Intent { force: had_candidate, ..intent.clone() };
                    save_intent(tx, &operation.scope, connector, &intent, now).await?;
                }
                _ => tx.delete_convergence(&operation.scope, &connector.key).await?,
            }
        }
        OperationKind::Uninstall => {
            connector.installation = connector.installation.clone().fail_uninstall(code.into());
        }
        OperationKind::StartAuthorization | OperationKind::DisconnectAuthorization => {
            // An attempt for one account does not end what another one uses.
            let shared = operation.kind == OperationKind::StartAuthorization
                && connector.authorization.state == AuthorizationState::Connected;
            if !shared {
                connector.authorization = Authorization {
                    state: AuthorizationState::Failed,
                    failure_code: Some(code.as_str().to_owned()),
                };
            }
        }
        OperationKind::RefreshCatalog | OperationKind::ReconcileRuntime => {}
    }
    Ok(())
}
