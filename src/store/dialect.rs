//! Everything that differs between the databases, and nothing else.
//!
//! # Who waits for whom
//!
//! SQLite has one writer at a time: whatever writes begins with the write lock.
//!
//! PostgreSQL is told to do the same where it matters. Every transaction that reads
//! what it then decides on takes its turn first: it locks the one row of `metadata`
//! ([`locking`]), and sees, in READ COMMITTED, what every turn before it
//! has committed. Writers of all daemons thus wait for one another, which is cheap,
//! where SERIALIZABLE would make them fail and begin again. Beside the turns go:
//!
//! - Single statements that carry their condition (claim, renew, release, mark
//!   published): one that meets a changed row is judged by the changed row.
//! - What a transaction reads of an operation is locked with it, because a claim takes
//!   no turn: otherwise a claim between reading and saving would go on from what the
//!   save has replaced. A convergence needs no such lock; saving one ends its lease.
//! - The state of one connection of a connector, which has a lock of its own: its
//!   quota is counted before and after.
//! - Migrations, which have one too.
//!
//! Whoever holds more than one lock has taken the turn before, so that no two wait
//! for each other. A wait has an end ([`Dialect::session`]), and a conflict that is
//! left is reported as such and tried again.

use sqlx::{
    AnyConnection, Row as _,
    error::{DatabaseError, ErrorKind},
    postgres::PgDatabaseError,
    sqlite::SqliteError,
};

use crate::{
    domain::{error::Error, timestamp::Timestamp},
    ports::{Clock, SystemClock},
};

/// Which database a store talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Embedded, in a file or in memory.
    Sqlite,
    /// A server.
    Postgres,
}

impl Dialect {
    /// Begins a transaction that will write. SQLite takes the write lock at once:
    /// a transaction that reads first and writes later could not wait for it. On
    /// PostgreSQL the first statement must lock what the others rely on.
    pub(super) const fn begin_write(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN ISOLATION LEVEL READ COMMITTED",
        }
    }

    /// Begins a transaction whose reads all see one moment.
    pub(super) const fn begin_read(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN",
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// Keeps other daemons from migrating until the transaction ends, where
    /// beginning it does not already. Another daemon's migration, and one's own, may
    /// take longer than a command.
    pub(super) const fn migration_lock(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some(
                "SET LOCAL lock_timeout = '5min'; SET LOCAL statement_timeout = 0; \
                 SELECT CAST(pg_advisory_xact_lock(7381420256614) AS TEXT)",
            ),
        }
    }

    /// Keeps others from changing the state of one connection (account, connector,
    /// connection) until the transaction ends, where beginning it does not already.
    pub(super) const fn state_lock(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some(
                "SELECT CAST(pg_advisory_xact_lock(hashtextextended( \
                 CONCAT_WS('/', current_schema(), $1, $2, $3), 7381420256615)) AS TEXT)",
            ),
        }
    }

    /// This database's text of a statement.
    pub(super) const fn text(self, statement: Statement) -> &'static str {
        match self {
            Self::Sqlite => statement.sqlite,
            Self::Postgres => statement.postgres,
        }
    }

    /// Whether one statement may write to two tables.
    pub(super) const fn writes_two_tables(self) -> bool {
        matches!(self, Self::Postgres)
    }

    /// The names of the tables that are there.
    pub(super) const fn tables(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite@_%' ESCAPE '@'"
            }
            Self::Postgres => {
                // Whoever they belong to; those of an extension are nobody's program.
                "SELECT CAST(relname AS TEXT) AS name FROM pg_catalog.pg_class \
                 WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema()) \
                 AND relkind IN ('r', 'p') AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_depend \
                 WHERE classid = CAST('pg_class' AS regclass) AND objid = pg_class.oid AND deptype = 'e')"
            }
        }
    }

    /// Answers `ok` for a file whose pages are whole. A server looks after its own.
    pub(super) const fn check(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => Some("PRAGMA quick_check(1)"),
            Self::Postgres => None,
        }
    }

    /// What a new connection is told first.
    ///
    /// SQLite waits 5 s for the write lock, and so does PostgreSQL. A daemon that
    /// hangs, or whose machine has gone, within a transaction gives up its turn after
    /// 10 s, well within a lease; a statement that has not ended after 30 s will
    /// not.
    pub(super) const fn session(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => Some(
                "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                 PRAGMA foreign_keys = ON",
            ),
            Self::Postgres => Some(
                "SET lock_timeout = '5s'; SET statement_timeout = '30s'; \
                 SET idle_in_transaction_session_timeout = '10s'; \
                 SET default_transaction_isolation = 'read committed'",
            ),
        }
    }

    /// What a new connection that only reads is told first.
    pub(super) const fn read_only_session(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => Some("PRAGMA busy_timeout = 5000; PRAGMA query_only = ON"),
            Self::Postgres => Some(
                "SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '10s'; \
                 SET default_transaction_read_only = on",
            ),
        }
    }

    /// A migration's text as this database reads it.
    pub(super) fn render(self, migration: &str) -> String {
        let (key, bytes) = match self {
            Self::Sqlite => ("TEXT", "BLOB"),
            Self::Postgres => ("TEXT COLLATE \"C\"", "BYTEA"),
        };
        migration.replace("{key}", key).replace("{bytes}", bytes)
    }

    /// The time that a statement is given; none where the server looks at its own clock.
    pub(super) fn given(self, clock: Option<&dyn Clock>) -> Option<Timestamp> {
        match (clock, self) {
            (Some(clock), _) => Some(clock.now()),
            (None, Self::Sqlite) => Some(SystemClock.now()),
            (None, Self::Postgres) => None,
        }
    }

    /// The time of `clock`, and without one the database's own. An embedded database
    /// has the machine's.
    pub(super) async fn now(
        self,
        conn: &mut AnyConnection,
        clock: Option<&dyn Clock>,
    ) -> Result<Timestamp, Error> {
        const NOW: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
        match self.given(clock) {
            Some(now) => Ok(now),
            None => Ok(Timestamp(sqlx::query(NOW).fetch_one(conn).await?.try_get(0)?)),
        }
    }
}

