//! `convergences`: what routes should be and were seen to be, kept apart by node.

use std::time::Duration;

use sqlx::{AnyConnection, any::AnyRow};

use super::{
    codec::{self, Cells},
    dialect::{Dialect, Statement, timed},
};
use crate::{
    domain::{
        convergence::Convergence,
        error::{Error, ErrorCode},
        id::{AccountId, BootEpoch, ConnectorKey, NodeId, WorkerId},
        operation::OperationScope,
        timestamp::Timestamp,
    },
    ports::ConvergenceLease,
};

const TABLE: &str = "convergences";

macro_rules! columns {
    () => {
        "connector_key, document, lease_owner, lease_token, lease_expires_at"
    };
}

macro_rules! select {
    ($($rest:expr),+) => {
        concat!("SELECT ", columns!(), " FROM convergences WHERE node_id = $1 AND account = $2 ", $($rest),+)
    };
}

/// Not converged in this boot, not backing off, not leased: [`Convergence::is_due`].
macro_rules! due {
    ($now:expr) => {
        concat!(
            "AND (observed_generation <> desired_generation OR observed_epoch <> $3) AND next_attempt_at <= ",
            $now,
            " AND (lease_expires_at IS NULL OR lease_expires_at <= ",
            $now,
            ") "
        )
    };
}

const GET: &str = select!("AND connector_key = $3");
const LIST: &str = select!("ORDER BY connector_key");
const DUE: &str = select!(due!("$4"), "ORDER BY next_attempt_at, connector_key LIMIT $5");
const SAVE: &str = "INSERT INTO convergences (node_id, account, connector_key, desired_generation, \
     observed_generation, observed_epoch, next_attempt_at, document, lease_token) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
     ON CONFLICT (node_id, account, connector_key) DO UPDATE SET \
     desired_generation = excluded.desired_generation, observed_generation = excluded.observed_generation, \
     observed_epoch = excluded.observed_epoch, next_attempt_at = excluded.next_attempt_at, \
     document = excluded.document, lease_owner = NULL, lease_expires_at = NULL, \
     lease_token = CASE WHEN excluded.lease_token > convergences.lease_token \
     THEN excluded.lease_token ELSE convergences.lease_token + 1 END \
     WHERE excluded.desired_generation >= convergences.desired_generation";
macro_rules! save_leased {
    ($now:expr) => {
        concat!(
            "UPDATE convergences SET observed_generation = $5, observed_epoch = $6, \
             next_attempt_at = $7, document = $8, lease_owner = NULL, lease_expires_at = NULL \
             WHERE node_id = $1 AND account = $2 AND connector_key = $3 AND desired_generation = $4 \
             AND lease_owner = $9 AND lease_token = $10 AND lease_expires_at > ",
            $now
        )
    };
}

const SAVE_LEASED: Statement = timed!(save_leased, "$11");
const DELETE: &str = "DELETE FROM convergences WHERE node_id = $1 AND account = $2 AND connector_key = $3";
macro_rules! claim {
    ($now:expr) => {
        concat!(
            "UPDATE convergences SET lease_owner = $6, lease_token = lease_token + 1, lease_expires_at = ",
            $now,
            " + $7 WHERE node_id = $1 AND account = $2 AND connector_key = $5 ",
            due!($now),
            "RETURNING ",
            columns!()
        )
    };
}

const CLAIM: Statement = timed!(claim, "$4");
const RENEW: &str = "UPDATE convergences SET lease_expires_at = $7 \
     WHERE node_id = $1 AND account = $2 AND connector_key = $3 AND desired_generation = $4 \
     AND lease_owner = $5 AND lease_token = $6 AND lease_expires_at > $8";
const RELEASE: &str = "UPDATE convergences SET lease_owner = NULL, lease_expires_at = NULL \
     WHERE node_id = $1 AND account = $2 AND connector_key = $3 AND lease_owner = $4 AND lease_token = $5";

/// Never more than this many at once.
const MOST_DUE: u32 = 100;

pub(super) async fn get(
    conn: &mut AnyConnection,
    node: &NodeId,
    scope: &OperationScope,
    key: &ConnectorKey,
) -> Result<Option<Convergence>, Error> {
    let row = sqlx::query(GET)
        .bind(node.as_str())
        .bind(account(scope))
        .bind(key.as_str())
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(decode).transpose()
}

/// All of a scope, by key.
pub(super) async fn list(
    conn: &mut AnyConnection,
    node: &NodeId,
    scope: &OperationScope,
) -> Result<Vec<Convergence>, Error> {
    let rows = sqlx::query(LIST).bind(node.as_str()).bind(account(scope)).fetch_all(conn).await?;
    rows.iter().map(decode).collect()
}

