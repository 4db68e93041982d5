//! The sandbox: runs connectors as WebAssembly components (spec H).
//!
//! [`SandboxHost`] is the [`crate::ports::ImplementationHost`] over wasmtime. One
//! `Engine` holds the one configuration and the epoch ticker;
//! `cache` keeps compiled components, which `compiler` makes in a limited process; [`routes`] says which generation of which
//! connection answers; `call` plays one call in a fresh instance; `imports`,
//! `wasi` and `egress` are all that a guest can reach, and `grant` is the one
//! place that says yes to a request that wants to leave.
//!
//! Nothing here knows operations, catalogs or HTTP routes, and nothing outside of
//! here knows wasmtime.

mod activate;
mod address;
mod answer;
mod bindings;
mod cache;
mod call;
mod compiler;
mod counters;
mod describe;
mod egress;
mod engine;
mod flight;
mod grant;
mod guest_text;
mod host;
mod imports;
mod inspect;
mod instance;
mod ledger;
mod limits;
mod linker;
mod meter;
mod pace;
mod program;
mod route;
mod schemas;
mod settings;
mod skills;
mod transport;
mod wasi;

pub mod routes;

pub use compiler::compile_component;
pub use counters::SandboxCounts;
pub use engine::configuration;
pub use host::SandboxHost;
pub(crate) use inspect::may_import;
pub use settings::{DevelopmentHost, SandboxSettings};
