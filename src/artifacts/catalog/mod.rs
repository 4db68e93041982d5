//! Static catalogs: one document, in a directory or behind any web server.

mod combined;
mod document;
mod pages;
mod source;

pub use combined::CombinedCatalog;
pub use document::{CATALOG_FILE, CATALOG_SCHEMA_VERSION, StaticCatalogDocument};
pub use source::StaticCatalog;
