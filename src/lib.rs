//! Portcullis.
pub mod api;
pub mod artifacts;
pub mod authoring;
pub mod cli;
pub mod config;
pub mod domain;
pub mod market;
pub mod ports;
pub mod sandbox;
pub mod store;
pub mod telemetry;
