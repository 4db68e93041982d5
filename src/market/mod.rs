//! The market: what a catalog offers, what is installed, and whether it runs.
//!
//! A verb a file. `accept` makes a command durable, [`Application::execute`] does
//! it, [`Application::recover`] takes up what a crash left; `binding` and `plan`
//! decide what a route should be, [`Application::converge`] makes it so.
//! Everything here goes through [`crate::ports`]: no SQL, no HTTP, no file, no
//! engine. Every change is one transaction that also advances the revision and
//! enqueues the event, so a reader who saw revision N has seen all that led to it.
//!
//! # Invariants
//!
//! - A worker writes an operation or convergence only under the lease it claimed;
//!   one that was overtaken learns so from the token and stops.
//! - Nothing is called installed before its release was observed in this boot, and
//!   the previous release stays until then.
//! - What is uncertain is not published: a connector whose authorization, files or
//!   release cannot be told does not run.
//!
//! # Hazards of the reference, decided (spec C.14)
//!
//! 1. An operation that has ended is never revived: [`crate::domain::operation`]
//!    makes every transition of an ended row a no-op, and each write first checks
//!    that the row is still active and its own.
//! 2. An answer "the publication gate is closed" is retryable, so an install that
//!    a restart interrupted is finished once the gate opens.
//! 3. An interruption while a runtime is awaited, a lost lease or an error of the
//!    store included, leaves the operation running for the next attempt.
//! 5. A refresh that a newer reading overtook sets the catalog ready.
//!
//! Where a port says that an error is not retryable, a component that cannot be
//! linked for one, the operation ends with it, an update returns to the release
//! before it, and the operation's failure names the port's own code.

mod accept;
mod application;
pub mod authorize;
mod binding;
mod calibrate;
mod catalog;
mod compatibility;
mod converge;
mod execute;
mod fail;
mod fence;
mod flight;
mod install;
mod lease;
mod plan;
mod reconcile;
mod recover;
mod refresh;
mod snapshot;
mod tx;
mod uninstall;

pub use accept::{Accepted, ConnectorMutation, Mutation};
pub use application::{Application, ApplicationConfig};
pub use compatibility::{HostIdentity, ImplementationRegistry};
pub use reconcile::Selection;
