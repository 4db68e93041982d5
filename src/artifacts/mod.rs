//! From a catalog's listing to verified files in place.
//!
//! What lives here: reading static catalogs, fetching the bytes of a release,
//! unpacking them, and the content-addressed store that keeps what was verified.
//! What may not: anything that runs a connector or knows what an operation is
//! doing. Everything here treats its input as hostile until its digest is proven.

pub mod catalog;
