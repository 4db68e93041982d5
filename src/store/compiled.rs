//! `compiled_components`: the files with native code that this daemon wrote.

use sqlx::AnyConnection;

use super::codec::Cells;
use crate::{
    domain::{digest::Sha256Digest, error::Error},
    ports::CompiledComponent,
};

const GET: &str = "SELECT component_digest, engine_fingerprint, file_digest FROM compiled_components \
     WHERE component_digest = $1 AND engine_fingerprint = $2";
const RECORD: &str = "INSERT INTO compiled_components (component_digest, engine_fingerprint, file_digest) \
     VALUES ($1, $2, $3) ON CONFLICT (component_digest, engine_fingerprint) \
     DO UPDATE SET file_digest = excluded.file_digest";

pub(super) async fn get(
    conn: &mut AnyConnection,
    component_digest: &Sha256Digest,
    engine_fingerprint: &str,
) -> Result<Option<CompiledComponent>, Error> {
    let row = sqlx::query(GET)
        .bind(component_digest.to_string())
        .bind(engine_fingerprint)
        .fetch_optional(conn)
        .await?;
    row.map(|row| {
        let cells = Cells::keyed("compiled_components", &row, "component_digest")?;
        Ok(CompiledComponent {
            component_digest: cells.parsed("component_digest")?,
            engine_fingerprint: cells.text("engine_fingerprint")?.to_owned(),
            file_digest: cells.parsed("file_digest")?,
        })
    })
    .transpose()
}

pub(super) async fn record(conn: &mut AnyConnection, compiled: &CompiledComponent) -> Result<(), Error> {
    sqlx::query(RECORD)
        .bind(compiled.component_digest.to_string())
        .bind(&compiled.engine_fingerprint)
        .bind(compiled.file_digest.to_string())
        .execute(conn)
        .await?;
    Ok(())
}
