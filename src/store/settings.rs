//! `settings`: values of the daemon itself.

use sqlx::AnyConnection;

use super::codec::Cells;
use crate::domain::error::Error;

const GET: &str = "SELECT name, value FROM settings WHERE name = $1";
const SET: &str = "INSERT INTO settings (name, value) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";

pub(super) async fn get(conn: &mut AnyConnection, name: &str) -> Result<Option<String>, Error> {
    let row = sqlx::query(GET).bind(name).fetch_optional(conn).await?;
    row.map(|row| Ok(Cells::keyed("settings", &row, "name")?.text("value")?.to_owned())).transpose()
}

pub(super) async fn set(conn: &mut AnyConnection, name: &str, value: &str) -> Result<(), Error> {
    sqlx::query(SET).bind(name).bind(value).execute(conn).await?;
    Ok(())
}
