//! What the sandbox counts. The numbers only grow; whoever shows them reads
//! [`SandboxCounts`].

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counters {
    ($( $(#[$doc:meta])* $name:ident ),* $(,)?) => {
        /// The live counters.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $( $(#[$doc])* pub(crate) $name: Counter, )*
        }

        /// The counters as they stood at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct SandboxCounts {
            $( $(#[$doc])* pub $name: u64, )*
        }

        impl Counters {
            /// Reads all counters.
            pub(crate) fn read(&self) -> SandboxCounts {
                SandboxCounts { $( $name: self.$name.0.load(Ordering::Relaxed), )* }
            }
        }
    };
}

counters! {
    /// Compiled components that came from the cache.
    cache_hits,
    /// Components that had to be compiled.
    cache_misses,
    /// Cached files that were not what was recorded, and were compiled again.
    cache_damaged,
    /// Instances that were made.
    instances,
    /// Routes that were fenced.
    fences,
    /// Outgoing requests that were refused.
    egress_refusals,
    /// Outgoing requests that left.
    egress_requests,
    /// Log lines of guests that were passed on.
    log_lines,
    /// Log lines of guests that were cut.
    log_lines_cut,
    /// Log lines of guests that were dropped.
    log_lines_dropped,
    /// Progress reports that were delivered.
    progress_reports,
    /// Progress reports that were merged into a later one.
    progress_merged,
}

/// One number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub(crate) fn count(&self) {
        self.add(1);
    }

    /// Adds `amount`.
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }
}
