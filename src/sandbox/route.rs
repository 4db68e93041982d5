//! One generation of a connection's connector, with its door.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::{
    counters::Counters,
    egress::Gate,
    flight::Flight,
    pace::Pace,
    program::Program,
    routes::{Route, RouteKey},
};
use crate::domain::{
    capability::PublishedCapability,
    digest::Sha256Digest,
    error::Error,
    generation::Generation,
    id::{AccountId, ConnectionId},
    manifest::EffectiveLimits,
};

/// A route that runs a component.
pub(crate) struct ConnectorRoute {
    /// What it answers for.
    pub(crate) key: RouteKey,
    /// Whose connection it is; none for one of the device.
    pub(crate) account: Option<AccountId>,
    /// Its generation.
    pub(crate) generation: Generation,
    /// The release.
    pub(crate) release_digest: Sha256Digest,
    /// Its version.
    pub(crate) version: String,
    /// What it runs.
    pub(crate) program: Program,
    /// What a call may take.
    pub(crate) limits: EffectiveLimits,
    /// What a call may reach.
    pub(crate) gate: Arc<Gate>,
    /// Who is inside.
    pub(crate) flight: Arc<Flight>,
    /// How long the polls of its calls are.
    pub(crate) pace: Pace,
    /// Calls that may still begin.
    pub(crate) calls: Arc<Semaphore>,
    /// Calls that wait to begin.
    pub(crate) waiting: AtomicUsize,
    /// Calls that run.
    pub(crate) running: Arc<AtomicUsize>,
    /// Where fences are counted.
    pub(crate) counters: Arc<Counters>,
}

impl ConnectorRoute {
    /// Whether `account` may call it: the device's connection is everybody's.
    pub(crate) fn serves(&self, account: Option<&AccountId>) -> bool {
        self.key.connection_id == ConnectionId::device(&self.key.connector_key)
            || self.account.as_ref() == account
    }

    /// Its capabilities, as callers see them.
    pub(crate) fn capabilities(&self) -> impl Iterator<Item = PublishedCapability> {
        self.program.capabilities.values().map(|callable| PublishedCapability {
            id: crate::domain::id::CapabilityId {
                connector: self.key.connector_key.clone(),
                name: callable.capability.name.clone(),
            },
            capability: callable.capability.clone(),
            version: self.version.clone(),
            release_digest: self.release_digest,
            generation: self.generation.clone(),
        })
    }

    /// Counts a running call until the answer is dropped.
    pub(crate) fn count_call(&self) -> Running {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(&self.running))
    }
}

/// One running call.
pub(crate) struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Route for ConnectorRoute {
    fn key(&self) -> &RouteKey {
        &self.key
    }

    fn generation(&self) -> &Generation {
        &self.generation
    }

    fn release_digest(&self) -> &Sha256Digest {
        &self.release_digest
    }

    fn fence(&self) {
        if self.flight.fence() {
            self.counters.fences.count();
        }
    }

    async fn close(&self) -> Result<(), Error> {
        self.flight.idle().await;
        Ok(())
    }
}
