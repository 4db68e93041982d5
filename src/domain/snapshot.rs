//! Everything a reader sees at one revision.

use super::{
    authorization::AuthorizationProjection,
    catalog::CatalogState,
    connector::Connector,
    convergence::{ConnectorRuntime, Convergence},
    operation::Operation,
    revision::Revision,
};

/// What the store holds at one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The revision.
    pub revision: Revision,
    /// How far the catalog can be trusted.
    pub catalog_state: CatalogState,
    /// The source's revision that was last applied; empty before the first.
    pub source_revision: String,
    /// The greatest outbox sequence; 0 when empty.
    pub event_cursor: i64,
    /// All connectors, by key.
    pub connectors: Vec<Connector>,
    /// The operations that were asked for, by id.
    pub operations: Vec<Operation>,
}

/// What the store holds for one scope, at one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopedSnapshot {
    /// The market; of the operations only the scope's own.
    pub market: Snapshot,
    /// The account's authorizations, by connector; none when signed out.
    pub projections: Vec<AuthorizationProjection>,
    /// The scope's convergences on this node, by connector.
    pub convergences: Vec<Convergence>,
}

/// A snapshot with the derived runtime state of each connector, filtered for a reader.
#[derive(Clone, Debug, PartialEq)]
pub struct PublicSnapshot {
    /// As in [`Snapshot`].
    pub revision: Revision,
    /// As in [`Snapshot`].
    pub catalog_state: CatalogState,
    /// As in [`Snapshot`].
    pub event_cursor: i64,
    /// The visible connectors; the runtime is there for installed ones.
    pub connectors: Vec<(Connector, Option<ConnectorRuntime>)>,
    /// The visible operations.
    pub operations: Vec<Operation>,
}
