//! Who runs an operation when the market says that it can be run.
//!
//! A hint, held in memory: what is lost here is found again by the recovery task.

use std::{
    collections::HashSet,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use futures::{FutureExt, future::BoxFuture};
use tracing::Instrument;

use super::{driver::Wake, lifecycle::Lifecycle};
use crate::{
    domain::{error::Error, id::OperationId},
    ports::OperationScheduler,
    telemetry,
};

/// Executes one operation.
pub type Execute = Box<dyn Fn(OperationId) -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// Runs operations on the daemon's own tasks, each at most once at a time,
/// whoever asked and however long they wait.
pub struct LocalScheduler {
    lifecycle: Lifecycle,
    execute: OnceLock<Execute>,
    running: Arc<Mutex<HashSet<OperationId>>>,
    changed: Wake,
}

impl LocalScheduler {
    /// A scheduler that executes nothing before [`bind`](Self::bind); `changed`
    /// is woken whenever an operation was accepted or has ended.
    #[must_use]
    pub fn new(lifecycle: Lifecycle, changed: Wake) -> Self {
        Self { lifecycle, execute: OnceLock::new(), running: Arc::default(), changed }
    }

    /// Says how an operation is executed. The first binding stands.
    pub fn bind(&self, execute: Execute) {
        let _ = self.execute.set(execute);
    }

    /// Whether the operation runs here now.
    #[must_use]
    pub fn is_running(&self, id: &OperationId) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }
}

/// Makes room for the operation's next run, however this one ended.
struct Running {
    id: OperationId,
    all: Arc<Mutex<HashSet<OperationId>>>,
    changed: Wake,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        self.changed.wake();
    }
}

impl OperationScheduler for LocalScheduler {
    fn schedule(&self, operation_id: &OperationId) -> Result<(), Error> {
        if self.lifecycle.soft().is_cancelled() {
            return Err(Error::unavailable(
                "the daemon is stopping; the operation runs after its next start",
            ));
        }
        let Some(execute) = self.execute.get() else {
            return Err(Error::unavailable("the daemon is still starting"));
        };
        self.changed.wake();
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.insert(operation_id.clone()) {
            return Ok(());
        }
        drop(all);
        let running = Running {
            id: operation_id.clone(),
            all: Arc::clone(&self.running),
            changed: self.changed.clone(),
        };
        let work = execute(operation_id.clone());
        let span = telemetry::operation_span(operation_id);
        self.lifecycle.spawn(
            async move {
                match AssertUnwindSafe(work).catch_unwind().await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(
                        code = %error.code,
                        retryable = error.retryable,
                        cause = error.cause.as_ref().map(tracing::field::display),
                        "an attempt at operation {} failed: {error}",
                        running.id
                    ),
                    // Its row still says running, so it is begun again.
                    Err(_) => tracing::error!("an attempt at operation {} panicked", running.id),
                }
            }
            .instrument(span),
        );
        Ok(())
    }
}
