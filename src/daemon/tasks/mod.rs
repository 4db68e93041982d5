//! The background tasks: each a small named thing that looks what there is to do,
//! does it, and ends. The driver calls it again.

mod bootstrap_retry;
mod catalog_refresh;
mod cleanup;
mod convergence;
mod operation_recovery;
mod outbox;
mod runtime_planning;

pub use bootstrap_retry::BootstrapRetry;
pub use catalog_refresh::CatalogRefresh;
pub use cleanup::{Cleanup, CleanupPolicy};
pub use convergence::Convergence;
pub use operation_recovery::{OperationRecovery, recovery_delay};
pub use outbox::Outbox;
pub use runtime_planning::RuntimePlanning;
