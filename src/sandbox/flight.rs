//! Who is inside a route, so that a fence can shut the door and wait for the last one.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Set once the route is fenced; the other bits count who is inside.
const FENCED: usize = 1 << (usize::BITS - 1);

/// The door of one route.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    state: AtomicUsize,
    fenced: CancellationToken,
    left: Notify,
}

impl Flight {
    /// Goes in, unless the route is fenced.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Passage> {
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        let passage = Passage { flight: Arc::clone(self) };
        // Dropping the passage undoes the count.
        (before & FENCED == 0).then_some(passage)
    }

    /// Shuts the door and cancels who is inside. Repeating it changes nothing.
    pub(crate) fn fence(&self) -> bool {
        let first = self.state.fetch_or(FENCED, Ordering::AcqRel) & FENCED == 0;
        self.fenced.cancel();
        first
    }

    /// Whether the door is shut.
    pub(crate) fn is_fenced(&self) -> bool {
        self.state.load(Ordering::Acquire) & FENCED != 0
    }

    /// Cancelled by the fence.
    pub(crate) fn fenced(&self) -> &CancellationToken {
        &self.fenced
    }

    /// Waits until the door is shut and nobody is inside.
    pub(crate) async fn idle(&self) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.state.load(Ordering::Acquire) == FENCED {
                return;
            }
            left.await;
        }
    }
}

/// Being inside a route: while one is held, the route is not gone.
#[derive(Debug)]
pub(crate) struct Passage {
    flight: Arc<Flight>,
}

impl Passage {
    /// The door.
    pub(crate) fn flight(&self) -> &Flight {
        &self.flight
    }
}

impl Clone for Passage {
    fn clone(&self) -> Self {
        self.flight.state.fetch_add(1, Ordering::AcqRel);
        Self { flight: Arc::clone(&self.flight) }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if self.flight.state.fetch_sub(1, Ordering::AcqRel) == FENCED | 1 {
            self.flight.left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fence_waits_for_the_last_passage_and_lets_nobody_in() {
        let flight = Arc::new(Flight::default());
        let first = flight.enter().expect("an open door");
        let second = first.clone();
        assert!(flight.fence());
        assert!(!flight.fence());
        assert!(flight.enter().is_none());
        assert!(flight.fenced().is_cancelled());
        let mut idle = Box::pin(flight.idle());
        drop(first);
        assert!(futures::poll!(&mut idle).is_pending());
        drop(second);
        idle.await;
    }
}
