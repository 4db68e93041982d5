//! What a route should be, what it was seen to be, and when to try again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    authorization::AuthorizationState,
    digest::Sha256Digest,
    error::{Error, ErrorCode},
    id::{BootEpoch, ConnectionId, ConnectorKey},
    lease::{Lease, LeaseToken},
    operation::OperationScope,
    revision::Revision,
    runtime::{ConnectorSummary, ReadinessState, RuntimeReadiness},
    timestamp::Timestamp,
};

/// The durable intent for one connector in one scope (spec A.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Desired {
    /// For which account.
    pub scope: OperationScope,
    /// The connector.
    pub connector_key: ConnectorKey,
    /// Grows with every change of intent; at least 1.
    pub generation: u64,
    /// The user's switch; none means on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_enabled: Option<bool>,
    /// Whether it shall run: the binding allows it and the switch is on.
    pub enabled: bool,
    /// On which connection.
    pub connection_id: ConnectionId,
    /// Which release.
    pub release_digest: Sha256Digest,
    /// The connection's authorization when this was planned.
    pub authorization_state: AuthorizationState,
    /// When it was planned.
    pub updated_at: Timestamp,
}

/// What a route was last seen to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// The intent it satisfies.
    pub desired_generation: u64,
    /// The boot that saw it; a route does not outlive its boot.
    pub boot_epoch: BootEpoch,
    /// Whether it was asked to run.
    pub enabled: bool,
    /// On which connection.
    pub connection_id: ConnectionId,
    /// Which release.
    pub release_digest: Sha256Digest,
    /// Whether it answered.
    pub readiness: RuntimeReadiness,
    /// What it offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<ConnectorSummary>,
    /// When it was seen.
    pub observed_at: Timestamp,
}

/// Intent, observation and the work between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Convergence {
    /// What it should be.
    pub desired: Desired,
    /// What it was seen to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// How often in a row it failed.
    pub attempt: u32,
    /// Not before this moment.
    pub next_attempt_at: Timestamp,
    /// Who works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The token of the last claim or change of intent.
    #[serde(default)]
    pub lease_token: LeaseToken,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<super::operation::OperationFailure>,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// What a plan asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Whether the binding allows it to run.
    pub binding_enabled: bool,
    /// A new position of the user's switch; none keeps the stored one.
    pub activation: Option<bool>,
    /// On which connection.
    pub connection_id: ConnectionId,
    /// Which release.
    pub release_digest: Sha256Digest,
    /// The connection's authorization.
    pub authorization_state: AuthorizationState,
    /// Plans a new generation even when nothing changed.
    pub force: bool,
}

impl Convergence {
    /// Whether the route is what it should be, seen by this boot.
    #[must_use]
    pub fn is_converged(&self, boot_epoch: &BootEpoch) -> bool {
        self.observed.as_ref().is_some_and(|observed| {
            observed.desired_generation == self.desired.generation && observed.boot_epoch == *boot_epoch
        })
    }

    /// Whether work is due: not converged, not backing off, not leased elsewhere.
    #[must_use]
    pub fn is_due(&self, boot_epoch: &BootEpoch, now: Timestamp) -> bool {
        !self.is_converged(boot_epoch)
            && self.next_attempt_at <= now
            && !self.lease.as_ref().is_some_and(|lease| lease.is_live(now))
    }

    /// Plans `intent` on top of what is stored (spec C.11, save desired). None
    /// when nothing changes.
    ///
    /// # Errors
    /// [`ErrorCode::Unavailable`], not retryable, when the generation counter is exhausted.
    pub fn plan(
        stored: Option<&Self>,
        scope: &OperationScope,
        connector_key: &ConnectorKey,
        connector_revision: Revision,
        intent: &Intent,
        now: Timestamp,
    ) -> Result<Option<Self>, Error> {
        let previous = stored.map(|stored| &stored.desired);
        let activation_enabled =
            intent.activation.or(previous.and_then(|desired| desired.activation_enabled));
        let enabled = intent.binding_enabled && activation_enabled.unwrap_or(true);
        let unchanged = previous.is_some_and(|desired| {
            desired.enabled == enabled
                && desired.activation_enabled == activation_enabled
                && desired.connection_id == intent.connection_id
                && desired.release_digest == intent.release_digest
                && desired.authorization_state == intent.authorization_state
        });
        if unchanged && !intent.force {
            return Ok(None);
        }
        let exhausted =
            || Error::unavailable("the runtime generation counter is exhausted").with_retryable(false);
        let minimum = connector_revision.0.max(1).checked_add(1).ok_or_else(exhausted)?;
        let after_previous = match previous {
            Some(desired) => desired.generation.checked_add(1).ok_or_else(exhausted)?,
            None => 1,
        };
        Ok(Some(Self {
            desired: Desired {
                scope: scope.clone(),
                connector_key: connector_key.clone(),
                generation: after_previous.max(minimum),
                activation_enabled,
                enabled,
                connection_id: intent.connection_id.clone(),
                release_digest: intent.release_digest,
                authorization_state: intent.authorization_state,
                updated_at: now,
            },
            observed: stored.and_then(|stored| stored.observed.clone()),
            attempt: 0,
            next_attempt_at: now,
            lease: None,
            // A worker that still runs for the older intent loses its lease.
            lease_token: LeaseToken(stored.map_or(0, |stored| stored.lease_token.0) + 1),
            last_error: None,
            updated_at: now,
        }))
    }

    /// The row after a failed attempt: one more, later, with the reason.
    #[must_use]
    pub fn backed_off(mut self, failure: super::operation::OperationFailure, now: Timestamp) -> Self {
        self.attempt = self.attempt.saturating_add(1);
        self.next_attempt_at = now.plus(Duration::from_secs(1 << self.attempt.min(6)));
        self.last_error = Some(failure);
        self.lease = None;
        self.updated_at = now;
        self
    }

    /// The row after the route was seen in the desired state.
    #[must_use]
    pub fn observed_as(mut self, observed: Observed, now: Timestamp) -> Self {
        self.observed = Some(observed);
        self.attempt = 0;
        self.last_error = None;
        self.lease = None;
        self.updated_at = now;
        self
    }

    /// What readers of the connector see (spec C.1, 2).
    #[must_use]
    pub fn runtime(&self, boot_epoch: &BootEpoch) -> ConnectorRuntime {
        let ready = self
            .observed
            .as_ref()
            .is_some_and(|observed| observed.enabled && observed.readiness.state == ReadinessState::Ready);
        if self.is_converged(boot_epoch) && ready {
            ConnectorRuntime::Started
        } else if !self.desired.enabled {
            ConnectorRuntime::Stopped
        } else if let Some(error) = &self.last_error {
            ConnectorRuntime::Failed { failure_code: error.code }
        } else {
            ConnectorRuntime::Starting
        }
    }
}

/// Whether an installed connector runs, as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ConnectorRuntime {
    /// It answers.
    Started,
    /// It is on its way.
    Starting,
    /// It is switched off.
    Stopped,
    /// It does not start.
    Failed {
        /// Why.
        failure_code: ErrorCode,
    },
}
