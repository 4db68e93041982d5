//! What drives a background task: its timer, its wake-up, its supervision.
//!
//! A task takes no input and keeps nothing that matters: a wake-up is a hint, the
//! timer is the guarantee, and a retry is the next activation. A task that panics
//! is reported and driven on.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt;
use tokio::sync::Notify;
use tracing::Instrument;

use super::{
    lifecycle::Lifecycle,
    status::{StatusCell, TaskFailure},
};
use crate::{domain::error::Error, ports::Clock, telemetry};

/// Wakes a task; wake-ups that come while it works are one wake-up afterwards.
#[derive(Clone, Debug, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Asks the task to look again.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    async fn woken(&self) {
        self.0.notified().await;
    }
}

/// One background task.
#[async_trait]
pub trait Task: Send + Sync + 'static {
    /// Its name in the log and the status.
    fn name(&self) -> &'static str;

    /// Does what there is to do now, and tells how much it was.
    async fn activate(&self) -> Result<u64, Error>;

    /// When the timer activates it again after `failures` failures in a row; none
    /// when only a wake-up does.
    fn pause(&self, failures: u32) -> Option<Duration>;
}

/// `first`, doubled with each failure after the first, at most `limit`.
#[must_use]
pub fn doubling(first: Duration, failures: u32, limit: Duration) -> Duration {
    first.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX)).min(limit)
}

/// Drives `task` until the soft stop: at once, then whenever it is woken or its
/// pause is over.
pub fn drive(task: Arc<dyn Task>, wake: Wake, lifecycle: &Lifecycle, clock: Arc<dyn Clock>) -> StatusCell {
    let status = StatusCell::new(task.name());
    let soft = lifecycle.soft().clone();
    let cell = status.clone();
    lifecycle.spawn(async move {
        while !soft.is_cancelled() {
            let work = activate(task.as_ref(), &cell, clock.as_ref());
            if soft.run_until_cancelled(work).await.is_none() {
                return;
            }
            let pause = task.pause(cell.read().failures);
            let timer = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = soft.cancelled() => return,
                () = wake.woken() => {}
                () = timer => {}
            }
        }
    });
    status
}

async fn activate(task: &dyn Task, status: &StatusCell, clock: &dyn Clock) {
    status.update(|status| {
        status.activations += 1;
        status.running_since = Some(clock.now());
    });
    let span = telemetry::task_span(task.name());
    let outcome = AssertUnwindSafe(task.activate()).catch_unwind().instrument(span).await;
    let now = clock.now();
    let failure = match &outcome {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => {
            tracing::warn!(
                task.name = task.name(),
                code = %error.code,
                cause = error.cause.as_ref().map(tracing::field::display),
                "task {} failed: {error}", task.name()
            );
            Some(TaskFailure { code: Some(error.code), message: error.message.clone(), at: now })
        }
        Err(panic) => {
            let message = panic_message(panic.as_ref());
            tracing::error!(task.name = task.name(), "task {} panicked and goes on: {message}", task.name());
            Some(TaskFailure { code: None, message: format!("it panicked: {message}"), at: now })
        }
    };
    status.update(|status| {
        status.running_since = None;
        status.last_ended_at = Some(now);
        match (outcome, failure) {
            (Ok(Ok(done)), _) => {
                status.last_done = done;
                status.failures = 0;
            }
            (ended, failure) => {
                status.failures = status.failures.saturating_add(1);
                status.panics = status.panics.saturating_add(u32::from(ended.is_err()));
                status.last_failure = failure;
            }
        }
    });
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
