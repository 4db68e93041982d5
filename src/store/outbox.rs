//! `outbox`: what was announced with a change, and whether it was passed on.

use sqlx::AnyConnection;

use super::{
    codec::{self, Cells},
    metadata::Metadata,
    operations,
};
use crate::domain::{
    error::Error,
    event::{ChangedEvent, OutboxEvent},
    operation::Visibility,
    timestamp::Timestamp,
};

const TABLE: &str = "outbox";
const ADD: &str = "INSERT INTO outbox (sequence, document) VALUES ($1, $2)";
const PENDING: &str = "SELECT CAST(sequence AS TEXT) AS position, document FROM outbox WHERE published_at IS NULL \
     ORDER BY sequence LIMIT $1";
const MARK: &str = "UPDATE outbox SET published_at = $2 WHERE sequence = $1 AND published_at IS NULL";

/// Never more than this many at once.
const MOST_PENDING: u32 = 500;

/// Adds the owner's copy, where the operation behind the change has one who may see
/// it, and then the machine's, which names neither operation nor owner (spec E.7).
pub(super) async fn enqueue(
    conn: &mut AnyConnection,
    metadata: &mut Metadata,
    changed: &ChangedEvent,
) -> Result<(), Error> {
    let operation = match &changed.operation_id {
        Some(id) => operations::get(&mut *conn, id).await?,
        None => None,
    };
    if let Some(operation) = operation.filter(|operation| operation.visibility == Visibility::Account) {
        let owners = OutboxEvent {
            sequence: 0,
            connector_key: changed.connector_key.clone(),
            operation_id: Some(operation.operation_id),
            owner_account_id: operation.owner_account_id,
            visibility: Visibility::Account,
            revision: changed.revision,
        };
        add(&mut *conn, metadata, owners).await?;
    }
    let machines = OutboxEvent {
        sequence: 0,
        connector_key: changed.connector_key.clone(),
        operation_id: None,
        owner_account_id: None,
        visibility: Visibility::SystemPrivate,
        revision: changed.revision,
    };
    add(conn, metadata, machines).await
}

/// Takes the next sequence. It becomes durable with the transaction, and with it alone.
async fn add(conn: &mut AnyConnection, metadata: &mut Metadata, mut event: OutboxEvent) -> Result<(), Error> {
    event.sequence = metadata
        .event_sequence
        .checked_add(1)
        .ok_or_else(|| Error::unavailable("the sequence of events is exhausted").with_retryable(false))?;
    let document = codec::document(TABLE, &event.sequence.to_string(), &event)?;
    sqlx::query(ADD).bind(event.sequence).bind(document).execute(conn).await?;
    metadata.event_sequence = event.sequence;
    Ok(())
}

/// What was not yet passed on, in order.
pub(super) async fn pending(conn: &mut AnyConnection, limit: u32) -> Result<Vec<OutboxEvent>, Error> {
    let rows = sqlx::query(PENDING).bind(i64::from(limit.min(MOST_PENDING))).fetch_all(conn).await?;
    rows.iter().map(|row| Cells::keyed(TABLE, row, "position")?.document("document")).collect()
}

/// Notes that an event was passed on; the first note stands.
pub(super) async fn mark(conn: &mut AnyConnection, sequence: i64, now: Timestamp) -> Result<(), Error> {
    sqlx::query(MARK).bind(sequence).bind(now.0).execute(conn).await?;
    Ok(())
}
