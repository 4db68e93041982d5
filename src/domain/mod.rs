//! Values, state machines and decisions.
//!
//! What lives here: types whose construction proves something (a parsed key, a
//! digest, a legal transition), the manifest and release rules, and the errors
//! that every floor above speaks. What may not: I/O, async code, a clock, a
//! random source, or any type of a database, an HTTP server or a Wasm engine.

pub mod authorization;
pub mod capability;
pub mod catalog;
pub mod compatibility;
pub mod connector;
pub mod convergence;
pub mod digest;
pub mod error;
pub mod event;
pub mod generation;
pub mod id;
pub mod installation;
pub mod lease;
pub mod manifest;
pub mod operation;
pub mod release;
pub mod revision;
pub mod runtime;
pub mod snapshot;
pub mod timestamp;
