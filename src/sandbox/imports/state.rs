//! `state`: a small store of one connection, buffered until the call has succeeded.

use std::{collections::BTreeSet, sync::Arc};

use wasmtime::component::HasData;

use crate::{
    ports::{SandboxLedger, StateChanges, StateScope},
    sandbox::bindings::imported::state,
};

/// The most that a connection may keep, in bytes of keys and values.
pub(crate) const STATE_QUOTA_BYTES: u64 = 1 << 20;
/// Keys that one call may change: they all go into one transaction. Removals count,
/// which no quota of bytes bounds.
const CHANGED_KEYS: usize = 1_024;
const KEY_BYTES: usize = 256;
const VALUE_BYTES: usize = 256 << 10;

/// What one call read and wrote.
pub(crate) struct StateBuffer {
    source: Option<(Arc<dyn SandboxLedger>, StateScope)>,
    changes: StateChanges,
    size: Option<u64>,
}

impl StateBuffer {
    /// A buffer over a scope; without a source every request is unavailable.
    pub(crate) fn new(source: Option<(Arc<dyn SandboxLedger>, StateScope)>) -> Self {
        Self { source, changes: StateChanges::new(), size: None }
    }

    /// What is to be stored, if anything.
    pub(crate) fn into_changes(self) -> Option<(StateScope, StateChanges)> {
        let (_, scope) = self.source?;
        (!self.changes.is_empty()).then_some((scope, self.changes))
    }

    fn source(&self) -> Result<(&dyn SandboxLedger, &StateScope), state::Error> {
        self.source.as_ref().map(|(ledger, scope)| (&**ledger, scope)).ok_or(state::Error::Unavailable)
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, state::Error> {
        check_key(key)?;
        if let Some(change) = self.changes.get(key) {
            return Ok(change.clone());
        }
        let (ledger, scope) = self.source()?;
        ledger.state_value(scope, key).await.map_err(|cause| unavailable(&cause))
    }

    async fn write(&mut self, key: String, value: Option<Vec<u8>>) -> Result<(), state::Error> {
        check_key(&key)?;
        if value.as_ref().is_some_and(|value| value.len() > VALUE_BYTES) {
            return Err(state::Error::QuotaExceeded(VALUE_BYTES as u64));
        }
        if self.changes.len() >= CHANGED_KEYS && !self.changes.contains_key(&key) {
            return Err(state::Error::QuotaExceeded(STATE_QUOTA_BYTES));
        }
        let weight =
            |value: &Option<Vec<u8>>| value.as_ref().map_or(0, |value| (key.len() + value.len()) as u64);
        let before = weight(&self.get(&key).await?);
        let size = match self.size {
            Some(size) => size,
            None => {
                let (ledger, scope) = self.source()?;
                ledger.state_size(scope).await.map_err(|cause| unavailable(&cause))?
            }
        };
        let after = size.saturating_sub(before).saturating_add(weight(&value));
        if value.is_some() && after > STATE_QUOTA_BYTES {
            return Err(state::Error::QuotaExceeded(STATE_QUOTA_BYTES));
        }
        self.size = Some(after);
        // A removal is noted even of what is not there: another call may store it meanwhile.
        self.changes.insert(key, value);
        Ok(())
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, state::Error> {
        if prefix.len() > KEY_BYTES {
            return Err(state::Error::InvalidKey);
        }
        let (ledger, scope) = self.source()?;
        let stored = ledger.state_keys(scope, prefix).await.map_err(|cause| unavailable(&cause))?;
        let mut keys: BTreeSet<String> = stored.into_iter().collect();
        for (key, change) in &self.changes {
            if !key.starts_with(prefix) {
                continue;
            }
            if change.is_some() {
                keys.insert(key.clone());
            } else {
                keys.remove(key);
            }
        }
        Ok(keys.into_iter().collect())
    }
}

fn check_key(key: &str) -> Result<(), state::Error> {
    if (1..=KEY_BYTES).contains(&key.len()) { Ok(()) } else { Err(state::Error::InvalidKey) }
}

fn unavailable(cause: &crate::domain::error::Error) -> state::Error {
    tracing::debug!(error = %cause, "the state of a connector cannot be read");
    state::Error::Unavailable
}

/// Marks the interface for the linker.
pub(crate) struct State;

impl HasData for State {
    type Data<'a> = StateView<'a>;
}

/// What one host call sees.
pub(crate) struct StateView<'a>(pub(crate) &'a mut StateBuffer);

impl state::Host for StateView<'_> {
    async fn get(&mut self, key: String) -> Result<Option<Vec<u8>>, state::Error> {
        self.0.get(&key).await
    }

    async fn set(&mut self, key: String, value: Vec<u8>) -> Result<(), state::Error> {
        self.0.write(key, Some(value)).await
    }

    async fn delete(&mut self, key: String) -> Result<(), state::Error> {
        self.0.write(key, None).await
    }

    async fn list_keys(&mut self, prefix: String) -> Result<Vec<String>, state::Error> {
        self.0.keys(&prefix).await
    }
}
