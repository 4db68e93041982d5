//! The process from its first line to its last: boot, serve, drain, stop.

use std::{io::ErrorKind, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, task::JoinHandle, time::timeout};

use super::{
    boot::Daemon,
    data_dir::{DataDir, Endpoint},
};
use crate::{
    config::ServeSettings,
    domain::error::Error,
    ports::{RandomIds, SystemClock},
};

/// How long routes and tasks get to go after the drain.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);
/// The same after a second signal.
const CLOSE_AT_ONCE: Duration = Duration::from_secs(1);

/// Runs a daemon until it is told to stop.
///
/// `serve` answers on the listener until the daemon's soft stop, lets what runs
/// end, and returns; at the hard stop it returns at once. It is called before
/// anything is published, so that health can be asked from the start.
///
/// # Errors
/// What kept the daemon from starting, or from stopping cleanly.
pub async fn run<S, F>(settings: ServeSettings, serve: S) -> Result<(), Error>
where
    S: FnOnce(Arc<Daemon>, TcpListener) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let data_dir = DataDir::open(&settings.data_dir)?;
    let listener = bind(settings.listen).await?;
    let address = listener
        .local_addr()
        .map_err(|cause| Error::unavailable("the listener has no address").with_cause(cause))?;
    let daemon =
        Arc::new(Daemon::boot_in(data_dir, settings, Arc::new(SystemClock), Arc::new(RandomIds)).await?);
    let serving = tokio::spawn(serve(Arc::clone(&daemon), listener));
    let outcome = supervise(&daemon, address, serving).await;
    if outcome.is_ok() {
        tracing::info!("stopped");
    }
    outcome
}

async fn supervise(daemon: &Daemon, address: SocketAddr, mut serving: JoinHandle<()>) -> Result<(), Error> {
    let lifecycle = daemon.lifecycle();
    let served = match open_up(daemon, address).await {
        Err(error) => Err(error),
        Ok(()) => tokio::select! {
            // A listener without connections ends in the very moment it is told to.
            biased;
            () = lifecycle.soft().cancelled() => Ok(()),
            ended = &mut serving => Err(match ended {
                Ok(()) => Error::unavailable("the listener ended by itself"),
                Err(panic) => Error::unavailable("the listener failed; see the log").with_cause(panic),
            }),
        },
    };
    lifecycle.stop_softly();
    if !serving.is_finished() {
        drain(daemon, &mut serving).await;
    }
    let at_once = lifecycle.hard().is_cancelled();
    let limit = if at_once { CLOSE_AT_ONCE } else { CLOSE_DEADLINE };
    if !serving.is_finished() {
        // Calls that are fenced now have their answer to send before the hard stop
        // cuts their connections. Closing tells what could not be fenced.
        let _told_again_by_close = daemon.close_routes(limit).await;
        let _ = timeout(CLOSE_AT_ONCE, &mut serving).await;
    }
    let closed = daemon.close(limit).await;
    if !serving.is_finished() {
        serving.abort();
    }
    served.and(closed)
}

/// Restores what is installed, and tells clients where to ask. A bootstrap that
/// fails is tried again in the background, so it does not end the process.
async fn open_up(daemon: &Daemon, address: SocketAddr) -> Result<(), Error> {
    let lifecycle = daemon.lifecycle();
    lifecycle.listen_to_signals()?;
    tokio::select! {
        () = lifecycle.soft().cancelled() => return Ok(()),
        restored = daemon.bootstrap(&daemon.settings.scope) => if let Err(error) = restored {
            tracing::error!(code = %error.code, "the bootstrap failed and is tried again: {error}");
        },
    }
    let endpoint = Endpoint::of_this_process(address);
    daemon.data_dir.announce(&endpoint)?;
    tracing::info!(endpoint = endpoint.endpoint, "listening");
    Ok(())
}

/// Waits for running calls, at most until the deadline or the hard stop.
async fn drain(daemon: &Daemon, serving: &mut JoinHandle<()>) {
    let limit = daemon.settings.drain_deadline;
    tokio::select! {
        drained = timeout(limit, serving) => if drained.is_err() {
            tracing::warn!(after_s = limit.as_secs(), "calls are still running; they are fenced");
        },
        () = daemon.lifecycle().hard().cancelled() => {}
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|cause| {
        let message = match cause.kind() {
            ErrorKind::AddrInUse => {
                format!(
                    "{address} is in use; stop what listens there, or choose another address with --listen"
                )
            }
            ErrorKind::PermissionDenied => {
                format!("this user may not listen on {address}; choose a port above 1023 with --listen")
            }
            _ => format!("cannot listen on {address}: {cause}"),
        };
        Error::unavailable(message).with_retryable(false).with_cause(cause)
    })
}
