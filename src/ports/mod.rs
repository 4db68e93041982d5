//! The traits between the market and the world.
//!
//! Each says what its implementations must guarantee; nothing here does
//! anything. A file a port, at most ten: another one is a design decision.

mod authorization;
mod catalog_source;
mod clock;
mod event_sink;
mod implementation_host;
mod release_installer;
mod sandbox_ledger;
mod scheduler;
mod store;

pub use authorization::{
    AttemptRequest, AuthorizationCanceler, AuthorizationInspector, AuthorizationObserver,
    AuthorizationProvider, AuthorizationSource, BeginRequest, CredentialInspection, DisconnectRequest,
    InspectRequest, ReplacementPolicy,
};
pub use catalog_source::CatalogSource;
pub use clock::{Clock, IdSource, RandomIds, SystemClock};
pub use event_sink::EventSink;
pub use implementation_host::{ImplementationHost, RouteStatus, RouteSummary};
pub use release_installer::{
    InstallRequest, PhysicalState, PreparedRelease, ReleaseInstaller, ReleaseObservation, UninstallRequest,
};
pub use sandbox_ledger::{CompiledComponent, SandboxLedger, StateChanges, StateScope};
pub use scheduler::OperationScheduler;
pub use store::{CleanupRequest, CleanupResult, ConvergenceLease, OperationLease, Store, Tx};
