//! The daemon, in the words of the specification's scenarios (core.md, J.12).

mod boot;
mod bootstrap;
mod data_dir;
mod driver;
mod fakes;
mod gate;
mod scheduler;
mod workers;
mod world;
