//! Reads the catalog from time to time, by an ordinary operation.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    daemon::{
        bootstrap::Bootstrap,
        driver::{Task, doubling},
    },
    domain::{
        error::{Error, ErrorCode},
        id::{ClientRequestId, OperationId},
        operation::{OperationScope, OperationState},
    },
    market::{Application, Mutation},
    ports::{IdSource, Store},
};

const DEADLINE: Duration = Duration::from_secs(45);
const POLL: Duration = Duration::from_millis(25);
const LONGEST_DELAY: Duration = Duration::from_secs(480);
/// How often a refresh is asked for again when the revision moved meanwhile.
const TRIES: u32 = 5;

/// Refreshes the catalog once a bootstrap has committed, then periodically.
pub struct CatalogRefresh {
    application: Arc<Application>,
    store: Arc<dyn Store>,
    bootstrap: Arc<Bootstrap>,
    ids: Arc<dyn IdSource>,
    interval: Duration,
}

impl CatalogRefresh {
    /// Refreshes every `interval`.
    pub fn new(
        application: Arc<Application>,
        store: Arc<dyn Store>,
        bootstrap: Arc<Bootstrap>,
        ids: Arc<dyn IdSource>,
        interval: Duration,
    ) -> Self {
        Self { application, store, bootstrap, ids, interval }
    }

    /// Asks for a refresh; none when one is under way already.
    async fn begin(&self) -> Result<Option<OperationId>, Error> {
        for _ in 0..TRIES {
            // Read by a transaction that is dropped: a snapshot would load everything.
            let expected_revision = self.store.begin().await?.revision();
            let mutation = Mutation {
                client_request_id: ClientRequestId::parse(format!("daemon-refresh-{}", self.ids.fresh()?))?,
                expected_revision,
                // The machine's own, not an account's.
                scope: OperationScope::default(),
            };
            match self.application.refresh_catalog(mutation).await {
                Ok(accepted) => return Ok(Some(accepted.operation.operation_id)),
                Err(error) if error.code == ErrorCode::OperationInProgress => return Ok(None),
                Err(error) if error.code == ErrorCode::RevisionConflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::unavailable("the market changed too often to begin a catalog refresh"))
    }

    async fn refresh(&self) -> Result<u64, Error> {
        let Some(id) = self.begin().await? else { return Ok(0) };
        loop {
            match self.store.operation(&id).await?.map(|operation| operation.state) {
                None | Some(OperationState::Completed) => return Ok(1),
                Some(OperationState::Failed { failure, .. }) => {
                    return Err(Error::new(failure.code, failure.message));
                }
                Some(OperationState::Accepted | OperationState::Running { .. }) => {}
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

#[async_trait]
impl Task for CatalogRefresh {
    fn name(&self) -> &'static str {
        "catalog_refresh"
    }

    async fn activate(&self) -> Result<u64, Error> {
        if self.bootstrap.active().is_none() {
            return Ok(0);
        }
        tokio::time::timeout(DEADLINE, self.refresh())
            .await
            .unwrap_or_else(|_| Err(Error::unavailable("the catalog refresh did not end in time")))
    }

    fn pause(&self, failures: u32) -> Option<Duration> {
        Some(doubling(self.interval, failures, LONGEST_DELAY.max(self.interval)))
    }
}
