//! Committed changes on their way to whoever listens.

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::{
    domain::{error::Error, event::OutboxEvent},
    ports::EventSink,
};

/// Announces events to the listeners of this process. Nobody has to listen, and a
/// listener that is too slow is told that it has missed some: it reads on from the
/// store.
#[derive(Clone, Debug)]
pub struct Events(broadcast::Sender<OutboxEvent>);

impl Events {
    /// Keeps so many events for a slow listener.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self(broadcast::Sender::new(capacity.max(1)))
    }

    /// Listens from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<OutboxEvent> {
        self.0.subscribe()
    }
}

#[async_trait]
impl EventSink for Events {
    async fn publish(&self, event: &OutboxEvent) -> Result<(), Error> {
        // The only error is that nobody listens.
        let _ = self.0.send(event.clone());
        Ok(())
    }
}
