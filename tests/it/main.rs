//! The integration tests: one binary, a module a subject.

mod architecture;
mod authoring;
mod domain;
mod store;
mod guests;
mod sandbox;
