//! Generations: which instance of a route may act, and which may not any more.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::id::BootEpoch;

/// A generation of a route: the boot that made it and a number that grows within
/// that boot (spec A.1, H).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    /// The boot that made it.
    pub boot_epoch: BootEpoch,
    /// The number within that boot; at least 1 for a route.
    #[serde(rename = "generation")]
    pub number: u64,
}

impl Generation {
    /// Whether a fence at this generation refuses `next`: same epoch and not
    /// greater. A fence of another epoch refuses nothing.
    #[must_use]
    pub fn fences(&self, next: &Generation) -> bool {
        self.boot_epoch == next.boot_epoch && next.number <= self.number
    }

    /// Whether `next` may replace an active route of this generation: same epoch
    /// and not older. Equal is the same request again.
    #[must_use]
    pub fn admits(&self, next: &Generation) -> bool {
        self.boot_epoch == next.boot_epoch && next.number >= self.number
    }

    /// The fence after this one has been told to advance to `to`: the later of
    /// both, where another epoch always counts as later.
    #[must_use]
    pub fn advanced_to(self, to: Generation) -> Generation {
        if self.boot_epoch != to.boot_epoch || to.number > self.number { to } else { self }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.boot_epoch, self.number)
    }
}
