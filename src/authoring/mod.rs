//! What a connector author and a catalog's keeper do before any host is asked:
//! build a component, pack a release, look into one, list releases in a catalog.
//!
//! Each verb is a file of the same name. [`component`] reads what a component
//! imports and exports, [`contract`] judges it by the WIT of this host, which is
//! in [`wit`], and [`bundle`] is the archive. Nothing of a guest runs here, and nothing here
//! talks to a daemon. Every file is written in full or not at all.

pub mod build;
pub mod bundle;
pub mod catalog;
pub mod component;
pub mod contract;
mod files;
pub mod inspect;
pub mod manifest;
pub mod pack;
pub mod toolchain;
pub mod wit;
