//! Tries a bootstrap again that was asked for and has failed.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    daemon::{
        bootstrap::Bootstrap,
        driver::{Task, doubling},
    },
    domain::error::Error,
};

const FIRST_DELAY: Duration = Duration::from_secs(1);
const LAST_DELAY: Duration = Duration::from_secs(64);

/// Repeats a failed bootstrap for the scope it was for. A fence is not repeated
/// away: after it the daemon stays closed until someone asks for a bootstrap.
pub struct BootstrapRetry {
    bootstrap: Arc<Bootstrap>,
}

impl BootstrapRetry {
    /// Watches over `bootstrap`.
    pub fn new(bootstrap: Arc<Bootstrap>) -> Self {
        Self { bootstrap }
    }
}

#[async_trait]
impl Task for BootstrapRetry {
    fn name(&self) -> &'static str {
        "bootstrap_retry"
    }

    async fn activate(&self) -> Result<u64, Error> {
        match self.bootstrap.owed() {
            None => Ok(0),
            Some(scope) => self.bootstrap.bootstrap(&scope).await.map(|()| 1),
        }
    }

    fn pause(&self, failures: u32) -> Option<Duration> {
        Some(doubling(FIRST_DELAY, failures, LAST_DELAY))
    }
}
