//! The store: the contract on every database there is, and what is particular to
//! database files.

mod changes;
mod contract;
mod faults;
mod file;
mod migrations;
pub(crate) mod postgres;
