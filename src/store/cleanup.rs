//! Forgetting what has ended, in bounded batches. The predicates stand in the delete
//! as well as in the choice of rows, so that a row which changed meanwhile stays.

use sqlx::AnyConnection;

use crate::{
    domain::error::Error,
    ports::{CleanupRequest, CleanupResult},
};

const OPERATIONS: &str = "DELETE FROM operations WHERE operation_id IN (SELECT operation_id FROM operations \
     WHERE state IN ('completed', 'failed') AND updated_at <= $1 ORDER BY updated_at, operation_id LIMIT $2) \
     AND state IN ('completed', 'failed') AND updated_at <= $1";
const EVENTS: &str = "DELETE FROM outbox WHERE sequence IN (SELECT sequence FROM outbox \
     WHERE published_at IS NOT NULL AND published_at <= $1 ORDER BY published_at, sequence LIMIT $2) \
     AND published_at IS NOT NULL AND published_at <= $1";

/// At most this many of each at once.
const LARGEST_BATCH: u32 = 500;

pub(super) fn check(request: &CleanupRequest) -> Result<(), Error> {
    if (1..=LARGEST_BATCH).contains(&request.batch) {
        Ok(())
    } else {
        Err(Error::invalid_request(format!("a batch of a cleanup is 1 to {LARGEST_BATCH} rows")))
    }
}

pub(super) async fn run(conn: &mut AnyConnection, request: &CleanupRequest) -> Result<CleanupResult, Error> {
    let batch = i64::from(request.batch);
    let operations =
        sqlx::query(OPERATIONS).bind(request.operations_ended_by.0).bind(batch).execute(&mut *conn).await?;
    let events = sqlx::query(EVENTS).bind(request.events_published_by.0).bind(batch).execute(conn).await?;
    Ok(CleanupResult { operations: operations.rows_affected(), events: events.rows_affected() })
}
