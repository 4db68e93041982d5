//! Portcullis.
pub mod config;
pub mod domain;
pub mod ports;
pub mod telemetry;
