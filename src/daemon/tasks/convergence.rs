//! Brings routes to what they should be.

use std::{
    collections::HashSet,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::FutureExt;
use tokio::sync::Semaphore;
use tracing::Instrument;

use crate::{
    daemon::{
        bootstrap::{Active, Bootstrap},
        driver::Task,
        lifecycle::Lifecycle,
        wakes::Wakes,
    },
    domain::{
        error::{Error, ErrorCode},
        id::ConnectorKey,
    },
    market::Application,
    telemetry,
};

const PERIOD: Duration = Duration::from_millis(500);
const BATCH: usize = 32;
/// The most that a store lists at once.
const LIST_LIMIT: usize = 100;
const PARALLEL: usize = 4;
const DEADLINE: Duration = Duration::from_secs(120);

/// Converges what is due, a few connectors at a time. An activation does not wait
/// for what it began, so a slow connector takes one place and no more.
pub struct Convergence {
    application: Arc<Application>,
    bootstrap: Arc<Bootstrap>,
    lifecycle: Lifecycle,
    wakes: Wakes,
    places: Arc<Semaphore>,
    under_way: Arc<Mutex<HashSet<ConnectorKey>>>,
}

impl Convergence {
    /// Converges what `application` says is due.
    pub fn new(
        application: Arc<Application>,
        bootstrap: Arc<Bootstrap>,
        lifecycle: Lifecycle,
        wakes: Wakes,
    ) -> Self {
        let places = Arc::new(Semaphore::new(PARALLEL));
        Self { application, bootstrap, lifecycle, wakes, places, under_way: Arc::default() }
    }

    fn begin(&self, active: &Active, key: ConnectorKey) -> Begun {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return Begun::NoPlace };
        let fresh = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        if !fresh {
            return Begun::UnderWay;
        }
        let guard =
            UnderWay { key: key.clone(), all: Arc::clone(&self.under_way), wakes: self.wakes.clone() };
        let application = Arc::clone(&self.application);
        let active = active.clone();
        let span = telemetry::connector_span("converge", &active.scope, &key);
        self.lifecycle.spawn(
            async move {
                let work = tokio::time::timeout(DEADLINE, application.converge(&active.scope, &key));
                let work = AssertUnwindSafe(active.until.run_until_cancelled(work)).catch_unwind().await;
                let failed = !matches!(work, Ok(None | Some(Ok(Ok(_)))));
                match work {
                    Ok(None | Some(Ok(Ok(_)))) => {}
                    Ok(Some(Ok(Err(error)))) if error.code == ErrorCode::LeaseLost => {
                        tracing::debug!("connector {key}: {error}");
                    }
                    // The store holds the failure and when to try again.
                    Ok(Some(Ok(Err(error)))) => {
                        tracing::warn!(code = %error.code, "connector {key} did not converge: {error}");
                    }
                    Ok(Some(Err(_))) => tracing::warn!("connector {key} did not converge in time"),
                    Err(_) => tracing::error!("converging connector {key} panicked; it is tried again"),
                }
                drop(place);
                if failed {
                    // A store that could not note the failure says that it is due still.
                    active.until.run_until_cancelled(tokio::time::sleep(PERIOD)).await;
                }
                drop(guard);
            }
            .instrument(span),
        );
        Begun::Now
    }
}

enum Begun {
    Now,
    UnderWay,
    NoPlace,
}

/// Makes room, and has the task look again.
struct UnderWay {
    key: ConnectorKey,
    all: Arc<Mutex<HashSet<ConnectorKey>>>,
    wakes: Wakes,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        self.wakes.convergence.wake();
        self.wakes.outbox.wake();
    }
}

#[async_trait]
impl Task for Convergence {
    fn name(&self) -> &'static str {
        "convergence"
    }

    /// Leaves alone what is still being planned: it would be converged to an
    /// intent that the plan is about to replace.
    async fn activate(&self) -> Result<u64, Error> {
        let Some(active) = self.bootstrap.active() else { return Ok(0) };
        let planned_later = self.bootstrap.planned_later();
        let limit = BATCH.saturating_add(planned_later.len()).min(LIST_LIMIT);
        let due = self.application.due_convergences(&active.scope, limit as u32).await?;
        let mut begun = 0;
        for key in due.into_iter().filter(|key| !planned_later.contains(key)) {
            match self.begin(&active, key) {
                Begun::Now => begun += 1,
                Begun::UnderWay => {}
                Begun::NoPlace => break,
            }
        }
        Ok(begun)
    }

    fn pause(&self, _failures: u32) -> Option<Duration> {
        Some(PERIOD)
    }
}
