//! What an account's authorization for a connector is, apart from the device's own.

use serde::{Deserialize, Serialize};

use super::AuthorizationState;
use crate::domain::{
    error::{Error, ErrorCode},
    id::{AccountId, ConnectionId, ConnectorKey},
    timestamp::Timestamp,
};

/// An account's authorization for one connector (spec A.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationProjection {
    /// The account.
    pub account_id: AccountId,
    /// The connector.
    pub connector_key: ConnectorKey,
    /// The version of the connector it was granted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector_version: Option<semver::Version>,
    /// The connection that holds the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_id: Option<ConnectionId>,
    /// Grows with every change of the connection.
    #[serde(default)]
    pub connection_version: u64,
    /// The revision of the account's truth that it was read at.
    #[serde(default)]
    pub server_revision: u64,
    /// Whether it was read from the account's truth; tells its revision 0 from never.
    #[serde(default)]
    pub server_synchronized: bool,
    /// Where it stands.
    pub state: AuthorizationState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl AuthorizationProjection {
    /// An authorization that was not read from the account's truth.
    #[must_use]
    pub fn local(
        account_id: AccountId,
        connector_key: ConnectorKey,
        state: AuthorizationState,
        now: Timestamp,
    ) -> Self {
        Self {
            account_id,
            connector_key,
            connector_version: None,
            connection_id: None,
            connection_version: 0,
            server_revision: 0,
            server_synchronized: false,
            state,
            failure_code: None,
            updated_at: now,
        }
    }

    /// Checks it on its own.
    ///
    /// # Errors
    /// [`ErrorCode::InstallFailed`], not retryable, when it is connected without a
    /// connection; [`ErrorCode::InvalidRequest`] for a state that no account has.
    pub fn validate(&self) -> Result<(), Error> {
        match self.state {
            AuthorizationState::Connected if self.connection_id.is_none() => Err(Error::new(
                ErrorCode::InstallFailed,
                format!("the authorization of {} is connected but names no connection", self.connector_key),
            )),
            AuthorizationState::NotRequired => Err(Error::invalid_request(format!(
                "an account's authorization of {} cannot be \"not_required\"",
                self.connector_key
            ))),
            _ => Ok(()),
        }
    }

    /// Whether `next` may take its place: what was read from the account's truth
    /// gives way only to the same or a newer reading (spec E.6).
    #[must_use]
    pub fn gives_way_to(&self, next: &Self) -> bool {
        !self.server_synchronized || next.server_synchronized && next.server_revision >= self.server_revision
    }

    /// Whether readers would see a difference (spec E.6).
    #[must_use]
    pub fn differs_publicly(&self, other: &Self) -> bool {
        self.state != other.state
            || self.connection_id != other.connection_id
            || self.failure_code != other.failure_code
            || self.connection_version != other.connection_version
            || self.connector_version != other.connector_version
            || self.server_synchronized != other.server_synchronized
    }
}

/// The truth of an account, at one of its revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationSnapshot {
    /// The revision, counted by whoever keeps the truth.
    pub revision: u64,
    /// Every authorization of the account. What is not listed is not connected.
    pub projections: Vec<AuthorizationProjection>,
}

/// What applying a snapshot did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedAuthorizations {
    /// Connectors whose authorization changed, by key.
    pub changed: Vec<ConnectorKey>,
    /// Connectors that are connected while an attempt of this account is still open,
    /// by key.
    pub pending_receipts: Vec<ConnectorKey>,
}
