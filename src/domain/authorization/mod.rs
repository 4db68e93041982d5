//! Authorization as the device and the account see it, and the attempts that lead
//! there.

mod projection;
mod session;
mod view;

use serde::{Deserialize, Serialize};

pub use projection::{AppliedAuthorizations, AuthorizationProjection, AuthorizationSnapshot};
pub use session::{
    AuthorizationObservation, AuthorizationProgress, AuthorizationSession, AuthorizationStep, Resolution,
    SessionAction,
};
pub use view::{AuthorizationView, AuthorizationViewContent, VIEW_PROTOCOL};

use super::manifest::AuthorizationKind;

/// Where an authorization stands (spec A.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthorizationState {
    /// The connector needs none.
    NotRequired,
    /// There is none.
    Disconnected,
    /// An attempt is under way.
    Pending,
    /// There is one.
    Connected,
    /// There was one.
    Expired,
    /// The last attempt failed.
    Failed,
}

impl AuthorizationState {
    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotRequired => "not_required",
            Self::Disconnected => "disconnected",
            Self::Pending => "pending",
            Self::Connected => "connected",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }

    /// Whether a user's action may lead from here to `next` (spec A.4).
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        use AuthorizationState::{Connected, Disconnected, Expired, Failed, NotRequired, Pending};
        match self {
            NotRequired => false,
            Disconnected => next == Pending,
            Pending => matches!(next, Pending | Connected | Disconnected | Failed),
            Connected => matches!(next, Disconnected | Expired | Failed),
            Expired | Failed => matches!(next, Pending | Disconnected),
        }
    }
}

/// An authorization with why it failed, if it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// Where it stands.
    pub state: AuthorizationState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
}

impl Authorization {
    /// An authorization without a failure.
    #[must_use]
    pub fn of(state: AuthorizationState) -> Self {
        Self { state, failure_code: None }
    }

    /// What a connector of this kind starts with.
    #[must_use]
    pub fn initial(kind: AuthorizationKind) -> Self {
        Self::of(match kind {
            AuthorizationKind::None => AuthorizationState::NotRequired,
            AuthorizationKind::Oauth2 | AuthorizationKind::ApiKey => AuthorizationState::Disconnected,
        })
    }

    /// What becomes of it when the catalog offers a release of this kind.
    #[must_use]
    pub fn migrated_to(self, kind: AuthorizationKind) -> Self {
        match (kind, self.state) {
            (AuthorizationKind::None, _) => Self::of(AuthorizationState::NotRequired),
            (_, AuthorizationState::NotRequired) => Self::of(AuthorizationState::Disconnected),
            _ => self,
        }
    }
}
