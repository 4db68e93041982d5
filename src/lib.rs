//! Portcullis.
pub mod domain;
pub mod market;
pub mod ports;
pub mod store;
