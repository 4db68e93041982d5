//! Where committed changes are announced.

use async_trait::async_trait;

use crate::domain::{error::Error, event::OutboxEvent};

/// Receives events in order, at least once. Must not block on a slow listener.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Announces one event. An error stops the flush; the event comes again.
    async fn publish(&self, event: &OutboxEvent) -> Result<(), Error>;
}
