//! Executing an operation: claimed, kept by a heartbeat, once at a time in this
//! process, and ended or left for the next attempt by one rule (spec C.12).

use super::{
    accept::announce,
    application::Application,
    flight::{Place, follow},
    lease::{Claim, Held, keep},
    tx::transaction,
};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        id::OperationId,
        operation::{Operation, OperationFailure, OperationKind, Stage},
    },
    ports::{OperationLease, Tx},
};

/// How long the note of an ended attempt may take.
pub(super) const NOTE_BUDGET: std::time::Duration = std::time::Duration::from_secs(5);

/// An operation that was cut off so often in a row may be what ends the daemon:
/// it is given up, so that a restart is not the start of the same again.
const INTERRUPTIONS: u32 = 8;

impl Application {
    /// Executes an operation, or waits for who does so in this process and shares
    /// its outcome. Nothing happens to one that has ended or is claimed elsewhere.
    ///
    /// # Errors
    /// Why the attempt ended. Whether the operation ended with it is in its row.
    pub async fn execute(&self, id: &OperationId) -> Result<(), Error> {
        loop {
            match self.flights.join(id) {
                Place::Leader(flight) => return flight.land(self.execute_claimed(id).await),
                Place::Follower(flight) => {
                    if let Some(outcome) = follow(flight).await {
                        return outcome;
                    }
                }
            }
        }
    }

    async fn execute_claimed(&self, id: &OperationId) -> Result<(), Error> {
        let (store, owner) = (&self.config.store, &self.config.worker_id);
        let duration = self.config.lease_duration;
        let Some(operation) = store.claim_operation(id, owner, duration).await? else { return Ok(()) };
        let lease =
            OperationLease { operation_id: id.clone(), owner: owner.clone(), token: operation.lease_token };
        let claim = Held::new(store.clone(), self.tasks.clone(), Claim::Operation(lease.clone()));
        let outcome = tokio::select! {
            outcome = self.attempt(&lease) => outcome,
            lost = keep(duration, || store.renew_operation(&lease, duration)) => Err(lost),
        };
        let outcome = match outcome {
            Ok(()) => {
                // A refresh comes every minute and says nothing by itself.
                if let Some(target) = &operation.target {
                    let (kind, key) = (operation.kind.as_str(), target.connector_key.as_str());
                    let version = &target.identity.version;
                    tracing::info!(
                        operation.id = %id,
                        operation.kind = kind,
                        connector.key = key,
                        "operation {id} completed: {kind} of {key} {version}"
                    );
                }
                Ok(())
            }
            Err(error) => {
                let noted =
                    tokio::time::timeout(NOTE_BUDGET, self.conclude(&lease, &operation, &error)).await;
                match noted {
                    Ok(Ok(())) => {}
                    // The row still says running, so recovery takes it up again.
                    Ok(Err(note)) => tracing::warn!(%id, %note, "the end of an attempt was not noted"),
                    Err(_) => tracing::warn!(%id, "the end of an attempt was not noted in time"),
                }
                Err(error)
            }
        };
        match &outcome {
            Ok(()) => claim.ended(),
            Err(_) => claim.release().await,
        }
        outcome
    }

    async fn attempt(&self, lease: &OperationLease) -> Result<(), Error> {
        let (operation, left_at) = self.start(lease).await?;
        if operation.interrupted >= INTERRUPTIONS {
            return Err(Error::new(
                ErrorCode::OperationAbandoned,
                format!(
                    "{} attempts in a row were cut off by an end of the daemon; what they do may be the cause",
                    operation.interrupted
                ),
            ));
        }
        match operation.kind {
            OperationKind::RefreshCatalog => self.execute_refresh(lease).await,
            OperationKind::Install => self.execute_install(lease, &operation, left_at).await,
            OperationKind::Uninstall => self.execute_uninstall(lease, &operation).await,
            OperationKind::StartAuthorization => Err(Error::new(
                ErrorCode::AuthorizationFailed,
                "an authorization cannot be taken up again without its command; start it once more",
            )
            .with_retryable(false)),
            OperationKind::DisconnectAuthorization => self.execute_disconnect(lease, &operation).await,
            OperationKind::ReconcileRuntime => self.execute_reconcile(lease, &operation).await,
        }
    }

    /// Begins an attempt, at the first stage of its kind. An operation that acts on
    /// routes and comes from another boot is adopted into this one. Answers with the
    /// stage that the attempt before it had come to as well.
    pub(super) async fn start(&self, lease: &OperationLease) -> Result<(Operation, Stage), Error> {
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut operation = held(tx, lease).await?;
            let revision = tx.advance_revision();
            let left_at = operation.stage;
            operation.start(now);
            operation.enter(operation.kind.first_stage(), now);
            self.adopt(&mut operation, revision);
            tx.save_operation(&operation).await?;
            announce(tx, &operation, revision).await?;
            (operation, left_at)
        })
    }

    /// Moves the operation to a stage.
    pub(super) async fn enter(&self, lease: &OperationLease, stage: Stage) -> Result<(), Error> {
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut operation = held(tx, lease).await?;
            let revision = tx.advance_revision();
            operation.enter(stage, now);
            tx.save_operation(&operation).await?;
            announce(tx, &operation, revision).await?;
        })
    }

    /// Ends the operation, or leaves it running with the reason for the next
    /// attempt. A refresh is never left running: the next one reads everything again.
    async fn conclude(
        &self,
        lease: &OperationLease,
        operation: &Operation,
        error: &Error,
    ) -> Result<(), Error> {
        if error.find(ErrorCode::LeaseLost).is_some() {
            return Ok(());
        }
        let failure = OperationFailure::of(error);
        let repeatable =
            !matches!(operation.kind, OperationKind::RefreshCatalog | OperationKind::StartAuthorization);
        if error.retryable && repeatable {
            return self.suspend(lease, failure).await;
        }
        let code = match operation.kind {
            _ if error.code == ErrorCode::OperationAbandoned => ErrorCode::OperationAbandoned,
            OperationKind::RefreshCatalog => error.code,
            OperationKind::StartAuthorization | OperationKind::DisconnectAuthorization => {
                ErrorCode::AuthorizationFailed
            }
            OperationKind::Install | OperationKind::Uninstall | OperationKind::ReconcileRuntime => {
                ErrorCode::InstallFailed
            }
        };
        match self.fail(operation, Some(lease), code, &failure).await {
            // What must be cleared away before the end could not be: next time.
            Err(cause) if cause.retryable && repeatable => {
                self.suspend(lease, OperationFailure::of(&cause)).await
            }
            outcome => outcome,
        }
    }

    async fn suspend(&self, lease: &OperationLease, failure: OperationFailure) -> Result<(), Error> {
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut operation = held(tx, lease).await?;
            let revision = tx.advance_revision();
            operation.suspend(failure.clone(), now);
            tx.save_operation(&operation).await?;
            announce(tx, &operation, revision).await?;
        })
    }
}

/// The operation, if it is still this lease's to write. A worker that was
/// overtaken must not write, even though it reads what the other one wrote.
pub(super) async fn held(tx: &mut dyn Tx, lease: &OperationLease) -> Result<Operation, Error> {
    let operation = tx.operation(&lease.operation_id).await?;
    let ours = operation.filter(|operation| {
        operation.is_active()
            && operation.lease_token == lease.token
            && operation.lease.as_ref().is_some_and(|held| held.owner == lease.owner)
    });
    ours.ok_or_else(|| {
        Error::new(
            ErrorCode::LeaseLost,
            format!("operation {} has ended or is another worker's now", lease.operation_id),
        )
    })
}
