//! Portcullis.
pub mod domain;
pub mod ports;
pub mod sandbox;
