//! `connectors`: what the catalog offers and what is installed of it.

use sqlx::{AnyConnection, any::AnyRow};

use super::codec::{self, Cells};
use crate::domain::{connector::Connector, error::Error, id::ConnectorKey};

const TABLE: &str = "connectors";
const GET: &str = "SELECT connector_key, document FROM connectors WHERE connector_key = $1";
const LIST: &str = "SELECT connector_key, document FROM connectors ORDER BY connector_key";
const SAVE: &str = "INSERT INTO connectors (connector_key, document) VALUES ($1, $2) \
     ON CONFLICT (connector_key) DO UPDATE SET document = excluded.document";
const DELETE: &str = "DELETE FROM connectors WHERE connector_key = $1";

pub(super) async fn get(conn: &mut AnyConnection, key: &ConnectorKey) -> Result<Option<Connector>, Error> {
    let row = sqlx::query(GET).bind(key.as_str()).fetch_optional(conn).await?;
    row.as_ref().map(decode).transpose()
}

/// All, by key.
pub(super) async fn list(conn: &mut AnyConnection) -> Result<Vec<Connector>, Error> {
    codec::decode_all(sqlx::query(LIST).fetch_all(conn).await?, decode).await
}

pub(super) async fn save(conn: &mut AnyConnection, connector: &Connector) -> Result<(), Error> {
    let key = connector.key.as_str();
    sqlx::query(SAVE).bind(key).bind(codec::document(TABLE, key, connector)?).execute(conn).await?;
    Ok(())
}

pub(super) async fn delete(conn: &mut AnyConnection, key: &ConnectorKey) -> Result<(), Error> {
    sqlx::query(DELETE).bind(key.as_str()).execute(conn).await?;
    Ok(())
}

fn decode(row: &AnyRow) -> Result<Connector, Error> {
    Cells::keyed(TABLE, row, "connector_key")?.document("document")
}
