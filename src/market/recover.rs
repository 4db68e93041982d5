//! Taking up what an earlier boot, or another worker, left behind (spec C.12).

use super::{accept::announce, application::Application, tx::transaction};
use crate::domain::{
    error::{Error, ErrorCode},
    id::OperationId,
    operation::{Operation, OperationFailure},
    revision::Revision,
    timestamp::Timestamp,
};

impl Application {
    /// Schedules every operation that has not ended.
    ///
    /// One that another worker holds is scheduled once its lease is over. It is
    /// not adopted before: its worker may be alive in another daemon.
    ///
    /// # Errors
    /// [`ErrorCode::Unavailable`] when an operation could not be scheduled.
    pub async fn recover(&self) -> Result<(), Error> {
        for operation in self.recoverable_operations().await? {
            let id = operation.operation_id.clone();
            if !operation.kind.effect_is_durable() {
                if self.is_being_begun(&operation) {
                    continue;
                }
                if let Some(until) = self.held_elsewhere_until(&operation) {
                    self.schedule_at(id, until);
                    continue;
                }
                let failure = OperationFailure {
                    code: ErrorCode::AuthorizationFailed,
                    message: "the authorization was interrupted; start it once more".to_owned(),
                };
                self.fail(&operation, None, ErrorCode::AuthorizationFailed, &failure).await?;
                continue;
            }
            if let Some(until) = self.held_elsewhere_until(&operation) {
                self.schedule_at(id, until);
                continue;
            }
            self.adopt_stored(&operation).await?;
            self.config.scheduler.schedule(&id).map_err(|cause| {
                Error::unavailable(format!("operation {id} could not be scheduled again")).with_cause(cause)
            })?;
        }
        Ok(())
    }

    /// All operations that have not ended, by id.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn recoverable_operations(&self) -> Result<Vec<Operation>, Error> {
        self.config.store.recoverable_operations().await
    }

    /// Whether the command that an operation stands for runs here now.
    fn is_being_begun(&self, operation: &Operation) -> bool {
        operation.connector_key.as_ref().is_some_and(|key| {
            self.authorizations.is_live(&operation.scope, key, &operation.client_request_id)
        })
    }

    fn held_elsewhere_until(&self, operation: &Operation) -> Option<Timestamp> {
        let lease = operation.lease.as_ref()?;
        (lease.owner != self.config.worker_id && lease.is_live(self.now())).then_some(lease.expires_at)
    }

    /// A timer that ends with the application. The daemon's scanner finds the
    /// operation too; this only saves its interval.
    fn schedule_at(&self, id: OperationId, moment: Timestamp) {
        let (delay, scheduler) = (moment.since(self.now()), self.config.scheduler.clone());
        let stopped = self.stopped.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = tokio::time::sleep(delay) => {
                    if let Err(error) = scheduler.schedule(&id) {
                        tracing::debug!(%id, %error, "an operation was not scheduled again");
                    }
                }
            }
        });
    }

    async fn adopt_stored(&self, seen: &Operation) -> Result<(), Error> {
        if !self.is_foreign(seen) {
            return Ok(());
        }
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let stored = tx.operation(&seen.operation_id).await?;
            // Claimed meanwhile: whoever claimed it has adopted it.
            let same =
                |operation: &Operation| operation.is_active() && operation.lease_token == seen.lease_token;
            if let Some(mut operation) = stored.filter(same) {
                let revision = tx.advance_revision();
                self.adopt(&mut operation, revision);
                operation.updated_at = now;
                tx.save_operation(&operation).await?;
                announce(tx, &operation, revision).await?;
            }
        })
    }

    /// Gives an operation of another boot a generation of this one.
    pub(super) fn adopt(&self, operation: &mut Operation, revision: Revision) {
        if self.is_foreign(operation) {
            operation.generation = Some(self.generation_at(revision));
        }
    }

    fn is_foreign(&self, operation: &Operation) -> bool {
        operation.kind.touches_implementation_host()
            && operation
                .generation
                .as_ref()
                .is_none_or(|generation| generation.boot_epoch != self.config.boot_epoch)
    }
}
