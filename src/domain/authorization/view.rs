//! What a caller shows its user so that an attempt can go on.

use serde::{Deserialize, Serialize};

use super::session::{AuthorizationProgress, AuthorizationSession};
use crate::domain::{digest::Sha256Digest, timestamp::Timestamp};

/// The version of the view's form.
pub const VIEW_PROTOCOL: &str = "portcullis.connector.authorization.view.v1";

/// What to show (spec A.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum AuthorizationViewContent {
    /// A link, and a code to enter there.
    DeviceCode {
        /// The link.
        verification_url: String,
        /// The code.
        user_code: String,
    },
    /// A link to open.
    ExternalLink {
        /// The link.
        url: String,
    },
}

/// A view with its identity: the same link and code give the same id, so that a
/// caller which asks again does not show it twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationView {
    /// [`VIEW_PROTOCOL`].
    pub protocol: String,
    /// `authorization-` and 16 bytes of SHA-256 over session id, NUL, link, NUL, code.
    pub view_id: String,
    /// What to show.
    #[serde(flatten)]
    pub content: AuthorizationViewContent,
    /// When the attempt is over.
    pub expires_at: Timestamp,
}

impl AuthorizationView {
    /// The view of an open attempt; none when there is nothing to show.
    #[must_use]
    pub fn of(session: &AuthorizationSession, progress: &AuthorizationProgress) -> Option<Self> {
        let AuthorizationProgress::Pending { url, user_code } = progress else { return None };
        if session.is_resolved() {
            return None;
        }
        let code = user_code.as_deref().unwrap_or_default();
        let identity = Sha256Digest::of(format!("{}\0{url}\0{code}", session.session_id).as_bytes());
        let content = match user_code {
            Some(code) => AuthorizationViewContent::DeviceCode {
                verification_url: url.clone(),
                user_code: code.clone(),
            },
            None => AuthorizationViewContent::ExternalLink { url: url.clone() },
        };
        Some(Self {
            protocol: VIEW_PROTOCOL.to_owned(),
            view_id: format!("authorization-{}", hex::encode(&identity.as_bytes()[..16])),
            content,
            expires_at: session.expires_at,
        })
    }
}
