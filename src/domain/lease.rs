//! Leases: who may work on a row, until when, and the token that fences a late write.

use serde::{Deserialize, Serialize};

use super::{id::WorkerId, timestamp::Timestamp};

/// A number that every claim of a row increments. Safety comes from this token;
/// the clock only decides when a claim may be tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(pub u64);

/// A lease that a worker holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Who holds it.
    pub owner: WorkerId,
    /// The token of this claim.
    pub token: LeaseToken,
    /// When it ends, by the database's clock.
    pub expires_at: Timestamp,
}

impl Lease {
    /// Whether another worker must still keep away at `now`.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at > now
    }
}
