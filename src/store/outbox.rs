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
    id::{AccountId, OperationId},
    operation::{Operation, Visibility},
    timestamp::Timestamp,
};

const TABLE: &str = "outbox";
const ADD: &str = "INSERT INTO outbox (sequence, document) VALUES ($1, $2)";
const ADD_BOTH: &str = "INSERT INTO outbox (sequence, document) VALUES ($1, $2), ($3, $4)";
const PENDING: &str = "SELECT CAST(sequence AS TEXT) AS position, document FROM outbox WHERE published_at IS NULL \
     ORDER BY sequence LIMIT $1";
const MARK: &str = "UPDATE outbox SET published_at = $2 WHERE sequence = $1 AND published_at IS NULL";

/// Never more than this many at once.
const MOST_PENDING: u32 = 500;

/// A row that is written when its transaction commits.
pub(super) struct Row {
    pub(super) sequence: i64,
    pub(super) document: String,
}

/// Makes the owner's copy, where the operation behind the change has one who may see
/// it, and then the machine's, which names neither operation nor owner (spec E.7).
/// `saved` is an operation as the same transaction has written it.
pub(super) async fn announce(
    conn: &mut AnyConnection,
    metadata: &mut Metadata,
    saved: Option<&Owned>,
    changed: &ChangedEvent,
) -> Result<Vec<Row>, Error> {
    let machines = OutboxEvent {
        sequence: 0,
        connector_key: changed.connector_key.clone(),
        operation_id: None,
        owner_account_id: None,
        visibility: Visibility::SystemPrivate,
        revision: changed.revision,
    };
    let owners = behind(conn, saved, changed).await?.map(|owned| OutboxEvent {
        operation_id: Some(owned.operation_id),
        owner_account_id: owned.owner_account_id,
        visibility: Visibility::Account,
        ..machines.clone()
    });
    owners.into_iter().chain([machines]).map(|event| row(metadata, event)).collect()
}

/// Writes rows that were made, in two at a time.
pub(super) async fn add(conn: &mut AnyConnection, rows: &[Row]) -> Result<(), Error> {
    for pair in rows.chunks(2) {
        let mut statement = sqlx::query(if pair.len() == 2 { ADD_BOTH } else { ADD });
        for row in pair {
            statement = statement.bind(row.sequence).bind(&row.document);
        }
        statement.execute(&mut *conn).await?;
    }
    Ok(())
}

/// An operation that its account may see.
#[derive(Clone)]
pub(super) struct Owned {
    operation_id: OperationId,
    owner_account_id: Option<AccountId>,
    visibility: Visibility,
}

impl From<&Operation> for Owned {
    fn from(operation: &Operation) -> Self {
        Self {
            operation_id: operation.operation_id.clone(),
            owner_account_id: operation.owner_account_id.clone(),
            visibility: operation.visibility,
        }
    }
}

/// The operation behind a change, if its account may see it.
async fn behind(
    conn: &mut AnyConnection,
    saved: Option<&Owned>,
    changed: &ChangedEvent,
) -> Result<Option<Owned>, Error> {
    let Some(id) = &changed.operation_id else { return Ok(None) };
    let owned = match saved.filter(|saved| saved.operation_id == *id) {
        Some(saved) => Some(saved.clone()),
        None => operations::get(conn, id).await?.as_ref().map(Owned::from),
    };
    Ok(owned.filter(|owned| owned.visibility == Visibility::Account))
}

/// Gives the event the next sequence. It becomes durable with the transaction, and
/// with it alone.
fn row(metadata: &mut Metadata, mut event: OutboxEvent) -> Result<Row, Error> {
    event.sequence = metadata
        .event_sequence
        .checked_add(1)
        .ok_or_else(|| Error::unavailable("the sequence of events is exhausted").with_retryable(false))?;
    metadata.event_sequence = event.sequence;
    Ok(Row {
        sequence: event.sequence,
        document: codec::document(TABLE, &event.sequence.to_string(), &event)?,
    })
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
