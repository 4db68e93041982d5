//! Watches one guest: CPU, deadline, fence, and whether anybody still waits.

use std::{
    future::poll_fn,
    pin::pin,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::pace::Pace;
use crate::domain::error::{Error, ErrorCode};

/// What a guest may use up.
pub(crate) struct Meter<'a> {
    /// CPU: time inside polls of the guest. A poll is no longer than a tick and the
    /// host calls in it, because guests yield at every tick.
    pub(crate) cpu: Duration,
    /// When the call ends, finished or not.
    pub(crate) deadline: tokio::time::Instant,
    /// Cancelled when the route is fenced.
    pub(crate) fenced: Option<&'a CancellationToken>,
    /// Where the length of polls is noted.
    pub(crate) pace: Option<&'a Pace>,
}

impl Meter<'_> {
    /// Runs `guest` to its end or to that of its budget. The caller drops the guest
    /// when this answers with an error.
    ///
    /// # Errors
    /// [`ErrorCode::CapabilityFenced`], [`ErrorCode::CapabilityCpuExhausted`] or
    /// [`ErrorCode::CapabilityDeadlineExceeded`].
    pub(crate) async fn run<T>(&self, guest: impl Future<Output = T>) -> Result<T, Error> {
        let mut guest = pin!(guest);
        let mut timer = pin!(tokio::time::sleep_until(self.deadline));
        let mut fenced = pin!(async {
            match self.fenced {
                Some(token) => token.cancelled().await,
                None => std::future::pending().await,
            }
        });
        let mut spent = Duration::ZERO;
        let mut all_short = true;
        poll_fn(|context| {
            // First, and by a look rather than by a wake: a guest that computes is
            // always awake.
            if self.fenced.is_some_and(CancellationToken::is_cancelled) {
                return Err(fenced_error()).into();
            }
            let begun = Instant::now();
            let polled = guest.as_mut().poll(context);
            let took = begun.elapsed();
            all_short &= self.pace.is_some_and(|pace| pace.poll(took));
            if let std::task::Poll::Ready(output) = polled {
                if let Some(pace) = self.pace.filter(|_| all_short) {
                    pace.short_call();
                }
                return Ok(output).into();
            }
            spent += took;
            if spent >= self.cpu {
                return Err(cpu_error(self.cpu)).into();
            }
            if tokio::time::Instant::now() >= self.deadline || timer.as_mut().poll(context).is_ready() {
                return Err(deadline_error()).into();
            }
            if fenced.as_mut().poll(context).is_ready() {
                return Err(fenced_error()).into();
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// The route was fenced.
pub(crate) fn fenced_error() -> Error {
    Error::new(
        ErrorCode::CapabilityFenced,
        "another generation of the connector took over, or it was switched off, while the call ran; try again",
    )
}

/// The call took too long.
pub(crate) fn deadline_error() -> Error {
    Error::new(ErrorCode::CapabilityDeadlineExceeded, "the call passed its deadline")
}

fn cpu_error(budget: Duration) -> Error {
    Error::new(
        ErrorCode::CapabilityCpuExhausted,
        format!("the connector computed for longer than the {} ms that a call may take", budget.as_millis()),
    )
}
