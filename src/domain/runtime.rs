//! What is asked of an implementation host, and what it answers.

use serde::{Deserialize, Serialize};

use super::{
    authorization::AuthorizationState,
    digest::Sha256Digest,
    error::{Error, ErrorCode},
    generation::Generation,
    id::{ConnectionId, ConnectorKey, OperationId},
};

/// Proof that the files of a release are in place (spec A.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseReceipt {
    /// The operation that put them there.
    pub operation_id: OperationId,
    /// The connector.
    pub connector_key: ConnectorKey,
    /// The version.
    pub version: semver::Version,
    /// The release.
    pub release_digest: Sha256Digest,
    /// The artifact that was verified.
    pub artifact_sha256: Sha256Digest,
    /// SHA-256 over paths, sizes and contents of what was unpacked.
    pub inventory_digest: Sha256Digest,
}

/// Whether a route answers (spec A.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadinessState {
    /// It answers.
    Ready,
    /// It is held back on purpose.
    Blocked,
    /// It does not answer.
    Failed,
}

/// The reason of a route that is switched off.
pub const REASON_RUNTIME_DISABLED: &str = "runtime_disabled";
/// The reason of a route that waits for the publication gate.
pub const REASON_PUBLICATION_GATE_CLOSED: &str = "publication_gate_closed";

/// How a route's capabilities are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceKind {
    /// As tools.
    Mcp,
}

/// One interface of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceReadiness {
    /// How it is offered.
    pub kind: InterfaceKind,
    /// Whether it answers.
    pub state: ReadinessState,
}

/// Whether a route answers, and by which interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeReadiness {
    /// The verdict.
    pub state: ReadinessState,
    /// A stable word for why it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
    /// Its interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceReadiness>,
}

impl RuntimeReadiness {
    /// A route that is held back for `reason`.
    #[must_use]
    pub fn blocked(reason: &str) -> Self {
        Self { state: ReadinessState::Blocked, reason_code: Some(reason.to_owned()), interfaces: Vec::new() }
    }
}

/// A skill that a bundle carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillSummary {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What it is for.
    pub description: String,
}

/// What a route offers, bounded and without secrets (spec A.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorSummary {
    /// The connector.
    pub key: ConnectorKey,
    /// The version that runs.
    pub version: semver::Version,
    /// Its name for people; at most 256 bytes.
    pub name: String,
    /// What it does; at most 16 KiB.
    pub description: String,
    /// Its skills; at most 128.
    pub skills: Vec<SkillSummary>,
    /// How it is offered.
    pub interfaces: Vec<InterfaceKind>,
}

/// A request to bring a connection's route to a state.
#[derive(Clone, Debug)]
pub struct ReconcileRequest {
    /// Why.
    pub operation_id: OperationId,
    /// For which account.
    pub scope: super::operation::OperationScope,
    /// For which connection.
    pub connection_id: ConnectionId,
    /// The release to run.
    pub release: super::release::Release,
    /// Where the installation stands.
    pub installation: super::installation::Installation,
    /// The connection's authorization.
    pub authorization: AuthorizationState,
    /// The version of the connection that holds the credential; 0 without one.
    pub connection_version: u64,
    /// The revision of the account's truth behind it; 0 without one.
    pub server_revision: u64,
    /// Whether it shall run.
    pub enabled: bool,
    /// The generation of the new route.
    pub generation: Generation,
}

/// What a host answers to a [`ReconcileRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeReceipt {
    /// As asked.
    pub operation_id: OperationId,
    /// As asked.
    pub connection_id: ConnectionId,
    /// As asked.
    pub connector_key: ConnectorKey,
    /// As asked.
    pub release_digest: Sha256Digest,
    /// As asked.
    pub generation: Generation,
    /// Whether the route answers.
    pub readiness: RuntimeReadiness,
    /// What it offers, when it is ready.
    pub summary: Option<ConnectorSummary>,
}

impl RuntimeReceipt {
    /// Checks the receipt against what was asked (spec A.7).
    ///
    /// # Errors
    /// [`ErrorCode::InstallFailed`], not retryable; except that a route held back
    /// by the publication gate is retryable, so that an install interrupted by a
    /// restart is finished once the gate opens (spec C.14, hazard 2).
    pub fn verify(&self, request: &ReconcileRequest) -> Result<(), Error> {
        let invalid = |what: &str| {
            Err(Error::new(
                ErrorCode::InstallFailed,
                format!("the host answered with an invalid receipt: {what}"),
            ))
        };
        let identity = self.operation_id == request.operation_id
            && self.connection_id == request.connection_id
            && self.connector_key == request.release.connector_key
            && self.release_digest == request.release.release_digest
            && self.generation == request.generation;
        if !identity {
            return invalid("it is for another request");
        }
        let reason = self.readiness.reason_code.as_deref();
        if !request.enabled {
            let disabled = self.readiness.state == ReadinessState::Blocked
                && reason == Some(REASON_RUNTIME_DISABLED)
                && self.readiness.interfaces.is_empty();
            return if disabled { Ok(()) } else { invalid("a disabled route must be blocked") };
        }
        if self.readiness.state == ReadinessState::Blocked && reason == Some(REASON_PUBLICATION_GATE_CLOSED) {
            return Err(Error::unavailable("the publication gate is closed; the route starts when it opens"));
        }
        let Some(summary) = &self.summary else { return invalid("a ready route must have a summary") };
        let mut kinds: Vec<InterfaceKind> = self.readiness.interfaces.iter().map(|one| one.kind).collect();
        let mut promised = summary.interfaces.clone();
        kinds.sort_unstable();
        promised.sort_unstable();
        let ready = self.readiness.state == ReadinessState::Ready
            && !kinds.is_empty()
            && kinds == promised
            && self.readiness.interfaces.iter().all(|one| one.state == ReadinessState::Ready)
            && summary.key == self.connector_key;
        if ready { Ok(()) } else { invalid("an enabled route must be ready on every interface") }
    }
}

/// A request to take routes down.
#[derive(Clone, Debug)]
pub struct DeactivateRequest {
    /// For which account.
    pub scope: super::operation::OperationScope,
    /// The connection, or none for all of the connector's.
    pub connection_id: Option<ConnectionId>,
    /// The connector.
    pub connector_key: ConnectorKey,
    /// The release that is expected to run, or none for any.
    pub release_digest: Option<Sha256Digest>,
    /// The generation up to which nothing may run any more.
    pub generation: Generation,
}
