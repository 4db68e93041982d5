//! The command line: a file a command family.

pub mod catalog;
pub mod connector;
pub mod report;
