//! Whose turn it is: one thing at a time for a connector, a few overall.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use super::content::locked;
use crate::domain::{error::Error, id::ConnectorKey};

/// The lanes of all connectors.
pub(super) struct Lanes {
    lanes: Mutex<HashMap<ConnectorKey, Arc<tokio::sync::Mutex<()>>>>,
    overall: Arc<Semaphore>,
}

/// A turn in a lane; it ends when this is dropped.
pub(super) struct Turn {
    _lane: OwnedMutexGuard<()>,
    _overall: Option<OwnedSemaphorePermit>,
}

impl Lanes {
    pub(super) fn new(overall: usize) -> Self {
        Self { lanes: Mutex::default(), overall: Arc::new(Semaphore::new(overall)) }
    }

    /// Waits for the connector's lane, then for a place among all.
    pub(super) async fn enter(&self, key: &ConnectorKey) -> Result<Turn, Error> {
        let lane = self.lane(key).lock_owned().await;
        let overall = Arc::clone(&self.overall)
            .acquire_owned()
            .await
            .map_err(|cause| Error::unavailable("the installer is closed").with_cause(cause))?;
        Ok(Turn { _lane: lane, _overall: Some(overall) })
    }

    /// The connector's lane, if nobody is in it.
    pub(super) fn try_enter(&self, key: &ConnectorKey) -> Option<Turn> {
        let lane = self.lane(key).try_lock_owned().ok()?;
        Some(Turn { _lane: lane, _overall: None })
    }

    fn lane(&self, key: &ConnectorKey) -> Arc<tokio::sync::Mutex<()>> {
        let mut lanes = locked(&self.lanes);
        // A lane that only this table knows is free and can be made anew.
        lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        Arc::clone(lanes.entry(key.clone()).or_default())
    }
}
