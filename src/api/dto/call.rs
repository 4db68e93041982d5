//! Capabilities, calls and routes on the wire.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    domain::{
        capability::{CallResponse, Content, PublishedCapability},
        digest::Sha256Digest,
        generation::Generation,
    },
    ports::RouteSummary,
};

/// What a call brings.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallBody {
    /// The input; the capability's schema judges it.
    pub input: Value,
    /// How long the caller waits, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// What a call answers. Borrowed on the way out: content can be large.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallAnswer<'a> {
    /// Content for people and agents, in order.
    pub content: Cow<'a, [Content]>,
    /// A JSON object for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Cow<'a, Value>>,
    /// The version that answered.
    pub version: Cow<'a, str>,
    /// The release that answered.
    pub release_digest: Sha256Digest,
    /// The generation that answered.
    pub generation: Cow<'a, Generation>,
}

impl<'a> From<&'a CallResponse> for CallAnswer<'a> {
    fn from(response: &'a CallResponse) -> Self {
        Self {
            content: Cow::Borrowed(&response.result.content),
            structured_content: response.result.structured_content.as_ref().map(Cow::Borrowed),
            version: Cow::Borrowed(&response.version),
            release_digest: response.release_digest,
            generation: Cow::Borrowed(&response.generation),
        }
    }
}

/// All that can be called now.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    /// By id.
    pub capabilities: Vec<PublishedCapability>,
}

/// All routes.
#[derive(Clone, Debug, Serialize)]
pub struct Routes {
    /// By connector, connection and generation.
    pub routes: Vec<RouteSummary>,
}
