//! `portcullis serve`.

use std::{sync::Arc, time::Duration};

use tokio::net::TcpListener;

use super::exit::Failure;
use crate::{
    api::{self, ApiState, Shutdown},
    config::{ServeArgs, ServeSettings},
    daemon::{self, Daemon},
    domain::error::Error,
    telemetry,
};

/// How long threads that still block get to end after everything is closed.
const THREADS_LEFT: Duration = Duration::from_secs(1);

pub(super) fn run(args: ServeArgs) -> Result<(), Failure> {
    let mut settings = ServeSettings::resolve(args)?;
    let this_program = std::env::current_exe()
        .map_err(|cause| Failure::unexpected(format!("this program's own file cannot be found: {cause}")))?;
    settings.compiler = Some(this_program);
    telemetry::init(&settings.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|cause| Failure::unexpected(format!("the runtime does not start: {cause}")))?;
    let outcome = runtime.block_on(daemon::run(settings, serve));
    // What blocks a thread cannot be ended, and must not keep the process.
    runtime.shutdown_timeout(THREADS_LEFT);
    outcome?;
    Ok(())
}

async fn serve(daemon: Arc<Daemon>, listener: TcpListener) {
    let lifecycle = daemon.lifecycle();
    let shutdown = Shutdown { soft: lifecycle.soft().clone(), hard: lifecycle.hard().clone() };
    match listener.local_addr() {
        Ok(address) => api::serve(listener, ApiState::of(daemon, address), shutdown).await,
        Err(cause) => {
            let error = Error::unavailable("the listener has no address").with_cause(cause);
            tracing::error!(code = %error.code, "{error}");
        }
    }
}
