//! What a failure of the database means to the market.

use super::dialect::{self, Fault};
use crate::domain::error::{Error, ErrorCode};

impl From<sqlx::Error> for Error {
    fn from(cause: sqlx::Error) -> Self {
        let error = match &cause {
            sqlx::Error::Database(refusal) => of_fault(dialect::fault(refusal.as_ref())),
            sqlx::Error::PoolTimedOut => {
                Error::unavailable("the database was busy or away for too long; try again later")
            }
            sqlx::Error::Configuration(_) => Error::invalid_request(
                "the database URL is not usable; expected sqlite:<path> or postgres://…",
            ),
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::AnyDriverError(_) => {
                Error::unavailable("the database answered with a column of another type than was stored")
                    .with_retryable(false)
            }
            _ => Error::unavailable("the connection to the database was lost; try again later"),
        };
        error.with_cause(cause)
    }
}

/// What a damaged file is answered with.
pub(super) fn damaged() -> Error {
    Error::unavailable("the database is damaged; restore it from a backup").with_retryable(false)
}

fn of_fault(fault: Fault) -> Error {
    match fault {
        Fault::Conflict => Error::new(
            ErrorCode::SerializationConflict,
            "another transaction was in the way; the same transaction may be tried again",
        ),
        Fault::Busy => Error::unavailable(
            "another transaction holds the database and does not end; try again later, and look who holds it",
        ),
        Fault::Full => Error::unavailable("the disk that holds the database is full; free some space"),
        Fault::ReadOnly => {
            Error::unavailable("the database is read-only; give the daemon write access to it")
        }
        Fault::Damaged => damaged(),
        Fault::NotADatabase => {
            Error::unavailable("the file is not a database; move it away or name another one")
                .with_retryable(false)
        }
        Fault::Denied => Error::unavailable(
            "the database does not let this user in; correct user and password in the database URL",
        )
        .with_retryable(false),
        Fault::Forbidden => Error::unavailable(
            "the database does not let this user do that; let the user own the schema, or grant it USAGE and CREATE",
        )
        .with_retryable(false),
        Fault::NoDatabase => {
            Error::unavailable("the server has no such database; create it, or correct the database URL")
                .with_retryable(false)
        }
        Fault::Unreachable => {
            Error::unavailable("the database cannot be reached or read now; check the disk or the server")
        }
        Fault::Statement => {
            Error::unavailable("the database refused a statement; its log and the cause say why")
                .with_retryable(false)
        }
    }
}
