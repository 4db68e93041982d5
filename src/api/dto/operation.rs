//! An operation on the wire: who owns it, who works on it and what it carries stay here.

use serde::{Deserialize, Serialize};

use crate::domain::{
    operation::{self, OperationFailure, OperationKind, OperationState, Stage},
    timestamp::Timestamp,
};

/// A durable command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Identifies it.
    pub operation_id: String,
    /// The caller's own id of the command.
    pub client_request_id: String,
    /// The connector; left out for the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector_key: Option<String>,
    /// What it does.
    pub kind: OperationKind,
    /// `accepted`, `running`, `completed` or `failed`.
    pub state: String,
    /// Where it stands in its sequence.
    pub stage: Stage,
    /// What it is about, frozen when it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// How often it was begun.
    pub attempt: u32,
    /// The code of a failed operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
    /// What exactly was wrong: the end of a failed operation, or of the last
    /// attempt of one that will be begun again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// Which release an operation is about.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The connector.
    pub connector_key: String,
    /// The version.
    pub version: String,
    /// The release.
    pub release_id: String,
    /// Its digest.
    pub release_digest: String,
    /// The SHA-256 of its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_sha256: Option<String>,
}

/// Why an attempt ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The most specific code.
    pub code: String,
    /// What was wrong.
    pub message: String,
}

impl From<OperationFailure> for Failure {
    fn from(failure: OperationFailure) -> Self {
        Self { code: failure.code.as_str().to_owned(), message: failure.message }
    }
}

impl Operation {
    /// Whether it has not ended.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self.state.as_str(), "accepted" | "running")
    }
}

impl From<operation::Operation> for Operation {
    fn from(operation: operation::Operation) -> Self {
        let (state, failure_code, failure) = match operation.state {
            OperationState::Accepted => ("accepted", None, None),
            OperationState::Running { last_failure } => ("running", None, last_failure),
            OperationState::Completed => ("completed", None, None),
            OperationState::Failed { failure_code, failure } => ("failed", Some(failure_code), Some(failure)),
        };
        Self {
            operation_id: operation.operation_id.as_str().to_owned(),
            client_request_id: operation.client_request_id.as_str().to_owned(),
            connector_key: operation.connector_key.map(|key| key.as_str().to_owned()),
            kind: operation.kind,
            state: state.to_owned(),
            stage: operation.stage,
            target: operation.target.map(|target| Target {
                connector_key: target.connector_key.as_str().to_owned(),
                version: target.identity.version.to_string(),
                release_id: target.identity.release_id.as_str().to_owned(),
                release_digest: target.identity.release_digest.to_string(),
                artifact_sha256: target.artifact_sha256.map(|digest| digest.to_string()),
            }),
            attempt: operation.attempt,
            failure_code: failure_code.map(|code| code.as_str().to_owned()),
            failure: failure.map(Failure::from),
            created_at: operation.created_at,
            updated_at: operation.updated_at,
        }
    }
}
