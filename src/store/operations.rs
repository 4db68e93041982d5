//! `operations`: durable commands, one active a lane, each claimed by a token.

use std::time::Duration;

use sqlx::{AnyConnection, any::AnyRow};

use super::{
    codec::{self, Cells},
    dialect::{Dialect, Statement, locking, timed},
};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        id::{AccountId, ClientRequestId, ConnectorKey, OperationId, WorkerId},
        lease::LeaseToken,
        operation::{Operation, OperationKind, OperationState},
        timestamp::Timestamp,
    },
    ports::OperationLease,
};

const TABLE: &str = "operations";

/// The columns that make an [`Operation`].
macro_rules! columns {
    () => {
        "operation_id, document, lease_owner, lease_token, lease_expires_at"
    };
}

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT ", columns!(), " FROM operations ", $rest)
    };
}

const GET: &str = select!("WHERE operation_id = $1");
const HOLD: Statement = locking!(select!("WHERE operation_id = $1"));
const BY_CLIENT_REQUEST: Statement = locking!(select!("WHERE owner = $1 AND client_request_id = $2"));
const ACTIVE_IN_LANE: Statement = locking!(select!("WHERE lane = $1 AND state IN ('accepted', 'running')"));
const ACTIVE: &str = select!("WHERE state IN ('accepted', 'running') ORDER BY operation_id");
const PUBLIC: &str = select!("WHERE kind <> 'reconcile_runtime' ORDER BY operation_id");
const OWN: &str = select!(
    "WHERE owner = $1 AND visibility = 'account' AND kind <> 'reconcile_runtime' ORDER BY operation_id"
);
const SESSION_OPEN: &str = select!("WHERE session_open = 1 AND owner = $1 ORDER BY operation_id");
const TAKEN: &str = "SELECT operation_id FROM operations \
     WHERE owner = $1 AND client_request_id = $2 AND operation_id <> $3";
const LANE_TAKEN: &str = "SELECT operation_id FROM operations \
     WHERE lane = $1 AND state IN ('accepted', 'running') AND operation_id <> $2";
const SAVE: &str = "INSERT INTO operations (operation_id, client_request_id, owner, visibility, lane, kind, \
     state, updated_at, document, session_open, lease_owner, lease_token, lease_expires_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0, $12) \
     ON CONFLICT (operation_id) DO UPDATE SET client_request_id = excluded.client_request_id, \
     owner = excluded.owner, visibility = excluded.visibility, lane = excluded.lane, kind = excluded.kind, \
     state = excluded.state, updated_at = excluded.updated_at, document = excluded.document, \
     session_open = excluded.session_open";
const SAVE_CLAIMED: &str = "UPDATE operations SET client_request_id = $2, owner = $3, visibility = $4, lane = $5, \
     kind = $6, state = $7, updated_at = $8, document = $9, session_open = $10, \
     lease_owner = CASE WHEN $7 IN ('completed', 'failed') THEN NULL ELSE lease_owner END, \
     lease_expires_at = CASE WHEN $7 IN ('completed', 'failed') THEN NULL ELSE lease_expires_at END \
     WHERE operation_id = $1 AND COALESCE(lease_owner, '') = $11 AND lease_token = $12";
macro_rules! claim {
    ($now:expr) => {
        concat!(
            "UPDATE operations SET lease_owner = $2, lease_token = lease_token + 1, lease_expires_at = ",
            $now,
            " + $3 WHERE operation_id = $1 AND state IN ('accepted', 'running') \
             AND (lease_expires_at IS NULL OR lease_expires_at <= ",
            $now,
            ") RETURNING ",
            columns!()
        )
    };
}

const CLAIM: Statement = timed!(claim, "$4");
const RENEW: &str = "UPDATE operations SET lease_expires_at = $4 \
     WHERE operation_id = $1 AND lease_owner = $2 AND lease_token = $3 AND lease_expires_at > $5";
const RELEASE: &str = "UPDATE operations SET lease_owner = NULL, lease_expires_at = NULL \
     WHERE operation_id = $1 AND lease_owner = $2 AND lease_token = $3";

pub(super) async fn get(conn: &mut AnyConnection, id: &OperationId) -> Result<Option<Operation>, Error> {
    let row = sqlx::query(GET).bind(id.as_str()).fetch_optional(conn).await?;
    row.as_ref().map(decode).transpose()
}

