//! The database: [`SqlStore`] implements [`crate::ports::Store`] and
//! [`crate::ports::SandboxLedger`] over SQLite and PostgreSQL from one set of
//! statements.
//!
//! What lives here: SQL, and the way between rows and domain values. A query about
//! a table is in the file of its family. What may not: a decision that the market
//! or the domain could take, an `if` on the database outside `dialect`, and SQL
//! text that is put together at run time.
//!
//! Rules that hold everywhere:
//!
//! - A document column is the record; the columns beside it repeat what predicates
//!   need. A lease is the exception: it lives in its columns alone.
//! - Every conditional write looks at its row count.
//! - A statement that writes is run to its end, never with `fetch_optional`, which
//!   stops at the first row and would miss a failure of the commit.
//! - A row that cannot be read is an error that names table, column and row.

mod alone;
mod authorizations;
mod changes;
mod cleanup;
mod codec;
mod compiled;
mod connect;
mod connectors;
pub mod contract;
mod convergences;
mod dialect;
mod failure;
mod ledger;
mod metadata;
mod migrate;
mod operations;
mod outbox;
mod releases;
mod server;
mod settings;
mod snapshot;
mod sql_store;
mod state;
#[cfg(test)]
mod tests;
mod tx;

pub use alone::{HeldAlone, hold_alone};
pub use connect::{StoreOptions, sqlite_url};
pub use server::check_postgres_url;
pub use sql_store::SqlStore;
