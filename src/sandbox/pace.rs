//! Whether a route's calls are so short that they may begin where they arrive.
//!
//! A call that goes to the guests' threads and back costs two wake-ups, which for
//! a short call is more than the guest itself. So the first poll of a call may run
//! on the caller's thread, as long as the route's polls stay short. A poll ends at
//! the next tick at the latest, and whoever is still running then moves to the
//! guests' threads; a route that abuses this loses it.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

/// A longer poll is not short.
const SHORT: Duration = Duration::from_micros(500);
/// After so many long polls where a short one was expected, none is expected any more.
const STRIKES: u32 = 8;
/// So many short calls make up for one long poll: a busy machine strikes the
/// innocent too.
const FORGIVEN_AFTER: u32 = 1_000;

/// How long the polls of a route's calls were lately.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    short: AtomicBool,
    strikes: AtomicU32,
    calls: AtomicU32,
}

impl Pace {
    /// Whether the next call may begin on its caller's thread.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) && self.strikes.load(Ordering::Relaxed) < STRIKES
    }

    /// Notes one poll. Answers whether it was short.
    pub(crate) fn poll(&self, took: Duration) -> bool {
        let short = took < SHORT;
        if !short && self.short.swap(false, Ordering::Relaxed) {
            self.strikes.fetch_add(1, Ordering::Relaxed);
        }
        short
    }

    /// Notes a call whose polls were all short.
    pub(crate) fn short_call(&self) {
        self.short.store(true, Ordering::Relaxed);
        if self.calls.fetch_add(1, Ordering::Relaxed) % FORGIVEN_AFTER == FORGIVEN_AFTER - 1 {
            let forgive = |strikes: u32| Some(strikes.saturating_sub(1));
            // An update that always has a value never fails.
            let _ = self.strikes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, forgive);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(1);

    #[test]
    fn a_route_is_short_only_after_a_short_call() {
        let pace = Pace::default();
        assert!(!pace.is_short());
        assert!(pace.poll(Duration::from_micros(40)));
        pace.short_call();
        assert!(pace.is_short());
        assert!(!pace.poll(LONG));
        assert!(!pace.is_short());
    }

    #[test]
    fn a_route_that_keeps_deceiving_is_trusted_no_more_until_it_has_made_up_for_it() {
        let pace = Pace::default();
        for _ in 0..STRIKES {
            pace.short_call();
            assert!(pace.is_short());
            pace.poll(LONG);
        }
        pace.short_call();
        assert!(!pace.is_short());
        for _ in 0..FORGIVEN_AFTER {
            pace.short_call();
        }
        assert!(pace.is_short());
    }
}
