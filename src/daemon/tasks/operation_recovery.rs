//! Takes up operations that are not done and that nobody works on.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    daemon::{bootstrap::Bootstrap, driver::Task, scheduler::LocalScheduler},
    domain::error::Error,
    ports::{Clock, OperationScheduler, Store},
};

const PERIOD: Duration = Duration::from_millis(500);
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LAST_DELAY: Duration = Duration::from_secs(60);

/// How long an operation that was begun `attempt` times is left alone after it
/// last changed (spec D.6).
#[must_use]
pub fn recovery_delay(attempt: u32) -> Duration {
    match attempt {
        0 | 1 => Duration::ZERO,
        _ => crate::daemon::driver::doubling(FIRST_DELAY, attempt - 1, LAST_DELAY),
    }
}

/// Finds operations whose hint was lost or whose attempt has failed.
pub struct OperationRecovery {
    store: Arc<dyn Store>,
    scheduler: Arc<LocalScheduler>,
    bootstrap: Arc<Bootstrap>,
    clock: Arc<dyn Clock>,
}

impl OperationRecovery {
    /// Looks in `store`, tells `scheduler`.
    pub fn new(
        store: Arc<dyn Store>,
        scheduler: Arc<LocalScheduler>,
        bootstrap: Arc<Bootstrap>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { store, scheduler, bootstrap, clock }
    }
}

#[async_trait]
impl Task for OperationRecovery {
    fn name(&self) -> &'static str {
        "operation_recovery"
    }

    /// Not before a bootstrap has committed: only it hands the operations of an
    /// earlier boot to this one.
    async fn activate(&self) -> Result<u64, Error> {
        if self.bootstrap.active().is_none() {
            return Ok(0);
        }
        let mut scheduled = 0;
        let now = self.clock.now();
        for operation in self.store.recoverable_operations().await? {
            let idle = now.since(operation.updated_at);
            let held = operation.lease.as_ref().is_some_and(|lease| lease.is_live(now));
            if operation.kind.effect_is_durable()
                && !held
                && idle >= recovery_delay(operation.attempt)
                && !self.scheduler.is_running(&operation.operation_id)
            {
                self.scheduler.schedule(&operation.operation_id)?;
                scheduled += 1;
            }
        }
        Ok(scheduled)
    }

    fn pause(&self, _failures: u32) -> Option<Duration> {
        Some(PERIOD)
    }
}
