//! Everything at one revision, from one read transaction.

use sqlx::AnyConnection;

use super::{connectors, metadata, operations};
use crate::domain::{error::Error, snapshot::Snapshot};

/// Reads within the transaction of `conn`.
pub(super) async fn read(conn: &mut AnyConnection) -> Result<Snapshot, Error> {
    let metadata = metadata::get(&mut *conn).await?;
    let connectors = connectors::list(&mut *conn).await?;
    let operations = operations::public(conn).await?;
    Ok(Snapshot {
        revision: metadata.revision,
        catalog_state: metadata.catalog_state,
        source_revision: metadata.source_revision,
        event_cursor: metadata.event_sequence,
        connectors,
        operations,
    })
}
