//! From rows to domain values and back. A value that does not fit is an error that
//! names table, column and row, and never the value.

use serde::{
    Serialize,
    de::{DeserializeOwned, IntoDeserializer as _},
};
use sqlx::{Row as _, any::AnyRow};

use crate::domain::{
    error::Error,
    id::WorkerId,
    lease::{Lease, LeaseToken},
    timestamp::Timestamp,
};

/// One row, with what is needed to say where a bad value stands.
pub(super) struct Cells<'r> {
    table: &'static str,
    row: &'r AnyRow,
    key: &'r str,
}

impl<'r> Cells<'r> {
    /// A row of `table` that the column `key` names to people.
    pub(super) fn keyed(table: &'static str, row: &'r AnyRow, key: &str) -> Result<Self, Error> {
        let key = row.try_get(key).map_err(|cause| unreadable(table, key, "?", cause))?;
        Ok(Self { table, row, key })
    }

    /// The only row of `table`.
    pub(super) fn single(table: &'static str, row: &'r AnyRow) -> Self {
        Self { table, row, key: "1" }
    }

    pub(super) fn text(&self, column: &'static str) -> Result<&'r str, Error> {
        self.row.try_get(column).map_err(|cause| self.unreadable(column, cause))
    }

    /// A number, within the bounds of its type.
    pub(super) fn number<T: TryFrom<i64>>(&self, column: &'static str) -> Result<T, Error> {
        let number: i64 = self.row.try_get(column).map_err(|cause| self.unreadable(column, cause))?;
        T::try_from(number).map_err(|_| self.unreadable(column, "the number is out of bounds"))
    }

    /// A JSON document.
    pub(super) fn document<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, Error> {
        serde_json::from_str(self.text(column)?).map_err(|cause| self.unreadable(column, cause))
    }

    /// One of the words of an enumeration.
    pub(super) fn word<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, Error> {
        let word: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
            self.text(column)?.into_deserializer();
        T::deserialize(word).map_err(|cause| self.unreadable(column, cause))
    }

    /// A text with a form, such as a digest.
    pub(super) fn parsed<T: std::str::FromStr<Err = Error>>(&self, column: &'static str) -> Result<T, Error> {
        self.text(column)?.parse().map_err(|cause: Error| self.unreadable(column, cause))
    }

    /// The token of the last claim, and the lease where one is held.
    pub(super) fn lease(&self) -> Result<(LeaseToken, Option<Lease>), Error> {
        let token = LeaseToken(self.number("lease_token")?);
        let owner: Option<&str> =
            self.row.try_get("lease_owner").map_err(|cause| self.unreadable("lease_owner", cause))?;
        let Some(owner) = owner else { return Ok((token, None)) };
        let owner = WorkerId::parse(owner).map_err(|cause| self.unreadable("lease_owner", cause))?;
        let expires_at = Timestamp(self.number("lease_expires_at")?);
        Ok((token, Some(Lease { owner, token, expires_at })))
    }

    fn unreadable(&self, column: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        unreadable(self.table, column, self.key, cause)
    }
}

fn unreadable(
    table: &str,
    column: &str,
    row: &str,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::unavailable(format!(
        "{table}.{column} of row {row:?} is not readable; restore the database from a backup"
    ))
    .with_retryable(false)
    .with_cause(cause)
}

/// So many rows are decoded in one go; more would keep others from their turn.
const PORTION: usize = 512;

/// Decodes many rows, in order. Beyond one portion it happens beside the async
/// threads, on as many cores as there are.
pub(super) async fn decode_all<T: Send + 'static>(
    mut rows: Vec<AnyRow>,
    decode: fn(&AnyRow) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    if rows.len() <= PORTION {
        return rows.iter().map(decode).collect();
    }
    let mut values = Vec::with_capacity(rows.len());
    let mut portions = Vec::new();
    while !rows.is_empty() {
        let rest = rows.split_off(rows.len().min(PORTION));
        let portion = std::mem::replace(&mut rows, rest);
        portions.push(tokio::task::spawn_blocking(move || {
            portion.iter().map(decode).collect::<Result<Vec<T>, Error>>()
        }));
    }
    for portion in portions {
        let decoded = portion
            .await
            .map_err(|cause| Error::unavailable("the rows could not be decoded").with_cause(cause))?;
        values.extend(decoded?);
    }
    Ok(values)
}

/// A value as a JSON document.
pub(super) fn document<T: Serialize>(table: &str, row: &str, value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|cause| {
        Error::unavailable(format!("row {row:?} of {table} has no JSON form"))
            .with_retryable(false)
            .with_cause(cause)
    })
}

/// The wire name of a value of an enumeration without fields.
pub(super) fn word<T: Serialize>(value: &T) -> Result<String, Error> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Ok(word),
        _ => Err(Error::unavailable("a value that should be a word has no wire name").with_retryable(false)),
    }
}

/// A span of time as the database keeps it.
pub(super) fn milliseconds(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 2)
}

/// A counter as the database keeps it.
pub(super) fn number(value: u64) -> Result<i64, Error> {
    i64::try_from(value).map_err(|_| {
        Error::unavailable(format!("the counter {value} is past what the database can keep"))
            .with_retryable(false)
    })
}
