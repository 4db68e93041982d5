//! From a catalog's listing to verified files in place.
//!
//! What lives here: reading static catalogs, fetching the bytes of a release,
//! unpacking them, and the content-addressed store that keeps what was verified.
//! What may not: anything that runs a connector or knows what an operation is
//! doing. Everything here treats its input as hostile until its digest is proven.
//!
//! The way of a release: [`catalog`] lists it, `fetch` brings its bytes while
//! hashing them, `unpack` and `bundle` lay its files out in staging, `content` and
//! `tree` put them in place; [`LocalInstaller`] leads them through it.

mod bundle;
pub mod catalog;
mod content;
mod disk;
mod fetch;
mod http;
mod installer;
mod inventory;
mod lanes;
mod meter;
mod preparation;
mod tree;
mod unpack;

pub use bundle::MANIFEST_FILE;
pub(crate) use disk::read_small;
pub use fetch::ArtifactFetcher;
pub use installer::LocalInstaller;
pub use unpack::UnpackLimits;
pub(crate) use unpack::unpack;
