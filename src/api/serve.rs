//! The listener: HTTP/1.1, bounded in connections and in how long a client may
//! take over its headers; stops softly, then hard.

use std::{sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{ApiState, router};

/// Connections at the same time; the next one waits in the listener's queue.
const CONNECTIONS: usize = 1024;
/// How long a client may take to send its headers, and an idle connection stays.
const HEADERS: Duration = Duration::from_secs(30);
/// How long to wait after the system refused to accept, out of file descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// When to stop.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// No more connections; requests that run may end.
    pub soft: CancellationToken,
    /// Whatever still runs is dropped.
    pub hard: CancellationToken,
}

/// Serves the API until `shutdown.soft`, and returns when the last connection has
/// ended or `shutdown.hard` has ended it.
pub async fn serve(listener: TcpListener, state: Arc<ApiState>, shutdown: Shutdown) {
    let service = TowerToHyperService::new(router(state));
    let connections = TaskTracker::new();
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    while let Some((stream, permit)) = accept(&listener, &permits, &shutdown.soft).await {
        connections.spawn(connection(stream, service.clone(), permit, shutdown.clone()));
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// The next connection, or none when it is time to stop.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
    soft: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let next = async {
        let permit = Arc::clone(permits).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Some((stream, permit)),
                Err(cause) => {
                    tracing::warn!(%cause, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = soft.cancelled() => None,
        next = next => next,
    }
}

async fn connection(
    stream: TcpStream,
    service: TowerToHyperService<axum::Router>,
    _permit: OwnedSemaphorePermit,
    shutdown: Shutdown,
) {
    // Answers are small and go out whole: waiting to fill a packet only delays them.
    if let Err(cause) = stream.set_nodelay(true) {
        tracing::debug!(%cause, "TCP_NODELAY could not be set");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut draining = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(cause) = ended {
                    tracing::debug!(%cause, "a connection ended");
                }
                return;
            }
            () = shutdown.soft.cancelled(), if !draining => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = shutdown.hard.cancelled() => return,
        }
    }
}
