//! Announces committed changes, in order, at least once.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    daemon::driver::Task,
    domain::error::Error,
    ports::{EventSink, Store},
};

const PERIOD: Duration = Duration::from_millis(250);
const PAGE: u32 = 100;

/// Reads the outbox and tells the sink.
pub struct Outbox {
    store: Arc<dyn Store>,
    sink: Arc<dyn EventSink>,
}

impl Outbox {
    /// From `store` to `sink`.
    pub fn new(store: Arc<dyn Store>, sink: Arc<dyn EventSink>) -> Self {
        Self { store, sink }
    }
}

#[async_trait]
impl Task for Outbox {
    fn name(&self) -> &'static str {
        "outbox"
    }

    /// An event is marked only after it was announced, and none is announced
    /// before an older one: the first error ends the activation.
    async fn activate(&self) -> Result<u64, Error> {
        let mut announced = 0;
        loop {
            let events = self.store.pending_events(PAGE).await?;
            for event in &events {
                self.sink.publish(event).await?;
                self.store.mark_published(event.sequence).await?;
                announced += 1;
            }
            if events.len() < PAGE as usize {
                return Ok(announced);
            }
        }
    }

    fn pause(&self, _failures: u32) -> Option<Duration> {
        Some(PERIOD)
    }
}
