//! Bringing the tables to what this program knows: forward only, all or nothing,
//! one daemon at a time.
//!
//! A migration that was released is never edited; its checksum is compared at every
//! start.

use std::collections::BTreeSet;

use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, Row as _};

use super::{codec::Cells, dialect::Dialect};
use crate::{
    domain::{digest::Sha256Digest, error::Error},
    ports::Clock,
};

struct Migration {
    name: &'static str,
    text: &'static str,
}

/// In order; the position, counted from 1, is the version.
const MIGRATIONS: [Migration; 3] = [
    Migration { name: "market", text: include_str!("migrations/0001_market.sql") },
    Migration { name: "sandbox", text: include_str!("migrations/0002_sandbox.sql") },
    Migration { name: "authorization", text: include_str!("migrations/0003_authorization.sql") },
];

const TABLE: &str = "portcullis_migrations";
const CREATE_TABLE: &str = "CREATE TABLE portcullis_migrations (
    version BIGINT PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at BIGINT NOT NULL
)";
const APPLIED: &str = "SELECT version, name, checksum FROM portcullis_migrations ORDER BY version";
const APPLY: &str =
    "INSERT INTO portcullis_migrations (version, name, checksum, applied_at) VALUES ($1, $2, $3, $4)";

/// Applies what is missing. Applying nothing is the normal case.
pub(super) async fn run(pool: &AnyPool, dialect: Dialect, clock: Option<&dyn Clock>) -> Result<(), Error> {
    let mut tx = pool.begin_with(dialect.begin_write()).await?;
    if let Some(lock) = dialect.migration_lock() {
        sqlx::raw_sql(lock).execute(&mut *tx).await?;
    }
    let applied = pending(&mut tx, dialect).await?;
    if applied.is_none() {
        sqlx::query(CREATE_TABLE).execute(&mut *tx).await?;
    }
    let now = dialect.now(&mut tx, clock).await?;
    for (version, migration) in (1_i64..).zip(&MIGRATIONS).skip(applied.unwrap_or(0)) {
        sqlx::raw_sql(AssertSqlSafe(dialect.render(migration.text))).execute(&mut *tx).await?;
        sqlx::query(APPLY)
            .bind(version)
            .bind(migration.name)
            .bind(checksum(migration))
            .bind(now.0)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}

/// How many of our migrations a database has; none when it is empty.
///
/// # Errors
/// When it is another program's, a newer program's, or ours but altered.
pub(super) async fn pending(conn: &mut AnyConnection, dialect: Dialect) -> Result<Option<usize>, Error> {
    let rows = sqlx::query(dialect.tables()).fetch_all(&mut *conn).await?;
    let tables: BTreeSet<String> = rows.iter().map(|row| row.try_get("name")).collect::<Result<_, _>>()?;
    if tables.is_empty() {
        return Ok(None);
    }
    if !tables.contains(TABLE) {
        return Err(refuse("the database belongs to another program; name one of its own"));
    }
    let rows = sqlx::query(APPLIED).fetch_all(&mut *conn).await?;
    if rows.len() > MIGRATIONS.len() {
        return Err(refuse(&format!(
            "the database was written by a newer portcullis (schema {}, this one knows {}); upgrade portcullis",
            rows.len(),
            MIGRATIONS.len()
        )));
    }
    for (row, (version, migration)) in rows.iter().zip((1_i64..).zip(&MIGRATIONS)) {
        let cells = Cells::keyed(TABLE, row, "name")?;
        if cells.number::<i64>("version")? != version || cells.text("checksum")? != checksum(migration) {
            return Err(refuse(&format!(
                "migration {version} ({}) of the database is not the one this portcullis has; use the build that wrote it",
                migration.name
            )));
        }
    }
    Ok(Some(rows.len()))
}

fn checksum(migration: &Migration) -> String {
    Sha256Digest::of(migration.text.as_bytes()).to_string()
}

fn refuse(message: &str) -> Error {
    Error::unavailable(message).with_retryable(false)
}
