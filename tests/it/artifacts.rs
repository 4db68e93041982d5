//! From a catalog's listing to verified files in place (spec G, J.14).

mod archive;
mod catalog;
mod crash;
mod directory;
mod install;
mod refusals;
mod remote;
mod server;
mod world;
