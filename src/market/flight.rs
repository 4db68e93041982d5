//! One flight per operation in this process: who comes later shares its outcome.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::domain::{error::Error, id::OperationId};

type Outcome = Option<Result<(), Arc<Error>>>;

/// The operations that run in this process now.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<OperationId, watch::Receiver<Outcome>>>);

/// What a caller is to an operation.
pub(super) enum Place<'a> {
    /// The one who executes it.
    Leader(Flight<'a>),
    /// One who waits for the leader.
    Follower(watch::Receiver<Outcome>),
}

/// The leader's duty to tell how it ended. A leader that is dropped before lets
/// one of its followers lead.
pub(super) struct Flight<'a> {
    flights: &'a Flights,
    id: OperationId,
    landed: watch::Sender<Outcome>,
}

impl Flights {
    /// Joins the flight of `id`, or starts it.
    pub(super) fn join(&self, id: &OperationId) -> Place<'_> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(id) {
            return Place::Follower(flight.clone());
        }
        let (landed, waiting) = watch::channel(None);
        flights.insert(id.clone(), waiting);
        Place::Leader(Flight { flights: self, id: id.clone(), landed })
    }
}

impl Flight<'_> {
    /// Tells the followers how it ended, and passes it on.
    pub(super) fn land(self, outcome: Result<(), Error>) -> Result<(), Error> {
        let shared = outcome.map_err(Arc::new);
        // A flight is off the board before it is reported, so that whoever asks
        // again after the report starts a new one.
        self.leave();
        self.landed.send_replace(Some(shared.clone()));
        drop(self);
        shared.map_err(|error| Arc::try_unwrap(error).unwrap_or_else(|error| copy(&error)))
    }

    fn leave(&self) {
        self.flights.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if self.landed.borrow().is_none() {
            self.leave();
        }
    }
}

/// Waits for the leader; none when it was dropped before it landed.
pub(super) async fn follow(mut flight: watch::Receiver<Outcome>) -> Option<Result<(), Error>> {
    let landed = flight.wait_for(Option::is_some).await.ok()?;
    Some(landed.clone()?.map_err(|error| copy(&error)))
}

/// What a follower gets: the error, and the most specific one behind it.
fn copy(error: &Error) -> Error {
    let plain = |error: &Error| Error::new(error.code, error.message.clone()).with_retryable(error.retryable);
    let innermost = error.innermost();
    if std::ptr::eq(error, innermost) { plain(error) } else { plain(error).with_cause(plain(innermost)) }
}
