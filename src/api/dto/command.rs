//! Commands on the wire: what they bring and what they answer.

use serde::{Deserialize, Serialize};

use super::{Connector, Operation};
use crate::{
    domain::{
        error::Error,
        id::{ClientRequestId, ConnectorKey},
        operation::OperationScope,
        revision::Revision,
    },
    market,
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
    pub(in crate::api) fn mutation(self, scope: OperationScope) -> Result<market::Mutation, Error> {
        mutation(self.client_request_id, self.expected_revision, scope)
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
    pub(in crate::api) fn mutation(
        self,
        connector_key: ConnectorKey,
        scope: OperationScope,
    ) -> Result<market::ConnectorMutation, Error> {
        Ok(market::ConnectorMutation {
            mutation: mutation(self.client_request_id, self.expected_revision, scope)?,
            connector_key,
            expected_connector_revision: self.expected_connector_revision.map(Revision),
        })
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
    pub(in crate::api) fn mutation(
        self,
        connector_key: ConnectorKey,
        scope: OperationScope,
    ) -> Result<(market::ConnectorMutation, bool), Error> {
        let command = market::ConnectorMutation {
            mutation: mutation(self.client_request_id, self.expected_revision, scope)?,
            connector_key,
            expected_connector_revision: self.expected_connector_revision.map(Revision),
        };
        Ok((command, self.enabled))
    }
}

fn mutation(
    client_request_id: String,
    expected_revision: u64,
    scope: OperationScope,
) -> Result<market::Mutation, Error> {
    Ok(market::Mutation {
        client_request_id: ClientRequestId::parse(client_request_id)?,
        expected_revision: Revision(expected_revision),
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

impl From<market::Accepted> for Mutation {
    fn from(accepted: market::Accepted) -> Self {
        Self {
            connector: accepted.connector.map(|connector| Connector::new(connector, None)),
            operation: accepted.operation.into(),
            revision: accepted.revision.0,
        }
    }
}
