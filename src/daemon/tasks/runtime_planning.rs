//! After a bootstrap: looks whether what is installed is still there, and plans
//! its start. Each connector by itself, so that a slow one holds up no other.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tracing::Instrument;

use crate::{
    daemon::{
        bootstrap::{Active, Bootstrap},
        driver::{Task, doubling},
        wakes::Wakes,
    },
    domain::{error::Error, id::ConnectorKey},
    market::Application,
    telemetry,
};

const PARALLEL: usize = 4;
const DEADLINE: Duration = Duration::from_secs(30);
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LAST_DELAY: Duration = Duration::from_secs(64);

/// Plans the starts that the last bootstrap left to be planned.
pub struct RuntimePlanning {
    application: Arc<Application>,
    bootstrap: Arc<Bootstrap>,
    wakes: Wakes,
}

impl RuntimePlanning {
    /// Plans what `bootstrap` has left.
    pub fn new(application: Arc<Application>, bootstrap: Arc<Bootstrap>, wakes: Wakes) -> Self {
        Self { application, bootstrap, wakes }
    }

    async fn plan(&self, active: &Active, key: ConnectorKey) -> Result<(), Error> {
        let span = telemetry::connector_span("plan", &active.scope, &key);
        let work = tokio::time::timeout(DEADLINE, self.application.prepare_runtime(&active.scope, &key));
        match work.instrument(span).await {
            Ok(Ok(planned)) => {
                self.bootstrap.planned(active, &key);
                if planned {
                    self.wakes.convergence.wake();
                }
                self.wakes.outbox.wake();
                Ok(())
            }
            Ok(Err(error)) => {
                tracing::warn!(connector.key = %key, code = %error.code, "connector {key} was not planned: {error}");
                Err(error)
            }
            Err(_) => Err(Error::unavailable(format!("looking at connector {key} did not end in time"))),
        }
    }
}

#[async_trait]
impl Task for RuntimePlanning {
    fn name(&self) -> &'static str {
        "runtime_planning"
    }

    async fn activate(&self) -> Result<u64, Error> {
        let Some(active) = self.bootstrap.active() else { return Ok(0) };
        let work = async {
            let mut plans = stream::iter(self.bootstrap.planned_later())
                .map(|key| self.plan(&active, key))
                .buffer_unordered(PARALLEL);
            let (mut planned, mut failure) = (0, None);
            while let Some(outcome) = plans.next().await {
                match outcome {
                    Ok(()) => planned += 1,
                    Err(error) => failure = Some(error),
                }
            }
            failure.map_or(Ok(planned), Err)
        };
        // A fence or another bootstrap makes all of it moot.
        active.until.run_until_cancelled(work).await.unwrap_or(Ok(0))
    }

    fn pause(&self, failures: u32) -> Option<Duration> {
        Some(doubling(FIRST_DELAY, failures, LAST_DELAY))
    }
}