/// A statement that the databases do not word alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

/// The [`Statement`] of a query within a transaction that writes: what it finds stays
/// as it is until the transaction ends.
macro_rules! locking {
    ($($query:tt)+) => {
        $crate::store::dialect::Statement {
            sqlite: $($query)+,
            postgres: concat!($($query)+, " FOR UPDATE"),
        }
    };
}

pub(super) use locking;

/// The [`Statement`] of a query over the time, which is the parameter that
/// [`Dialect::given`] fills, and without one the server's own.
macro_rules! timed {
    ($query:ident, $parameter:literal) => {
        $crate::store::dialect::Statement {
            sqlite: $query!($parameter),
            postgres: $query!(concat!(
                "COALESCE(CAST(",
                $parameter,
                " AS BIGINT), CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT))"
            )),
        }
    };
}

pub(super) use timed;

/// Where a commit is told of: within the database, and apart from other schemas.
macro_rules! channel {
    () => {
        "'portcullis_' || (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())"
    };
}

/// Asks PostgreSQL for the name of its channel.
pub(super) const CHANNEL: &str = concat!("SELECT ", channel!());

/// The [`Statement`] of a write whose commit is told to all daemons. It costs no round
/// trip of its own, and as writers take turns, the lock that such a commit takes holds
/// up nobody who would not wait anyway.
macro_rules! announcing {
    ($($write:tt)+) => {
        $crate::store::dialect::Statement {
            sqlite: $($write)+,
            postgres: concat!(
                $($write)+,
                " RETURNING CAST(pg_notify(", $crate::store::dialect::channel!(), ", '') AS TEXT)"
            ),
        }
    };
}

pub(super) use {announcing, channel};

