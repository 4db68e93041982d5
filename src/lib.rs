//! Portcullis.
pub mod artifacts;
pub mod authoring;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod domain;
pub mod market;
pub mod ports;
pub mod sandbox;
pub mod store;
pub mod telemetry;
