//! The integration tests: one binary, a module a subject.

mod api;
mod architecture;
mod authoring;
mod binary;
mod config;
mod daemon;
mod domain;
mod guests;
mod sandbox;
mod store;