/// As [`get`], within a transaction that writes: nobody claims it meanwhile.
pub(super) async fn hold(
    conn: &mut AnyConnection,
    dialect: Dialect,
    id: &OperationId,
) -> Result<Option<Operation>, Error> {
    let row = sqlx::query(dialect.text(HOLD)).bind(id.as_str()).fetch_optional(conn).await?;
    row.as_ref().map(decode).transpose()
}

/// Held as by [`hold`].
pub(super) async fn by_client_request(
    conn: &mut AnyConnection,
    dialect: Dialect,
    owner: Option<&AccountId>,
    id: &ClientRequestId,
) -> Result<Option<Operation>, Error> {
    let owner = owner.map_or("", AccountId::as_str);
    let row = sqlx::query(dialect.text(BY_CLIENT_REQUEST))
        .bind(owner)
        .bind(id.as_str())
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(decode).transpose()
}

/// Held as by [`hold`].
pub(super) async fn active_in_lane(
    conn: &mut AnyConnection,
    dialect: Dialect,
    lane: Option<&ConnectorKey>,
) -> Result<Option<Operation>, Error> {
    let lane = lane.map_or("", ConnectorKey::as_str);
    let row = sqlx::query(dialect.text(ACTIVE_IN_LANE)).bind(lane).fetch_optional(conn).await?;
    row.as_ref().map(decode).transpose()
}

/// All that have not ended, by id.
pub(super) async fn active(conn: &mut AnyConnection) -> Result<Vec<Operation>, Error> {
    list(conn, ACTIVE).await
}

/// All that were asked for, by id.
pub(super) async fn public(conn: &mut AnyConnection) -> Result<Vec<Operation>, Error> {
    list(conn, PUBLIC).await
}

/// Those that an account asked for, by id.
pub(super) async fn own(conn: &mut AnyConnection, owner: &AccountId) -> Result<Vec<Operation>, Error> {
    codec::decode_all(sqlx::query(OWN).bind(owner.as_str()).fetch_all(conn).await?, decode).await
}

/// Those of an owner whose authorization attempt is open, by id.
pub(super) async fn with_open_session(
    conn: &mut AnyConnection,
    owner: Option<&AccountId>,
) -> Result<Vec<Operation>, Error> {
    let owner = owner.map_or("", AccountId::as_str);
    codec::decode_all(sqlx::query(SESSION_OPEN).bind(owner).fetch_all(conn).await?, decode).await
}

async fn list(conn: &mut AnyConnection, statement: &'static str) -> Result<Vec<Operation>, Error> {
    codec::decode_all(sqlx::query(statement).fetch_all(conn).await?, decode).await
}

/// Writes an operation. The lease columns are the claim's: a save leaves them alone,
/// so that it can neither shorten nor revive a lease, but one that ends the operation
/// ends its lease.
///
/// `known_free` says that lane and client request were found free in this transaction.
pub(super) async fn save(
    conn: &mut AnyConnection,
    operation: &Operation,
    known_free: bool,
) -> Result<(), Error> {
    let claimed = operation.lease_token > LeaseToken(0);
    // The unique indexes hold in any case; asking first gives the refusal its name,
    // which the databases do not do alike. One that was claimed is in its lane.
    if !claimed && !known_free {
        refuse_taken(conn, operation).await?;
    }
    let mut stored = operation.clone();
    keep_resolved_session(conn, &mut stored).await?;
    let lease = stored.lease.take();
    let token = std::mem::take(&mut stored.lease_token);
    let id = operation.operation_id.as_str();
    let document = codec::document(TABLE, id, &stored)?;
    let statement = sqlx::query(if claimed { SAVE_CLAIMED } else { SAVE })
        .bind(id)
        .bind(operation.client_request_id.as_str())
        .bind(owner(operation))
        .bind(operation.visibility.as_str())
        .bind(lane(operation))
        .bind(operation.kind.as_str())
        .bind(state(operation))
        .bind(operation.updated_at.0)
        .bind(document)
        .bind(i64::from(stored.open_session().is_some()));
    if claimed {
        let owner = lease.as_ref().map_or("", |lease| lease.owner.as_str());
        let written = statement.bind(owner).bind(codec::number(token.0)?).execute(conn).await?;
        return match written.rows_affected() {
            1 => Ok(()),
            _ => Err(lease_lost(id)),
        };
    }
    let owner = lease.as_ref().map(|lease| lease.owner.as_str());
    let expires_at = lease.as_ref().map(|lease| lease.expires_at.0);
    statement.bind(owner).bind(expires_at).execute(conn).await?;
    Ok(())
}

