//! Capabilities: what a connector can do, what a call answers, how it fails.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    digest::Sha256Digest,
    generation::Generation,
    id::{AccountId, CapabilityId, CapabilityName, ConnectionId, RequestId},
    timestamp::Timestamp,
};

/// Hints about a capability's effects, as MCP has them. They grant nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// It changes nothing outside the connector.
    pub read_only: bool,
    /// It may delete or overwrite something.
    pub destructive: bool,
    /// Repeating it has no further effect.
    pub idempotent: bool,
    /// It talks to an open world of outside systems.
    pub open_world: bool,
}

/// One thing a connector can do, as it describes itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capability {
    /// Its name within the connector.
    pub name: CapabilityName,
    /// A short name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema 2020-12 of the input; its root type is `object`.
    pub input_schema: Value,
    /// JSON Schema 2020-12 of the structured answer, where one is promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Hints about effects.
    pub annotations: Annotations,
}

/// A capability that an active route offers right now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishedCapability {
    /// How callers name it.
    pub id: CapabilityId,
    /// What it is.
    #[serde(flatten)]
    pub capability: Capability,
    /// The version of the release that offers it.
    pub version: String,
    /// The digest of that release.
    pub release_digest: Sha256Digest,
    /// The generation of the route.
    pub generation: Generation,
}

/// One piece of an answer. The JSON form is that of MCP content, so that one
/// encoding serves every edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Content {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// The bytes, in base64.
        data: String,
        /// Their media type.
        mime_type: String,
    },
    /// A sound.
    Audio {
        /// The bytes, in base64.
        data: String,
        /// Their media type.
        mime_type: String,
    },
    /// A pointer to something the caller can fetch.
    ResourceLink {
        /// Where it is.
        uri: String,
        /// A short identifier.
        name: String,
        /// A name for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// What it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// Its media type.
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// A resource carried inside the answer.
    Resource {
        /// The resource.
        resource: EmbeddedResource,
    },
}

/// A resource carried inside an answer; exactly one of `text` and `blob` is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedResource {
    /// Identifies it.
    pub uri: String,
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its bytes, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// What a successful call answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    /// Content for people and AI agents, in order.
    pub content: Vec<Content>,
    /// A JSON object for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
}

/// A request to call a capability.
#[derive(Clone)]
pub struct CallRequest {
    /// Identifies the call.
    pub request_id: RequestId,
    /// On whose behalf; none when signed out.
    pub account: Option<AccountId>,
    /// What to call.
    pub capability: CapabilityId,
    /// The input; checked against the capability's schema before the guest runs.
    pub input: Value,
    /// When the caller stops waiting; the route's own wall limit may be sooner.
    pub deadline: Option<Timestamp>,
    /// Where progress goes, if the caller wants it.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

/// A report of a long call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Finished units.
    pub done: f64,
    /// All units, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What is going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The answer to a call, with what answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResponse {
    /// The answer.
    #[serde(flatten)]
    pub result: CallResult,
    /// The connection that was used.
    pub connection_id: ConnectionId,
    /// The version of the release that answered.
    pub version: String,
    /// Its digest.
    pub release_digest: Sha256Digest,
    /// The generation of the route.
    pub generation: Generation,
}
