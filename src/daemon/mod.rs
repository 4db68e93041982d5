//! The daemon: the one place where all the pieces meet, and what keeps them going.
//!
//! What lives here: the boot order ([`boot`]), who may act and when
//! ([`ActivationGate`], [`Bootstrap`]), the background tasks and what drives
//! them ([`tasks`], [`driver`]), and how everything stops ([`Lifecycle`]). What
//! may not: a rule of the market, a statement to the database, or an HTTP route.
//!
//! Read [`Daemon::boot`] and [`run()`] first: they are the start and the end of the
//! process.

mod authorization;
mod boot;
mod bootstrap;
mod data_dir;
pub mod driver;
mod events;
mod gate;
mod leases;
mod lifecycle;
mod market_host;
mod run;
mod scheduler;
mod status;
pub mod tasks;
mod wakes;

pub use authorization::NoAuthorization;
pub use boot::Daemon;
pub use bootstrap::{Active, BOOTSTRAP_DEADLINE, Bootstrap, FENCE_DEADLINE, RECOVERY_WAIT};
pub use data_dir::{DataDir, Endpoint, is_held, read_token};
pub use events::Events;
pub use gate::ActivationGate;
pub use leases::{release_leases_of_earlier_boots, worker_id};
pub use lifecycle::Lifecycle;
pub use market_host::{MarketHost, MarketHostConfig};
pub use run::run;
pub use scheduler::{Execute, LocalScheduler};
pub use status::{Health, StatusCell, TaskFailure, TaskStatus};
pub use wakes::Wakes;
