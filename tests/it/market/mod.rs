//! The market, scenario by scenario: a number after `s` is one of section J of the
//! specification. The store is a real database; the rest of the world is scripted.

mod acceptance;
mod binding;
mod browsing;
mod calibrating;
mod converging;
mod executing;
pub(crate) mod fakes;
mod installing;
pub(crate) mod provider;
mod reads;
mod recovering;
mod refreshing;
mod uninstalling;
pub(crate) mod world;