/// Leaves an authorization attempt that is stored as resolved as it is stored,
/// whatever a late writer thinks of it.
async fn keep_resolved_session(conn: &mut AnyConnection, operation: &mut Operation) -> Result<(), Error> {
    if operation.kind != OperationKind::StartAuthorization {
        return Ok(());
    }
    let before = get(conn, &operation.operation_id).await?;
    let session = before.and_then(|before| before.execution.authorization_session);
    if let Some(session) = session.filter(|session| session.is_resolved()) {
        operation.execution.authorization_session = Some(session);
    }
    Ok(())
}

async fn refuse_taken(conn: &mut AnyConnection, operation: &Operation) -> Result<(), Error> {
    let id = operation.operation_id.as_str();
    if operation.is_active() {
        let taken = sqlx::query(LANE_TAKEN).bind(lane(operation)).bind(id).fetch_optional(&mut *conn).await?;
        if taken.is_some() {
            let lane = operation.connector_key.as_ref().map_or("the catalog", ConnectorKey::as_str);
            return Err(Error::new(
                ErrorCode::OperationInProgress,
                format!("another operation on {lane} has not ended; wait for it"),
            ));
        }
    }
    let taken = sqlx::query(TAKEN)
        .bind(owner(operation))
        .bind(operation.client_request_id.as_str())
        .bind(id)
        .fetch_optional(conn)
        .await?;
    match taken {
        None => Ok(()),
        Some(_) => Err(Error::invalid_request(
            "the clientRequestId stands for another command already; use a new one for a new command",
        )),
    }
}

pub(super) async fn claim(
    conn: &mut AnyConnection,
    id: &OperationId,
    owner: &WorkerId,
    duration: Duration,
    (dialect, now): (Dialect, Option<Timestamp>),
) -> Result<Option<Operation>, Error> {
    let rows = sqlx::query(dialect.text(CLAIM))
        .bind(id.as_str())
        .bind(owner.as_str())
        .bind(codec::milliseconds(duration))
        .bind(now.map(|now| now.0))
        .fetch_all(conn)
        .await?;
    rows.first().map(decode).transpose()
}

pub(super) async fn renew(
    conn: &mut AnyConnection,
    lease: &OperationLease,
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    let renewed = sqlx::query(RENEW)
        .bind(lease.operation_id.as_str())
        .bind(lease.owner.as_str())
        .bind(codec::number(lease.token.0)?)
        .bind(expires_at.0)
        .bind(now.0)
        .execute(conn)
        .await?;
    match renewed.rows_affected() {
        1 => Ok(()),
        _ => Err(lease_lost(lease.operation_id.as_str())),
    }
}

pub(super) async fn release(conn: &mut AnyConnection, lease: &OperationLease) -> Result<(), Error> {
    sqlx::query(RELEASE)
        .bind(lease.operation_id.as_str())
        .bind(lease.owner.as_str())
        .bind(codec::number(lease.token.0)?)
        .execute(conn)
        .await?;
    Ok(())
}

fn owner(operation: &Operation) -> &str {
    operation.owner_account_id.as_ref().map_or("", AccountId::as_str)
}

fn lane(operation: &Operation) -> &str {
    operation.connector_key.as_ref().map_or("", ConnectorKey::as_str)
}

fn state(operation: &Operation) -> &'static str {
    match operation.state {
        OperationState::Accepted => "accepted",
        OperationState::Running { .. } => "running",
        OperationState::Completed => "completed",
        OperationState::Failed { .. } => "failed",
    }
}

fn lease_lost(id: &str) -> Error {
    Error::new(
        ErrorCode::LeaseLost,
        format!("the lease of operation {id} is over or held by another worker; its work was not stored"),
    )
}

fn decode(row: &AnyRow) -> Result<Operation, Error> {
    let cells = Cells::keyed(TABLE, row, "operation_id")?;
    let mut operation: Operation = cells.document("document")?;
    (operation.lease_token, operation.lease) = cells.lease()?;
    Ok(operation)
}
