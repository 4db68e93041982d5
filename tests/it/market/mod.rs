//! The market, scenario by scenario: a number after `s` is one of section J of the
//! specification. The store is a real database; the rest of the world is scripted.

mod acceptance;
mod authorizing;
mod binding;
mod browsing;
mod calibrating;
mod converging;
mod executing;
mod fakes;
mod installing;
mod projecting;
mod provider;
mod reads;
mod recovering;
mod refreshing;
mod settling;
mod uninstalling;
mod world;
