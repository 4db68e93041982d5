//! Static catalogs: one document, in a directory or behind any web server.

mod document;

pub use document::{CATALOG_FILE, CATALOG_SCHEMA_VERSION, StaticCatalogDocument};
