//! Everything that differs between the databases, and nothing else.

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
    /// a transaction that reads first and writes later could not wait for it.
    pub(super) const fn begin_write(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        }
    }

    /// Begins a transaction whose reads all see one moment.
    pub(super) const fn begin_read(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN",
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// Begins the transaction that migrates. On PostgreSQL the advisory lock of
    /// [`migration_lock`](Self::migration_lock) is waited for inside it, so it must
    /// see what was committed meanwhile.
    pub(super) const fn begin_migration(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN ISOLATION LEVEL READ COMMITTED",
        }
    }

    /// Keeps other daemons from migrating until the transaction ends, where
    /// beginning it does not already.
    pub(super) const fn migration_lock(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some("SELECT CAST(pg_advisory_xact_lock(7381420256614) AS TEXT)"),
        }
    }

    /// The names of the tables that are there.
    pub(super) const fn tables(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite@_%' ESCAPE '@'"
            }
            Self::Postgres => {
                "SELECT CAST(table_name AS TEXT) AS name FROM information_schema.tables \
                 WHERE table_schema = current_schema()"
            }
        }
    }

    /// What a new connection is told first.
    pub(super) const fn session(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => Some(
                "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                 PRAGMA foreign_keys = ON",
            ),
            Self::Postgres => None,
        }
    }

    /// What a new connection that only reads is told first.
    pub(super) const fn read_only_session(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => Some("PRAGMA busy_timeout = 5000; PRAGMA query_only = ON"),
            Self::Postgres => None,
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

    /// The time of `clock`, and without one the database's own. An embedded database
    /// has the machine's.
    pub(super) async fn now(
        self,
        conn: &mut AnyConnection,
        clock: Option<&dyn Clock>,
    ) -> Result<Timestamp, Error> {
        match (clock, self) {
            (Some(clock), _) => Ok(clock.now()),
            (None, Self::Sqlite) => Ok(SystemClock.now()),
            (None, Self::Postgres) => {
                const NOW: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
                Ok(Timestamp(sqlx::query(NOW).fetch_one(conn).await?.try_get(0)?))
            }
        }
    }
}

/// What a refusal of the database means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another transaction was in the way.
    Conflict,
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
        "40001" | "40P01" | "55P03" => Fault::Conflict,
        "53100" => Fault::Full,
        "25006" => Fault::ReadOnly,
        "XX001" | "XX002" => Fault::Damaged,
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
        let meanings =
            ["40001", "40P01", "53100", "53300", "57P01", "08006", "25006", "42601"].map(postgres_fault);
        let expected = [
            Fault::Conflict,
            Fault::Conflict,
            Fault::Full,
            Fault::Unreachable,
            Fault::Unreachable,
            Fault::Unreachable,
            Fault::ReadOnly,
            Fault::Statement,
        ];
        assert_eq!(meanings, expected);
    }

    #[test]
    fn a_migration_has_no_mark_left() {
        for dialect in [Dialect::Sqlite, Dialect::Postgres] {
            let text = dialect.render("a {key}, b {bytes}");
            assert!(!text.contains(['{', '}']), "{text}");
        }
    }
}
