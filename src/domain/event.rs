//! The event that says something changed. A hint: the snapshot is the truth.

use serde::{Deserialize, Serialize};

use super::{
    id::{AccountId, ConnectorKey, OperationId},
    operation::Visibility,
    revision::Revision,
};

/// What a transaction asks to be announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedEvent {
    /// The connector that changed; none for the catalog as a whole.
    pub connector_key: Option<ConnectorKey>,
    /// The operation behind the change.
    pub operation_id: Option<OperationId>,
    /// The revision that holds the change.
    pub revision: Revision,
}

/// A row of the outbox (spec E.7): a change labelled for one account, or for the
/// machine with operation and owner left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboxEvent {
    /// Its position; grows, is never reused, and is the event cursor.
    pub sequence: i64,
    /// The connector that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector_key: Option<ConnectorKey>,
    /// The operation behind it, in the owner's copy only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<OperationId>,
    /// Whose copy this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_account_id: Option<AccountId>,
    /// Who may see it.
    pub visibility: Visibility,
    /// The revision that holds the change.
    pub revision: Revision,
}
