//! `connector_state`: what connectors keep, a small key-value store a connection.

use sqlx::{AnyConnection, Row as _};

use super::codec::Cells;
use crate::{
    domain::{
        error::{Error, ErrorCode},
        id::{AccountId, ConnectorKey},
    },
    ports::{StateChanges, StateScope},
};

const TABLE: &str = "connector_state";

macro_rules! scoped {
    ($start:literal, $rest:literal) => {
        concat!($start, " WHERE account = $1 AND connector_key = $2 AND connection_id = $3", $rest)
    };
}

const GET: &str = scoped!("SELECT state_key, value FROM connector_state", " AND state_key = $4");
const KEYS: &str = scoped!(
    "SELECT state_key FROM connector_state",
    " AND substr(state_key, 1, length($4)) = $4 ORDER BY state_key"
);
const SIZE: &str = scoped!(
    "SELECT CAST(COALESCE(SUM(octet_length(state_key) + octet_length(value)), 0) AS BIGINT) \
     FROM connector_state",
    ""
);
const REMOVE: &str = scoped!("DELETE FROM connector_state", " AND state_key = $4");
const SET: &str = "INSERT INTO connector_state (account, connector_key, connection_id, state_key, value) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (account, connector_key, connection_id, state_key) \
     DO UPDATE SET value = excluded.value";
const FORGET: &str = "DELETE FROM connector_state WHERE connector_key = $1";

pub(super) async fn value(
    conn: &mut AnyConnection,
    scope: &StateScope,
    key: &str,
) -> Result<Option<Vec<u8>>, Error> {
    let row = sqlx::query(GET)
        .bind(account(scope))
        .bind(scope.connector_key.as_str())
        .bind(scope.connection_id.as_str())
        .bind(key)
        .fetch_optional(conn)
        .await?;
    Ok(row.map(|row| row.try_get("value")).transpose()?)
}

/// In byte order.
pub(super) async fn keys(
    conn: &mut AnyConnection,
    scope: &StateScope,
    prefix: &str,
) -> Result<Vec<String>, Error> {
    let rows = sqlx::query(KEYS)
        .bind(account(scope))
        .bind(scope.connector_key.as_str())
        .bind(scope.connection_id.as_str())
        .bind(prefix)
        .fetch_all(conn)
        .await?;
    rows.iter().map(|row| Ok(Cells::keyed(TABLE, row, "state_key")?.text("state_key")?.to_owned())).collect()
}

/// Keys and values, in bytes.
pub(super) async fn size(conn: &mut AnyConnection, scope: &StateScope) -> Result<u64, Error> {
    let row = sqlx::query(SIZE)
        .bind(account(scope))
        .bind(scope.connector_key.as_str())
        .bind(scope.connection_id.as_str())
        .fetch_one(conn)
        .await?;
    let size: i64 = row.try_get(0)?;
    Ok(u64::try_from(size).unwrap_or(0))
}

/// Runs a statement that locks `scope`.
pub(super) async fn lock(
    conn: &mut AnyConnection,
    statement: &'static str,
    scope: &StateScope,
) -> Result<(), Error> {
    sqlx::query(statement)
        .bind(account(scope))
        .bind(scope.connector_key.as_str())
        .bind(scope.connection_id.as_str())
        .execute(conn)
        .await?;
    Ok(())
}

/// Applies `changes` within the transaction of `conn`; an error leaves it to be
/// undone. A scope that is over its quota already, because the quota was lowered,
/// may still shrink.
pub(super) async fn apply(
    conn: &mut AnyConnection,
    scope: &StateScope,
    changes: &StateChanges,
    quota_bytes: u64,
) -> Result<(), Error> {
    let before = size(&mut *conn, scope).await?;
    for (key, value) in changes {
        let statement = sqlx::query(if value.is_some() { SET } else { REMOVE })
            .bind(account(scope))
            .bind(scope.connector_key.as_str())
            .bind(scope.connection_id.as_str())
            .bind(key);
        let statement = match value {
            Some(value) => statement.bind(value.as_slice()),
            None => statement,
        };
        statement.execute(&mut *conn).await?;
    }
    let after = size(conn, scope).await?;
    if after > quota_bytes && after > before {
        return Err(Error::new(
            ErrorCode::CapabilityOutputTooLarge,
            format!(
                "the connector's state would take {after} bytes of {quota_bytes} allowed; nothing was stored"
            ),
        ));
    }
    Ok(())
}

/// Of every account and connection.
pub(super) async fn forget(conn: &mut AnyConnection, key: &ConnectorKey) -> Result<(), Error> {
    sqlx::query(FORGET).bind(key.as_str()).execute(conn).await?;
    Ok(())
}

fn account(scope: &StateScope) -> &str {
    scope.account.as_ref().map_or("", AccountId::as_str)
}
