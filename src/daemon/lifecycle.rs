//! How the daemon stops: softly first, then hard.
//!
//! Soft: nothing new begins, what runs may end. Hard: what still runs is given
//! up; whatever it was doing is durable and is taken up by the next start.

use std::{future::Future, time::Duration};

use tokio::{runtime::Handle, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::domain::error::Error;

/// The two signals, and everything that must have ended before the process does.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    soft: CancellationToken,
    hard: CancellationToken,
    tracker: TaskTracker,
    runtime: Handle,
}

impl Lifecycle {
    /// A running process; `runtime` carries what is spawned.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        let soft = CancellationToken::new();
        let hard = CancellationToken::new();
        Self { soft, hard, tracker: TaskTracker::new(), runtime }
    }

    /// Cancelled when nothing new may begin.
    #[must_use]
    pub fn soft(&self) -> &CancellationToken {
        &self.soft
    }

    /// Cancelled when nothing may go on.
    #[must_use]
    pub fn hard(&self) -> &CancellationToken {
        &self.hard
    }

    /// Asks everything to end by itself.
    pub fn stop_softly(&self) {
        self.soft.cancel();
        self.tracker.close();
    }

    /// Ends everything.
    pub fn stop_hard(&self) {
        self.stop_softly();
        self.hard.cancel();
    }

    /// Runs `work` until it ends or the hard stop; [`wait`](Self::wait) waits for it.
    pub fn spawn<F>(&self, work: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let hard = self.hard.clone();
        self.tracker.spawn_on(async move { hard.run_until_cancelled(work).await }, &self.runtime)
    }

    /// Waits, at most `limit`, until everything that was spawned has ended; tells
    /// whether it has.
    pub async fn wait(&self, limit: Duration) -> bool {
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait()).await.is_ok()
    }

    /// The first SIGTERM or SIGINT stops softly, the second hard.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] when the system does not deliver signals.
    pub fn listen_to_signals(&self) -> Result<(), Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let refused = |cause: std::io::Error| {
            Error::unavailable("the daemon cannot listen to SIGTERM and SIGINT").with_cause(cause)
        };
        let _runtime = self.runtime.enter();
        let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
        let lifecycle = self.clone();
        // Not tracked: it ends with the process, and must outlive the drain.
        self.runtime.spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if lifecycle.soft.is_cancelled() {
                    tracing::warn!(signal = name, "second signal: stopping at once");
                    return lifecycle.stop_hard();
                }
                tracing::info!(signal = name, "stopping; a second signal stops at once");
                lifecycle.stop_softly();
            }
        });
        Ok(())
    }
}
