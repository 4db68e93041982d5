//! What one call of a component may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a component asks for. A field left out means the host's default; the
/// operator's ceiling caps both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ComponentLimits {
    /// Bytes of linear memory; 64 KiB to 4 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Elements of all tables; 1 to 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_elements: Option<u64>,
    /// Milliseconds of CPU spent in the guest; 1 to 120,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Milliseconds from start to answer, host calls included; 100 to 120,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Calls at the same time; 1 to 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_calls: Option<u32>,
    /// Bytes of one answer; 1 to 10 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u64>,
}

/// What one call may take, decided: what was asked, capped by the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EffectiveLimits {
    /// Bytes of linear memory.
    pub memory_bytes: u64,
    /// Elements of all tables.
    pub table_elements: u64,
    /// Milliseconds of CPU spent in the guest.
    pub cpu_ms: u64,
    /// Milliseconds from start to answer.
    pub wall_ms: u64,
    /// Calls at the same time.
    pub concurrent_calls: u32,
    /// Bytes of one answer.
    pub response_bytes: u64,
}

impl Default for EffectiveLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            table_elements: 20_000,
            cpu_ms: 5_000,
            wall_ms: 30_000,
            concurrent_calls: 64,
            response_bytes: 4 << 20,
        }
    }
}

impl EffectiveLimits {
    /// Decides what `asked` may take, where `defaults` fills what was left out
    /// and `ceiling` caps everything.
    #[must_use]
    pub fn decide(asked: &ComponentLimits, defaults: &Self, ceiling: &Self) -> Self {
        Self {
            memory_bytes: asked.memory_bytes.unwrap_or(defaults.memory_bytes).min(ceiling.memory_bytes),
            table_elements: asked
                .table_elements
                .unwrap_or(defaults.table_elements)
                .min(ceiling.table_elements),
            cpu_ms: asked.cpu_ms.unwrap_or(defaults.cpu_ms).min(ceiling.cpu_ms),
            wall_ms: asked.wall_ms.unwrap_or(defaults.wall_ms).min(ceiling.wall_ms),
            concurrent_calls: asked
                .concurrent_calls
                .unwrap_or(defaults.concurrent_calls)
                .min(ceiling.concurrent_calls),
            response_bytes: asked
                .response_bytes
                .unwrap_or(defaults.response_bytes)
                .min(ceiling.response_bytes),
        }
    }

    /// The CPU budget.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        Duration::from_millis(self.cpu_ms)
    }

    /// The wall-clock budget.
    #[must_use]
    pub fn wall(&self) -> Duration {
        Duration::from_millis(self.wall_ms)
    }
}
