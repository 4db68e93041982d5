//! The wire types. Fields are camelCase; an empty list is `[]`, never left out;
//! what comes in refuses unknown fields. What the domain knows and the wire hides
//! (spec I.4) has no field here, so it cannot leak.
//!
//! The command line reads answers with the same types.

mod call;
mod command;
mod connector;
mod market;
mod operation;

pub use call::{CallAnswer, CallBody, Capabilities, Routes};
pub use command::{Mutation, MutationBody, RefreshBody, RuntimeBody};
pub use connector::{
    Access, Artifact, Authorization, Compatibility, Connector, Credential, Implementation, Installation,
    InstalledAccess, Limits, Manifest, Release, Requirements, Runtime,
};
pub use market::{Categories, Category, Listing, Page, Snapshot};
pub use operation::{Failure, Operation, Target};

use serde::{Deserialize, Serialize};

/// The body of every error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// The stable code.
    pub code: String,
    /// What was wrong and what to do.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// The revision that holds now, for a stale one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The request, as the daemon's log names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}