/// What a refusal of the database means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another transaction was in the way.
    Conflict,
    /// Another transaction was waited for, and for too long to begin again.
    Busy,
    /// There is no room left.
    Full,
    /// The database may not be written to.
    ReadOnly,
    /// The file is damaged.
    Damaged,
    /// The file is something else.
    NotADatabase,
    /// It cannot be reached, opened or read now.
    Unreachable,
    /// The server does not know the user, or not with this password.
    Denied,
    /// The user may not do this.
    Forbidden,
    /// The server has no such database.
    NoDatabase,
    /// A statement that should not have been sent.
    Statement,
}

/// What `error` means. A unique violation is a conflict: whoever was there first is
/// found when the transaction is tried again.
pub(super) fn fault(error: &(dyn DatabaseError + 'static)) -> Fault {
    if error.kind() == ErrorKind::UniqueViolation {
        return Fault::Conflict;
    }
    if error.try_downcast_ref::<SqliteError>().is_some() {
        return sqlite_fault(error.code().and_then(|code| code.parse().ok()).unwrap_or(0));
    }
    error.try_downcast_ref::<PgDatabaseError>().map_or(Fault::Statement, |error| postgres_fault(error.code()))
}

/// By primary result code, the low byte of the extended one.
fn sqlite_fault(code: u32) -> Fault {
    match code & 0xff {
        5 | 6 => Fault::Conflict,
        // Out of memory, input or output failed, cannot be opened, locking protocol.
        7 | 10 | 14 | 15 => Fault::Unreachable,
        8 => Fault::ReadOnly,
        11 => Fault::Damaged,
        13 => Fault::Full,
        26 => Fault::NotADatabase,
        _ => Fault::Statement,
    }
}

/// By SQLSTATE.
fn postgres_fault(code: &str) -> Fault {
    match code {
        // The last: a transaction that was left alone for too long has lost its turn.
        "40001" | "40P01" | "25P03" => Fault::Conflict,
        "55P03" => Fault::Busy,
        "53100" => Fault::Full,
        "25006" => Fault::ReadOnly,
        "XX001" | "XX002" => Fault::Damaged,
        "42501" => Fault::Forbidden,
        "3D000" => Fault::NoDatabase,
        _ if code.starts_with("28") => Fault::Denied,
        _ if ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => Fault::Unreachable,
        _ => Fault::Statement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_sqlite_codes_mean_what_their_primary_code_means() {
        // SQLITE_BUSY_SNAPSHOT, SQLITE_LOCKED_SHAREDCACHE, SQLITE_IOERR_FSYNC, SQLITE_READONLY_DBMOVED.
        let meanings = [517, 262, 1034, 1032, 13, 11, 26, 1].map(sqlite_fault);
        let expected = [
            Fault::Conflict,
            Fault::Conflict,
            Fault::Unreachable,
            Fault::ReadOnly,
            Fault::Full,
            Fault::Damaged,
            Fault::NotADatabase,
            Fault::Statement,
        ];
        assert_eq!(meanings, expected);
    }

    #[test]
    fn sqlstates_mean_what_their_class_means() {
        for (code, meaning) in [
            ("40001", Fault::Conflict),
            ("40P01", Fault::Conflict),
            ("55P03", Fault::Busy),
            ("25P03", Fault::Conflict),
            ("53100", Fault::Full),
            ("53300", Fault::Unreachable),
            ("57P01", Fault::Unreachable),
            ("57014", Fault::Unreachable),
            ("08006", Fault::Unreachable),
            ("25006", Fault::ReadOnly),
            ("28P01", Fault::Denied),
            ("28000", Fault::Denied),
            ("3D000", Fault::NoDatabase),
            ("42501", Fault::Forbidden),
            ("42601", Fault::Statement),
        ] {
            assert_eq!(postgres_fault(code), meaning, "{code}");
        }
    }

    #[test]
    fn a_migration_has_no_mark_left() {
        for dialect in [Dialect::Sqlite, Dialect::Postgres] {
            let text = dialect.render("a {key}, b {bytes}");
            assert!(!text.contains(['{', '}']), "{text}");
        }
    }
}
