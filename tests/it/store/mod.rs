//! The store: the contract on every database there is, and what is particular to
//! database files.

mod contract;
mod file;
pub(crate) mod postgres;
