//! Portcullis.
pub mod domain;
pub mod ports;
