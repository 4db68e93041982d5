//! Portcullis.
pub mod artifacts;
pub mod domain;
pub mod ports;
