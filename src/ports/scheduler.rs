//! Who is told that an operation wants to run.

use crate::domain::{error::Error, id::OperationId};

/// A hint that an operation can be executed now. The store is the truth: a lost
/// hint costs latency, not work.
pub trait OperationScheduler: Send + Sync {
    /// Passes the hint on; an operation that already runs here is not started twice.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] when the host is shutting down.
    fn schedule(&self, operation_id: &OperationId) -> Result<(), Error>;
}
