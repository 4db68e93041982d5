//! Portcullis: a fail-closed host for third-party connectors shipped as
//! WebAssembly components.
//!
//! A connector's release is verified by its SHA-256, installed by a durable
//! operation, run in a fresh wasmtime instance per call under limits and an
//! egress policy, and fenced by generation: once a new release answers, nothing of
//! the old one acts any more. What is uncertain is not published.
//!
//! # The floors
//!
//! A floor uses only floors below it; `tests/it/architecture.rs` enforces it.
//!
//! ```text
//! cli        the command line: talks to the daemon's API as any client would
//! api        the HTTP API: every route on one screen, wire types, the error map
//! daemon     boot order, activation gate, background tasks, shutdown
//! config     what an operator can say, checked once
//! authoring  build, pack, inspect, catalogs: what a connector's author does
//! sandbox    the ImplementationHost over wasmtime: the one engine, grants, egress, routes
//! store      the database: SQLite and PostgreSQL from one set of statements
//! market     the application service: a verb a file
//! artifacts  fetch, verify, unpack, keep
//! ports      the traits between market and the world
//! domain     values, state machines, decisions; no I/O, no async, no clock
//! ```
//!
//! `telemetry` stands beside them: the log, and the names of its fields.
//!
//! # Where is …?
//!
//! The same noun has the same file name on every floor.
//!
//! | what | where |
//! |---|---|
//! | a status change | `domain/<noun>.rs` |
//! | what a command does | `market/<verb>.rs` |
//! | a query | `store/<table>.rs` |
//! | a URL | `api/mod.rs` |
//! | the status of an error | `api/error.rs`, and `docs/errors.md` |
//! | what the wire shows and hides | `api/dto/` |
//! | a flag or an exit code | `cli/args.rs`, `config.rs`; `cli/exit.rs` |
//! | what a connector may do | `sandbox/grant.rs` |
//! | what runs on a timer | `daemon/tasks/` |
//! | the order of starting | `daemon/boot.rs` |
//! | the contract with authors | `wit/` |
//!
//! # One walkthrough: `portcullis install feeds`
//!
//! `cli/install.rs` reads the connector, shows what it asks for, and sends the
//! command at the revision it read. `api/connectors.rs` parses it and asks
//! `market/install.rs`, which lets [`domain::installation`] decide the transition
//! and writes connector, operation and event in one transaction; the answer is 202
//! with the operation. A daemon task claims the operation with a lease and calls
//! `market/execute.rs`: `artifacts` fetches and verifies the bundle while it
//! streams, unpacks it beside the old one, and makes it current by a rename; an
//! intent with a new generation is saved; `sandbox` compiles, links and describes
//! the component and commits the route, which fences the older generation. Only
//! then does the connector count as installed. A crash at any point resumes from
//! the row, and a worker that was overtaken learns so from its lease token.
//!
//! An embedder can use [`domain`], [`ports`], [`market`] and the traits of the
//! store without the rest.

pub mod api;
pub mod artifacts;
pub mod authoring;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod domain;
pub mod market;
pub mod ports;
pub mod sandbox;
pub mod store;
pub mod telemetry;
