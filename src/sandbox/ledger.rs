//! The ledger, from where guests run: database work stays on the daemon's own
//! runtime, so that guests that compute cannot slow its connections down.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    domain::{digest::Sha256Digest, error::Error},
    ports::{CompiledComponent, SandboxLedger, StateChanges, StateScope},
};

/// A ledger whose every request runs on `home`.
pub(crate) struct HomeLedger {
    /// The ledger.
    pub(crate) ledger: Arc<dyn SandboxLedger>,
    /// The daemon's runtime.
    pub(crate) home: Handle,
}

impl HomeLedger {
    async fn at_home<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        AbortOnDropHandle::new(self.home.spawn(work))
            .await
            .map_err(|cause| Error::unavailable("the sandbox's database is gone").with_cause(cause))?
    }
}

#[async_trait]
impl SandboxLedger for HomeLedger {
    async fn state_value(&self, scope: &StateScope, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let (ledger, scope, key) = (Arc::clone(&self.ledger), scope.clone(), key.to_owned());
        self.at_home(async move { ledger.state_value(&scope, &key).await }).await
    }

    async fn state_keys(&self, scope: &StateScope, prefix: &str) -> Result<Vec<String>, Error> {
        let (ledger, scope, prefix) = (Arc::clone(&self.ledger), scope.clone(), prefix.to_owned());
        self.at_home(async move { ledger.state_keys(&scope, &prefix).await }).await
    }

    async fn apply_state(
        &self,
        scope: &StateScope,
        changes: &StateChanges,
        quota_bytes: u64,
    ) -> Result<(), Error> {
        let (ledger, scope, changes) = (Arc::clone(&self.ledger), scope.clone(), changes.clone());
        self.at_home(async move { ledger.apply_state(&scope, &changes, quota_bytes).await }).await
    }

    async fn state_size(&self, scope: &StateScope) -> Result<u64, Error> {
        let (ledger, scope) = (Arc::clone(&self.ledger), scope.clone());
        self.at_home(async move { ledger.state_size(&scope).await }).await
    }

    async fn compiled(
        &self,
        component_digest: &Sha256Digest,
        engine_fingerprint: &str,
    ) -> Result<Option<CompiledComponent>, Error> {
        let (ledger, digest) = (Arc::clone(&self.ledger), *component_digest);
        let fingerprint = engine_fingerprint.to_owned();
        self.at_home(async move { ledger.compiled(&digest, &fingerprint).await }).await
    }

    async fn record_compiled(&self, compiled: &CompiledComponent) -> Result<(), Error> {
        let (ledger, compiled) = (Arc::clone(&self.ledger), compiled.clone());
        self.at_home(async move { ledger.record_compiled(&compiled).await }).await
    }
}
