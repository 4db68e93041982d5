//! Keeping a lease while work is done, and giving it back however the work ends.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval_at, timeout};
use tokio_util::task::TaskTracker;

use crate::{
    domain::error::{Error, ErrorCode},
    ports::{ConvergenceLease, OperationLease, Store},
};

/// Renews every third of `duration` and returns once a renewal fails. The caller
/// races it against the work, so that work without a lease stops.
pub(super) async fn keep<F>(duration: Duration, renew: impl Fn() -> F) -> Error
where
    F: Future<Output = Result<(), Error>>,
{
    let period = (duration / 3).max(Duration::from_millis(10));
    let mut beat = interval_at(tokio::time::Instant::now() + period, period);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        match timeout(period, renew()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                return Error::new(
                    ErrorCode::LeaseLost,
                    "the lease could not be renewed; the work was stopped",
                )
                .with_cause(error);
            }
            Err(_) => {
                return Error::new(
                    ErrorCode::LeaseLost,
                    "the lease was not renewed in time; the work was stopped",
                );
            }
        }
    }
}

/// What is held.
#[derive(Clone, Debug)]
pub(super) enum Claim {
    /// An operation.
    Operation(OperationLease),
    /// A convergence.
    Convergence(ConvergenceLease),
}

/// A claim that is given back when it is dropped, so that work whose caller went
/// away does not keep others out until the lease runs out.
pub(super) struct Held {
    store: Arc<dyn Store>,
    tasks: TaskTracker,
    claim: Option<Claim>,
}

impl Held {
    /// Holds `claim`.
    pub(super) fn new(store: Arc<dyn Store>, tasks: TaskTracker, claim: Claim) -> Self {
        Self { store, tasks, claim: Some(claim) }
    }

    /// Forgets it: what was stored under it has ended it.
    pub(super) fn ended(mut self) {
        self.claim = None;
    }

    /// Gives it back now.
    pub(super) async fn release(mut self) {
        if let Some(claim) = self.claim.take() {
            give_back(&*self.store, &claim).await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (Some(claim), Ok(runtime)) = (self.claim.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let store = Arc::clone(&self.store);
        self.tasks.spawn_on(async move { give_back(&*store, &claim).await }, &runtime);
    }
}

/// A lease that cannot be given back runs out by itself.
async fn give_back(store: &dyn Store, claim: &Claim) {
    let outcome = match claim {
        Claim::Operation(lease) => store.release_operation(lease).await,
        Claim::Convergence(lease) => store.release_convergence(lease).await,
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a lease was not given back; it runs out");
    }
}