/// Those that want work at `now`, the longest waiting first.
pub(super) async fn due(
    conn: &mut AnyConnection,
    node: &NodeId,
    scope: &OperationScope,
    boot_epoch: &BootEpoch,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Convergence>, Error> {
    let rows = sqlx::query(DUE)
        .bind(node.as_str())
        .bind(account(scope))
        .bind(boot_epoch.as_str())
        .bind(now.0)
        .bind(i64::from(limit.min(MOST_DUE)))
        .fetch_all(conn)
        .await?;
    rows.iter().map(decode).collect()
}

/// Writes an intent. Whoever works for the older one has lost its lease, even where
/// the caller forgot to advance the token.
pub(super) async fn save(
    conn: &mut AnyConnection,
    node: &NodeId,
    convergence: &Convergence,
) -> Result<(), Error> {
    let desired = &convergence.desired;
    let written = sqlx::query(SAVE)
        .bind(node.as_str())
        .bind(account(&desired.scope))
        .bind(desired.connector_key.as_str())
        .bind(codec::number(desired.generation)?)
        .bind(observed_generation(convergence)?)
        .bind(observed_epoch(convergence))
        .bind(convergence.next_attempt_at.0)
        .bind(document(convergence)?)
        .bind(codec::number(convergence.lease_token.0)?)
        .execute(conn)
        .await?;
    match written.rows_affected() {
        1 => Ok(()),
        _ => Err(Error::new(
            ErrorCode::RevisionConflict,
            format!("a newer intent for {} is stored already; read it and plan again", desired.connector_key),
        )),
    }
}

/// Writes the outcome of work done under `lease`, which ends with it. `now` as
/// [`Dialect::given`] has it.
pub(super) async fn save_leased(
    conn: &mut AnyConnection,
    node: &NodeId,
    convergence: &Convergence,
    lease: &ConvergenceLease,
    (dialect, now): (Dialect, Option<Timestamp>),
) -> Result<(), Error> {
    let desired = &convergence.desired;
    let same = desired.scope == lease.scope
        && desired.connector_key == lease.connector_key
        && desired.generation == lease.desired_generation;
    if !same {
        return Err(lease_lost(&lease.connector_key));
    }
    let written = sqlx::query(dialect.text(SAVE_LEASED))
        .bind(node.as_str())
        .bind(account(&lease.scope))
        .bind(lease.connector_key.as_str())
        .bind(codec::number(lease.desired_generation)?)
        .bind(observed_generation(convergence)?)
        .bind(observed_epoch(convergence))
        .bind(convergence.next_attempt_at.0)
        .bind(document(convergence)?)
        .bind(lease.owner.as_str())
        .bind(codec::number(lease.token.0)?)
        .bind(now.map(|now| now.0))
        .execute(conn)
        .await?;
    match written.rows_affected() {
        1 => Ok(()),
        _ => Err(lease_lost(&lease.connector_key)),
    }
}

pub(super) async fn delete(
    conn: &mut AnyConnection,
    node: &NodeId,
    scope: &OperationScope,
    key: &ConnectorKey,
) -> Result<(), Error> {
    sqlx::query(DELETE).bind(node.as_str()).bind(account(scope)).bind(key.as_str()).execute(conn).await?;
    Ok(())
}

/// A claim that is being made.
pub(super) struct Claim<'a> {
    pub(super) scope: &'a OperationScope,
    pub(super) key: &'a ConnectorKey,
    pub(super) boot_epoch: &'a BootEpoch,
    pub(super) owner: &'a WorkerId,
    pub(super) duration: Duration,
}

pub(super) async fn claim(
    conn: &mut AnyConnection,
    node: &NodeId,
    claim: &Claim<'_>,
    (dialect, now): (Dialect, Option<Timestamp>),
) -> Result<Option<Convergence>, Error> {
    let rows = sqlx::query(dialect.text(CLAIM))
        .bind(node.as_str())
        .bind(account(claim.scope))
        .bind(claim.boot_epoch.as_str())
        .bind(now.map(|now| now.0))
        .bind(claim.key.as_str())
        .bind(claim.owner.as_str())
        .bind(codec::milliseconds(claim.duration))
        .fetch_all(conn)
        .await?;
    rows.first().map(decode).transpose()
}

pub(super) async fn renew(
    conn: &mut AnyConnection,
    node: &NodeId,
    lease: &ConvergenceLease,
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    let renewed = sqlx::query(RENEW)
        .bind(node.as_str())
        .bind(account(&lease.scope))
        .bind(lease.connector_key.as_str())
        .bind(codec::number(lease.desired_generation)?)
        .bind(lease.owner.as_str())
        .bind(codec::number(lease.token.0)?)
        .bind(expires_at.0)
        .bind(now.0)
        .execute(conn)
        .await?;
    match renewed.rows_affected() {
        1 => Ok(()),
        _ => Err(lease_lost(&lease.connector_key)),
    }
}

pub(super) async fn release(
    conn: &mut AnyConnection,
    node: &NodeId,
    lease: &ConvergenceLease,
) -> Result<(), Error> {
    sqlx::query(RELEASE)
        .bind(node.as_str())
        .bind(account(&lease.scope))
        .bind(lease.connector_key.as_str())
        .bind(lease.owner.as_str())
        .bind(codec::number(lease.token.0)?)
        .execute(conn)
        .await?;
    Ok(())
}

fn account(scope: &OperationScope) -> &str {
    scope.account_id.as_ref().map_or("", AccountId::as_str)
}

fn observed_generation(convergence: &Convergence) -> Result<i64, Error> {
    codec::number(convergence.observed.as_ref().map_or(0, |observed| observed.desired_generation))
}

fn observed_epoch(convergence: &Convergence) -> &str {
    convergence.observed.as_ref().map_or("", |observed| observed.boot_epoch.as_str())
}

fn document(convergence: &Convergence) -> Result<String, Error> {
    let mut stored = convergence.clone();
    stored.lease = None;
    stored.lease_token = crate::domain::lease::LeaseToken(0);
    codec::document(TABLE, convergence.desired.connector_key.as_str(), &stored)
}

fn lease_lost(key: &ConnectorKey) -> Error {
    Error::new(
        ErrorCode::LeaseLost,
        format!("the lease on the route of {key} is over, held by another worker, or for an older intent"),
    )
}

fn decode(row: &AnyRow) -> Result<Convergence, Error> {
    let cells = Cells::keyed(TABLE, row, "connector_key")?;
    let mut convergence: Convergence = cells.document("document")?;
    (convergence.lease_token, convergence.lease) = cells.lease()?;
    Ok(convergence)
}
