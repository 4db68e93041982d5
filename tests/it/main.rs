//! The integration tests: one binary, a module a subject.

mod api;
mod architecture;
mod artifacts;
mod authoring;
mod binary;
mod config;
mod daemon;
mod docs;
mod domain;
mod guests;
mod market;
mod model;
mod sandbox;
mod scenarios;
mod store;
