//! `portcullis serve`.

use std::sync::Arc;

use tokio::net::TcpListener;

use super::exit::Failure;
use crate::{
    api::{self, ApiState, Shutdown},
    config::{ServeArgs, ServeSettings},
    daemon::{self, Daemon},
    domain::error::Error,
    telemetry,
};

pub(super) fn run(args: ServeArgs) -> Result<(), Failure> {
    let settings = ServeSettings::resolve(args)?;
    telemetry::init(&settings.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|cause| Failure::unexpected(format!("the runtime does not start: {cause}")))?;
    runtime.block_on(daemon::run(settings, serve))?;
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
