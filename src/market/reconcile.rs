//! Bringing runtimes to what they should be now, and waiting for it: for one
//! connector, for everything installed, or as an operation of its own.

use super::{
    accept::{Accepted, ConnectorMutation, Mutation, announce, busy},
    application::Application,
    execute::held,
    plan::Replan,
    snapshot::unknown_connector,
    tx::transaction,
};
use crate::{
    domain::{
        connector::Connector,
        error::{Error, ErrorCode},
        id::{ClientRequestId, ConnectorKey},
        installation::Installation,
        manifest::AuthorizationKind,
        operation::{Operation, OperationKind, OperationScope, OperationTarget},
    },
    ports::OperationLease,
};

/// How long a runtime is awaited. It goes on converging after that.
const AWAITED: std::time::Duration = std::time::Duration::from_secs(60);

/// Which of the installed connectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All.
    All,
    /// Those that run elsewhere on what an account holds: what changes with its truth.
    RemoteAuthorized,
}

impl Application {
    /// Plans the runtime of an installed connector, where what was planned is out of
    /// date, and waits until it is so. Nothing for one that is not installed and at
    /// rest (spec C.11, D.5).
    ///
    /// # Errors
    /// Why the runtime did not follow; [`ErrorCode::Unavailable`], retryable, when it
    /// did not in time.
    pub async fn reconcile_runtime(&self, scope: &OperationScope, key: &ConnectorKey) -> Result<(), Error> {
        self.bring_about(scope, key, Replan::IfChanged).await
    }

    /// As [`reconcile_runtime`](Self::reconcile_runtime), whatever was planned before:
    /// for a runtime that was seen to be broken.
    ///
    /// # Errors
    /// As [`reconcile_runtime`](Self::reconcile_runtime).
    pub async fn restart_runtime(&self, scope: &OperationScope, key: &ConnectorKey) -> Result<(), Error> {
        self.bring_about(scope, key, Replan::Always).await
    }

    /// Starts the runtimes of what is installed anew, each by itself. Answers with
    /// those that did not follow, by key.
    ///
    /// # Errors
    /// When what is installed cannot be read.
    pub async fn reconcile_installed(
        &self,
        scope: &OperationScope,
        selection: Selection,
    ) -> Result<Vec<(ConnectorKey, Error)>, Error> {
        let mut failures = Vec::new();
        for connector in self.config.store.snapshot().await?.connectors {
            let Installation::Installed { installed, .. } = &connector.installation else { continue };
            let digest = installed.identity.release_digest;
            let selected = match selection {
                Selection::All => Ok(true),
                Selection::RemoteAuthorized => {
                    self.release_evidence(&connector, &digest).await.map(|release| {
                        let manifest = release.manifest;
                        manifest.implementation.is_remote()
                            && manifest.authorization_kind != AuthorizationKind::None
                    })
                }
            };
            let outcome = match selected {
                Ok(true) => self.restart_runtime(scope, &connector.key).await,
                Ok(false) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                failures.push((connector.key, error));
            }
        }
        Ok(failures)
    }

    async fn bring_about(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
        replan: Replan,
    ) -> Result<(), Error> {
        let stored = self.config.store.connector(key).await?;
        if !stored.is_some_and(|stored| matches!(stored.installation, Installation::Installed { .. })) {
            return Ok(());
        }
        self.plan_runtime(scope, key, replan).await?;
        tokio::time::timeout(AWAITED, self.settle(scope, key)).await.map_err(|_| {
            Error::unavailable(format!("the runtime of {key} has not followed yet; it goes on by itself"))
        })?
    }

    /// Accepts a private operation that brings a connector's runtime about.
    ///
    /// # Errors
    /// As every command (spec C.5); [`ErrorCode::OperationInProgress`] when the
    /// connector is not installed.
    pub async fn accept_reconcile(&self, command: ConnectorMutation) -> Result<Accepted, Error> {
        self.accept_connector(&command, OperationKind::ReconcileRuntime, at_rest).await
    }

    /// As [`accept_reconcile`](Self::accept_reconcile) without a caller's id: joins
    /// the operation that does the same for the same account already. Answers whether
    /// a new one was made.
    ///
    /// # Errors
    /// [`ErrorCode::OperationInProgress`] while another operation holds the connector.
    pub async fn ensure_reconcile(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<(Operation, bool), Error> {
        let kind = OperationKind::ReconcileRuntime;
        let client_request_id = self.config.ids.fresh().and_then(ClientRequestId::parse)?;
        let (operation, created) = transaction!(self.config.store, |tx| {
            if let Some(active) = tx.active_operation_in_lane(Some(key)).await? {
                if active.kind != kind || active.scope != *scope {
                    Err(busy(Some(key)))?;
                }
                (active, false)
            } else {
                let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
                at_rest(&mut connector)?;
                let mutation = Mutation {
                    client_request_id: client_request_id.clone(),
                    expected_revision: tx.revision(),
                    scope: scope.clone(),
                };
                let revision = tx.advance_revision();
                connector.revision = revision;
                let target = OperationTarget::freeze(kind, &connector);
                let operation = self.new_operation(&mutation, kind, Some(key), target, revision)?;
                tx.save_connector(&connector).await?;
                tx.save_operation(&operation).await?;
                announce(tx, &operation, revision).await?;
                (operation, true)
            }
        })?;
        if created {
            self.hint(&operation)?;
        }
        Ok((operation, created))
    }

    /// The reference calls the host by itself here; going through the intent keeps
    /// one order of generations.
    pub(super) async fn execute_reconcile(
        &self,
        lease: &OperationLease,
        operation: &Operation,
    ) -> Result<(), Error> {
        let missing = || Error::new(ErrorCode::InstallFailed, "the operation does not name its connector");
        let key = operation.connector_key.as_ref().ok_or_else(missing)?;
        self.restart_runtime(&operation.scope, key).await?;
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut operation = held(tx, lease).await?;
            let revision = tx.advance_revision();
            operation.complete(now);
            tx.save_operation(&operation).await?;
            announce(tx, &operation, revision).await?;
        })
    }
}

fn at_rest(connector: &mut Connector) -> Result<(), Error> {
    super::plan::installed_digest(connector).map(drop)
}
