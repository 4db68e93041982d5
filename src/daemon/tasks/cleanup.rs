//! Forgets what has ended long ago, so that the database does not grow for ever.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    daemon::driver::Task,
    domain::{error::Error, timestamp::Timestamp},
    ports::{CleanupRequest, Clock, Store},
};

const PERIOD: Duration = Duration::from_secs(60 * 60);

/// How long what has ended is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Ended operations.
    pub operations: Duration,
    /// Published events.
    pub events: Duration,
    /// So many rows of each in one transaction; 1 to 500.
    pub batch: u32,
}

impl Default for CleanupPolicy {
    fn default() -> Self {
        Self {
            operations: Duration::from_secs(24 * 60 * 60),
            events: Duration::from_secs(60 * 60),
            batch: 500,
        }
    }
}

/// Deletes in small batches until nothing old is left.
pub struct Cleanup {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    policy: CleanupPolicy,
}

impl Cleanup {
    /// Keeps `store` small.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, policy: CleanupPolicy) -> Self {
        Self { store, clock, policy }
    }
}

#[async_trait]
impl Task for Cleanup {
    fn name(&self) -> &'static str {
        "cleanup"
    }

    async fn activate(&self) -> Result<u64, Error> {
        let now = self.clock.now();
        let request = CleanupRequest {
            operations_ended_by: before(now, self.policy.operations),
            events_published_by: before(now, self.policy.events),
            batch: self.policy.batch,
        };
        let mut forgotten = 0;
        loop {
            let result = self.store.clean_up(&request).await?;
            forgotten += result.operations + result.events;
            if result.operations.max(result.events) < u64::from(request.batch) {
                return Ok(forgotten);
            }
        }
    }

    fn pause(&self, _failures: u32) -> Option<Duration> {
        Some(PERIOD)
    }
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
}
