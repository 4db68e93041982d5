//! One authorization attempt: what a provider answers at each step, and what of it
//! is stored. Links, codes and secrets are not: they live in the answer alone.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::{
    error::{Error, ErrorCode},
    id::{AuthorizationSessionId, ConnectionId, ConnectorKey, OperationId},
    timestamp::Timestamp,
};

/// What a provider asked its user to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionAction {
    /// Open a link.
    Redirect,
    /// Hand over a secret, as with an API key.
    SubmitSecret,
}

/// How an attempt is being ended, or has ended (spec A.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The provider is told to give it up; not an end yet.
    Canceling,
    /// The provider says that it is connected.
    ProviderConnected,
    /// The provider says that it failed.
    ProviderFailed,
    /// The account is connected, by whatever way.
    AccountStateConverged,
    /// Another attempt, a cancellation or a disconnection took its place.
    Superseded,
}

impl Resolution {
    /// Whether the attempt has ended with it.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Canceling)
    }
}

/// The durable receipt of an attempt (spec A.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationSession {
    /// The operation that began it.
    pub operation_id: OperationId,
    /// The connector.
    pub connector_key: ConnectorKey,
    /// The provider's own id of it.
    pub session_id: AuthorizationSessionId,
    /// What the user was asked to do, where the provider said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<SessionAction>,
    /// How many steps were taken; never falls.
    pub step_revision: u64,
    /// When the attempt is over whatever the provider says.
    pub expires_at: Timestamp,
    /// How it ends; none while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
}

impl AuthorizationSession {
    /// Whether it has ended. What has ended never changes again.
    #[must_use]
    pub fn is_resolved(&self) -> bool {
        self.resolution.is_some_and(Resolution::is_final)
    }

    /// Whether the provider is being told to give it up.
    #[must_use]
    pub fn is_canceling(&self) -> bool {
        self.resolution == Some(Resolution::Canceling)
    }

    /// Notes how it ends; nothing once it has ended.
    pub fn resolve(&mut self, resolution: Resolution) {
        if !self.is_resolved() {
            self.resolution = Some(resolution);
        }
    }
}

/// How far an attempt has come. Never stored.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthorizationProgress {
    /// The user has to act.
    Pending {
        /// The link to open.
        url: String,
        /// The code to enter there, where the provider uses one.
        user_code: Option<String>,
    },
    /// It is done.
    Connected {
        /// The connection that holds the credential.
        connection_id: ConnectionId,
    },
}

/// A link carries the state of its attempt, so neither it nor a code is printed.
impl fmt::Debug for AuthorizationProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending { .. } => f.write_str("Pending"),
            Self::Connected { connection_id } => f.debug_tuple("Connected").field(connection_id).finish(),
        }
    }
}

/// What a provider answers when an attempt begins or goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationStep {
    /// As asked.
    pub operation_id: OperationId,
    /// As asked.
    pub connector_key: ConnectorKey,
    /// The provider's own id of the attempt; the same at every step.
    pub session_id: AuthorizationSessionId,
    /// What the user is asked to do, where the provider says.
    pub action: Option<SessionAction>,
    /// The step, counted from 1; 0 leaves the counting to the market.
    pub step_revision: u64,
    /// When the attempt is over; none leaves it to the market.
    pub expires_at: Option<Timestamp>,
    /// How far it has come.
    pub progress: AuthorizationProgress,
}

impl AuthorizationStep {
    /// Checks the answer against what was asked and what is stored (spec A.8, C.9).
    ///
    /// # Errors
    /// [`ErrorCode::InstallFailed`], not retryable: the provider's receipt is invalid.
    pub fn verify(
        &self,
        operation_id: &OperationId,
        connector_key: &ConnectorKey,
        stored: Option<&AuthorizationSession>,
    ) -> Result<(), Error> {
        let invalid = |what: &str| {
            Err(Error::new(
                ErrorCode::InstallFailed,
                format!("the authorization provider answered with an invalid receipt: {what}"),
            ))
        };
        if self.operation_id != *operation_id || self.connector_key != *connector_key {
            return invalid("it is for another attempt");
        }
        if stored.is_some_and(|stored| self.step_revision < stored.step_revision) {
            return invalid("it goes back to an earlier step");
        }
        match (self.action, &self.progress) {
            (_, AuthorizationProgress::Pending { url, .. }) if url.trim().is_empty() => {
                invalid("it waits for the user without a link")
            }
            (Some(SessionAction::SubmitSecret), AuthorizationProgress::Pending { .. }) => {
                invalid("it has the secret and still waits for the user")
            }
            (Some(SessionAction::Redirect), AuthorizationProgress::Connected { .. }) => {
                invalid("it sends the user to a link and is connected already")
            }
            _ => Ok(()),
        }
    }
}

/// What a provider says of an attempt that it was asked about later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizationObservation {
    /// The user has still to act.
    Pending,
    /// It is done.
    Connected {
        /// The connection that holds the credential.
        connection_id: ConnectionId,
    },
    /// It failed.
    Failed {
        /// The provider's stable word for why.
        failure_code: Option<String>,
    },
}
