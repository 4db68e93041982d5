//! What the sandbox keeps in the database: connector state, and the digests of
//! the compiled components that this daemon wrote.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::domain::{
    digest::Sha256Digest,
    error::Error,
    id::{AccountId, ConnectionId, ConnectorKey},
};

/// Whose state it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateScope {
    /// The account; none when signed out.
    pub account: Option<AccountId>,
    /// The connector.
    pub connector_key: ConnectorKey,
    /// The connection.
    pub connection_id: ConnectionId,
}

/// What a call wrote: a value, or none for a removal.
pub type StateChanges = BTreeMap<String, Option<Vec<u8>>>;

/// A compiled component in the cache folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledComponent {
    /// The component it was compiled from.
    pub component_digest: Sha256Digest,
    /// The engine it was compiled by and for.
    pub engine_fingerprint: String,
    /// SHA-256 of the file with the native code.
    pub file_digest: Sha256Digest,
}

/// The sandbox's rows.
#[async_trait]
pub trait SandboxLedger: Send + Sync {
    /// One value.
    async fn state_value(&self, scope: &StateScope, key: &str) -> Result<Option<Vec<u8>>, Error>;

    /// The keys that start with `prefix`, in byte order.
    async fn state_keys(&self, scope: &StateScope, prefix: &str) -> Result<Vec<String>, Error>;

    /// Applies all changes or none. Refuses to pass `quota_bytes`, counted over
    /// keys and values.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::CapabilityOutputTooLarge`] over the quota.
    async fn apply_state(
        &self,
        scope: &StateScope,
        changes: &StateChanges,
        quota_bytes: u64,
    ) -> Result<(), Error>;

    /// Keys and values of a scope, in bytes.
    async fn state_size(&self, scope: &StateScope) -> Result<u64, Error>;

    /// What is known of a compiled component.
    async fn compiled(
        &self,
        component_digest: &Sha256Digest,
        engine_fingerprint: &str,
    ) -> Result<Option<CompiledComponent>, Error>;

    /// Notes a compiled component; replaces an older note of the same.
    async fn record_compiled(&self, compiled: &CompiledComponent) -> Result<(), Error>;
}
