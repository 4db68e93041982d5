//! Whether a connector can run on this host.

use serde::{Deserialize, Serialize};

/// The reason of a connector that its catalog no longer lists.
pub const REMOVED_FROM_CATALOG: &str = "removed_from_catalog";

/// How a connector fits this host (spec A.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompatibilityState {
    /// It runs here.
    Supported,
    /// It is for another product.
    UnsupportedProduct,
    /// It is for another platform.
    UnsupportedPlatform,
    /// It needs a newer host.
    UnsupportedVersion,
    /// This host runs no such implementation kind.
    UnsupportedImplementation,
}

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compatibility {
    /// The verdict.
    pub state: CompatibilityState,
    /// A stable word for why, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Compatibility {
    /// It runs here.
    #[must_use]
    pub fn supported() -> Self {
        Self { state: CompatibilityState::Supported, reason: None }
    }

    /// A refusal with its reason.
    #[must_use]
    pub fn refused(state: CompatibilityState, reason: impl Into<String>) -> Self {
        Self { state, reason: Some(reason.into()) }
    }

    /// The mark of a connector that its catalog no longer lists.
    #[must_use]
    pub fn removed_from_catalog() -> Self {
        Self::refused(CompatibilityState::UnsupportedVersion, REMOVED_FROM_CATALOG)
    }

    /// Whether the catalog no longer lists the connector.
    #[must_use]
    pub fn is_removed_from_catalog(&self) -> bool {
        self.reason.as_deref() == Some(REMOVED_FROM_CATALOG)
    }
}
