//! `authorization_projections` and `authorization_revisions`: what accounts hold.

use sqlx::{AnyConnection, any::AnyRow};

use super::codec::{self, Cells};
use crate::domain::{
    authorization::AuthorizationProjection,
    error::Error,
    id::{AccountId, ConnectorKey},
};

const TABLE: &str = "authorization_projections";
const GET: &str = "SELECT connector_key, document FROM authorization_projections \
     WHERE account = $1 AND connector_key = $2";
const LIST: &str = "SELECT connector_key, document FROM authorization_projections \
     WHERE account = $1 ORDER BY connector_key";
const SAVE: &str = "INSERT INTO authorization_projections (account, connector_key, document) VALUES ($1, $2, $3) \
     ON CONFLICT (account, connector_key) DO UPDATE SET document = excluded.document";
const GET_REVISION: &str = "SELECT revision FROM authorization_revisions WHERE account = $1";
const SAVE_REVISION: &str = "INSERT INTO authorization_revisions (account, revision) VALUES ($1, $2) \
     ON CONFLICT (account) DO UPDATE SET revision = excluded.revision";

pub(super) async fn get(
    conn: &mut AnyConnection,
    account: &AccountId,
    key: &ConnectorKey,
) -> Result<Option<AuthorizationProjection>, Error> {
    let row = sqlx::query(GET).bind(account.as_str()).bind(key.as_str()).fetch_optional(conn).await?;
    row.as_ref().map(decode).transpose()
}

/// All of an account, by connector.
pub(super) async fn list(
    conn: &mut AnyConnection,
    account: &AccountId,
) -> Result<Vec<AuthorizationProjection>, Error> {
    codec::decode_all(sqlx::query(LIST).bind(account.as_str()).fetch_all(conn).await?, decode).await
}

pub(super) async fn save(
    conn: &mut AnyConnection,
    projection: &AuthorizationProjection,
) -> Result<(), Error> {
    let key = projection.connector_key.as_str();
    sqlx::query(SAVE)
        .bind(projection.account_id.as_str())
        .bind(key)
        .bind(codec::document(TABLE, key, projection)?)
        .execute(conn)
        .await?;
    Ok(())
}

pub(super) async fn revision(conn: &mut AnyConnection, account: &AccountId) -> Result<Option<u64>, Error> {
    let row = sqlx::query(GET_REVISION).bind(account.as_str()).fetch_optional(conn).await?;
    row.map(|row| Cells::single("authorization_revisions", &row).number("revision")).transpose()
}

pub(super) async fn save_revision(
    conn: &mut AnyConnection,
    account: &AccountId,
    revision: u64,
) -> Result<(), Error> {
    let revision = codec::number(revision)?;
    sqlx::query(SAVE_REVISION).bind(account.as_str()).bind(revision).execute(conn).await?;
    Ok(())
}

fn decode(row: &AnyRow) -> Result<AuthorizationProjection, Error> {
    Cells::keyed(TABLE, row, "connector_key")?.document("document")
}
