//! Tells whoever waits that something was committed. A hint and never the truth: one
//! that is lost costs latency alone.

use std::{convert::Infallible, time::Duration};

use sqlx::{
    Row as _,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::{sync::watch, task::AbortHandle};

use super::{dialect::CHANNEL, server::Server};
use crate::domain::error::Error;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);

/// Counts commits that announced something; ends listening with the last handle of
/// its store.
pub(super) struct Changes {
    count: watch::Sender<u64>,
    listening: Option<AbortHandle>,
}

impl Changes {
    /// Of this process alone.
    pub(super) fn of_this_process() -> Self {
        Self { count: watch::Sender::new(0), listening: None }
    }

    /// Of every daemon on the database of `server`.
    pub(super) fn of_server(server: Server) -> Self {
        let count = watch::Sender::new(0);
        let listening = tokio::spawn(listen(server, count.clone())).abort_handle();
        Self { count, listening: Some(listening) }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    /// Says that this process has committed something. A server says so by itself.
    pub(super) fn committed_here(&self) {
        if self.listening.is_none() {
            bump(&self.count);
        }
    }

    pub(super) fn stop(&self) {
        if let Some(listening) = &self.listening {
            listening.abort();
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.stop();
    }
}

fn bump(count: &watch::Sender<u64>) {
    count.send_modify(|count| *count = count.wrapping_add(1));
}

async fn listen(server: Server, count: watch::Sender<u64>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Err(error) = follow(&server, &count, &mut pause).await;
        tracing::warn!(code = %error.code, "changes of other daemons are seen later than usual: {error}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Counts what the server tells, until its connection is lost and does not come back.
async fn follow(
    server: &Server,
    count: &watch::Sender<u64>,
    pause: &mut Duration,
) -> Result<Infallible, Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(PATIENCE)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(server.options())
        .await?;
    let channel: String = sqlx::query(CHANNEL).fetch_one(&pool).await?.try_get(0)?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(&channel).await?;
    *pause = FIRST_PAUSE;
    loop {
        // What was committed while nobody listened is not told; nor is it known.
        bump(count);
        while listener.try_recv().await?.is_some() {
            bump(count);
        }
    }
}
