//! Commands on the wire: what they bring and what they answer.

use serde::{Deserialize, Serialize};

use super::{Connector, Operation};
use crate::{
    api::service,
    domain::{error::Error, id::ClientRequestId, operation::OperationScope, revision::Revision},
};

/// A command on the catalog.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefreshBody {
    /// The caller's own id of the command.
    pub client_request_id: String,
    /// The global revision that the caller saw.
    pub expected_revision: u64,
}

impl RefreshBody {
    pub(in crate::api) fn mutation(self, scope: OperationScope) -> Result<service::Mutation, Error> {
        mutation(self.client_request_id, self.expected_revision, None, scope)
    }
}

/// A command on a connector.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MutationBody {
    /// The caller's own id of the command.
    pub client_request_id: String,
    /// The global revision that the caller saw.
    pub expected_revision: u64,
    /// The connector's revision that the caller saw; judged instead of the global one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_connector_revision: Option<u64>,
}

impl MutationBody {
    pub(in crate::api) fn mutation(self, scope: OperationScope) -> Result<service::Mutation, Error> {
        mutation(self.client_request_id, self.expected_revision, self.expected_connector_revision, scope)
    }
}

/// The user's switch of a connector.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuntimeBody {
    /// Whether it shall run.
    pub enabled: bool,
    /// The caller's own id of the command.
    pub client_request_id: String,
    /// The global revision that the caller saw.
    pub expected_revision: u64,
    /// The connector's revision that the caller saw; judged instead of the global one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_connector_revision: Option<u64>,
}

impl RuntimeBody {
    pub(in crate::api) fn mutation(self, scope: OperationScope) -> Result<(service::Mutation, bool), Error> {
        let mutation = mutation(
            self.client_request_id,
            self.expected_revision,
            self.expected_connector_revision,
            scope,
        )?;
        Ok((mutation, self.enabled))
    }
}

fn mutation(
    client_request_id: String,
    expected_revision: u64,
    expected_connector_revision: Option<u64>,
    scope: OperationScope,
) -> Result<service::Mutation, Error> {
    Ok(service::Mutation {
        client_request_id: ClientRequestId::parse(client_request_id)?,
        expected_revision: Revision(expected_revision),
        expected_connector_revision: expected_connector_revision.map(Revision),
        scope,
    })
}

/// An accepted command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mutation {
    /// The connector, where the command is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector: Option<Connector>,
    /// The operation that carries it out.
    pub operation: Operation,
    /// The revision at which it was accepted.
    pub revision: u64,
}

impl From<service::Accepted> for Mutation {
    fn from(accepted: service::Accepted) -> Self {
        Self {
            connector: accepted.connector.map(|connector| Connector::new(connector, None)),
            operation: accepted.operation.into(),
            revision: accepted.revision.0,
        }
    }
}
