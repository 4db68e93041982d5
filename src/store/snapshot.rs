//! Everything at one revision, from one read transaction.

use sqlx::AnyConnection;

use super::{authorizations, connectors, convergences, metadata, operations};
use crate::domain::{
    error::Error,
    id::NodeId,
    operation::{Operation, OperationScope},
    snapshot::{ScopedSnapshot, Snapshot},
};

/// Reads within the transaction of `conn`.
pub(super) async fn read(conn: &mut AnyConnection) -> Result<Snapshot, Error> {
    let operations = operations::public(&mut *conn).await?;
    market(conn, operations).await
}

/// Reads what concerns a scope, within the transaction of `conn`.
pub(super) async fn read_scoped(
    conn: &mut AnyConnection,
    node: &NodeId,
    scope: &OperationScope,
) -> Result<ScopedSnapshot, Error> {
    let (operations, projections) = match &scope.account_id {
        Some(account) => {
            (operations::own(&mut *conn, account).await?, authorizations::list(&mut *conn, account).await?)
        }
        None => (Vec::new(), Vec::new()),
    };
    let convergences = convergences::list(&mut *conn, node, scope).await?;
    Ok(ScopedSnapshot { market: market(conn, operations).await?, projections, convergences })
}

async fn market(conn: &mut AnyConnection, operations: Vec<Operation>) -> Result<Snapshot, Error> {
    let metadata = metadata::get(&mut *conn).await?;
    let connectors = connectors::list(conn).await?;
    Ok(Snapshot {
        revision: metadata.revision,
        catalog_state: metadata.catalog_state,
        source_revision: metadata.source_revision,
        event_cursor: metadata.event_sequence,
        connectors,
        operations,
    })
}
