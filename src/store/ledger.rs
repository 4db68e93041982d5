//! The sandbox's port, passed on to the files of its tables.

use async_trait::async_trait;

use super::{SqlStore, compiled, state};
use crate::{
    domain::{digest::Sha256Digest, error::Error},
    ports::{CompiledComponent, SandboxLedger, StateChanges, StateScope},
};

#[async_trait]
impl SandboxLedger for SqlStore {
    async fn state_value(&self, scope: &StateScope, key: &str) -> Result<Option<Vec<u8>>, Error> {
        state::value(&mut *self.reading().await?, scope, key).await
    }

    async fn state_keys(&self, scope: &StateScope, prefix: &str) -> Result<Vec<String>, Error> {
        state::keys(&mut *self.reading().await?, scope, prefix).await
    }

    async fn apply_state(
        &self,
        scope: &StateScope,
        changes: &StateChanges,
        quota_bytes: u64,
    ) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut transaction = self.writer.begin_with(self.dialect.begin_write()).await?;
        if let Some(lock) = self.dialect.state_lock() {
            state::lock(&mut transaction, lock, scope).await?;
        }
        state::apply(&mut transaction, scope, changes, quota_bytes).await?;
        Ok(transaction.commit().await?)
    }

    async fn state_size(&self, scope: &StateScope) -> Result<u64, Error> {
        state::size(&mut *self.reading().await?, scope).await
    }

    async fn compiled(
        &self,
        component_digest: &Sha256Digest,
        engine_fingerprint: &str,
    ) -> Result<Option<CompiledComponent>, Error> {
        compiled::get(&mut *self.reading().await?, component_digest, engine_fingerprint).await
    }

    async fn record_compiled(&self, compiled: &CompiledComponent) -> Result<(), Error> {
        compiled::record(&mut *self.writing().await?, compiled).await
    }
}
