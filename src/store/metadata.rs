//! `metadata`: the one row of counters that every commit goes through.

use sqlx::AnyConnection;

use super::{
    codec::{self, Cells},
    dialect::{Dialect, Statement, announcing, locking},
    outbox,
};
use crate::domain::{catalog::CatalogState, error::Error, revision::Revision};

macro_rules! get {
    () => {
        "SELECT revision, catalog_state, source_revision, event_sequence FROM metadata WHERE id = 1"
    };
}

macro_rules! replace {
    () => {
        "UPDATE metadata \
         SET revision = $1, catalog_state = $2, source_revision = $3, event_sequence = $4 \
         WHERE id = 1 AND revision = $5 AND event_sequence = $6"
    };
}

const GET: &str = get!();
const TAKE_TURN: Statement = locking!(get!());
const REPLACE: &str = replace!();
const REPLACE_AND_ANNOUNCE: Statement = announcing!(replace!());
/// The same with the events that a commit mostly has, one or two, in one round trip:
/// others wait for their turn meanwhile.
const REPLACE_WITH_ONE: Statement = announcing!(concat!(
    "WITH added AS (INSERT INTO outbox (sequence, document) VALUES ($7, $8)) ",
    replace!()
));
const REPLACE_WITH_BOTH: Statement = announcing!(concat!(
    "WITH added AS (INSERT INTO outbox (sequence, document) VALUES ($7, $8), ($9, $10)) ",
    replace!()
));

/// The row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) revision: Revision,
    pub(super) catalog_state: CatalogState,
    pub(super) source_revision: String,
    /// The last sequence that was given out. It is the event cursor too, so that
    /// the cursor does not fall back when published events are forgotten.
    pub(super) event_sequence: i64,
}

pub(super) async fn get(conn: &mut AnyConnection) -> Result<Metadata, Error> {
    read(conn, GET).await
}

/// Waits until no other transaction of any daemon writes, and reads what they left.
pub(super) async fn take_turn(conn: &mut AnyConnection, dialect: Dialect) -> Result<Metadata, Error> {
    read(conn, dialect.text(TAKE_TURN)).await
}

async fn read(conn: &mut AnyConnection, statement: &'static str) -> Result<Metadata, Error> {
    let row = sqlx::query(statement).fetch_optional(conn).await?.ok_or_else(|| {
        Error::unavailable("the database has lost its counters; restore it from a backup")
            .with_retryable(false)
    })?;
    let cells = Cells::single("metadata", &row);
    Ok(Metadata {
        revision: Revision(cells.number("revision")?),
        catalog_state: cells.word("catalog_state")?,
        source_revision: cells.text("source_revision")?.to_owned(),
        event_sequence: cells.number("event_sequence")?,
    })
}

impl Metadata {
    /// Whether there are events after those of `older`.
    pub(super) fn announces(&self, older: &Self) -> bool {
        self.event_sequence != older.event_sequence
    }
}

/// Writes `new` where `old` is still there; tells whether it was. `events` are those
/// between the two, and announced with the commit.
pub(super) async fn replace(
    conn: &mut AnyConnection,
    dialect: Dialect,
    old: &Metadata,
    new: &Metadata,
    events: &[outbox::Row],
) -> Result<bool, Error> {
    let (statement, together): (&'static str, &[outbox::Row]) = match events {
        [] => (REPLACE, &[]),
        [_] if dialect.writes_two_tables() => (dialect.text(REPLACE_WITH_ONE), events),
        [_, _] if dialect.writes_two_tables() => (dialect.text(REPLACE_WITH_BOTH), events),
        _ => {
            outbox::add(conn, events).await?;
            (dialect.text(REPLACE_AND_ANNOUNCE), &[])
        }
    };
    let mut statement = sqlx::query(statement)
        .bind(codec::number(new.revision.0)?)
        .bind(codec::word(&new.catalog_state)?)
        .bind(&new.source_revision)
        .bind(new.event_sequence)
        .bind(codec::number(old.revision.0)?)
        .bind(old.event_sequence);
    for event in together {
        statement = statement.bind(event.sequence).bind(&event.document);
    }
    let written = statement.execute(conn).await?;
    Ok(written.rows_affected() == 1)
}
