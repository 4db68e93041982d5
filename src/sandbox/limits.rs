//! Memory and tables of one instance, and the memory of all of them together.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use wasmtime::ResourceLimiter;

use crate::domain::manifest::EffectiveLimits;

/// The budget where the machine does not say how much memory it has.
const UNKNOWN_BUDGET: u64 = 4 << 30;

/// Memory that all guests together may still take. What they use counts, not what they
/// might: many calls that wait fit beside each other.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU64);

impl Budget {
    /// A budget of which nothing is taken.
    pub(crate) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    fn take(&self, bytes: u64) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Half of the memory that this process may have.
pub(super) fn default_budget() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = text.lines().find_map(|line| {
        let kib = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?;
        kib.trim().parse::<u64>().ok()?.checked_mul(1_024)
    });
    let group =
        fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse::<u64>().ok());
    machine.into_iter().chain(group).min().map_or(UNKNOWN_BUDGET, |bytes| (bytes / 2).max(64 << 20))
}

/// Holds one store to its limits, over all of its memories and tables together,
/// and remembers whether memory was refused: a guest that asks in vain mostly traps
/// in a way that does not say why.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory_limit: usize,
    memory_used: usize,
    table_limit: usize,
    table_used: usize,
    memory_refused: bool,
    budget: Arc<Budget>,
    budget_refused: bool,
}

impl Limiter {
    /// A limiter for one call.
    pub(crate) fn new(limits: &EffectiveLimits, budget: &Arc<Budget>) -> Self {
        Self {
            memory_limit: usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX),
            memory_used: 0,
            table_limit: usize::try_from(limits.table_elements).unwrap_or(usize::MAX),
            table_used: 0,
            memory_refused: false,
            budget: Arc::clone(budget),
            budget_refused: false,
        }
    }

    /// Whether the guest asked for more memory than it may have.
    pub(crate) fn memory_refused(&self) -> bool {
        self.memory_refused
    }

    /// Whether memory was refused that the guest may have, because others have it.
    pub(crate) fn budget_refused(&self) -> bool {
        self.budget_refused
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.budget.give_back(self.memory_used as u64);
    }
}

/// Adds a growth to what is used, if it stays within the limit.
fn grow(used: &mut usize, limit: usize, current: usize, desired: usize) -> bool {
    let total = used.saturating_add(desired.saturating_sub(current));
    let fits = total <= limit;
    if fits {
        *used = total;
    }
    fits
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let possible = maximum.is_none_or(|maximum| desired <= maximum);
        let before = self.memory_used;
        let fits = possible && grow(&mut self.memory_used, self.memory_limit, current, desired);
        self.memory_refused |= !fits;
        let granted = fits && self.budget.take((self.memory_used - before) as u64);
        if fits && !granted {
            self.memory_used = before;
            self.budget_refused = true;
        }
        Ok(granted)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let possible = maximum.is_none_or(|maximum| desired <= maximum);
        Ok(possible && grow(&mut self.table_used, self.table_limit, current, desired))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> Limiter {
        within(&Arc::new(Budget::new(1_000)))
    }

    fn within(budget: &Arc<Budget>) -> Limiter {
        let limits = EffectiveLimits { memory_bytes: 100, table_elements: 10, ..EffectiveLimits::default() };
        Limiter::new(&limits, budget)
    }

    #[test]
    fn calls_share_one_budget_and_give_back_what_they_had() {
        let budget = Arc::new(Budget::new(150));
        let (mut one, mut other) = (within(&budget), within(&budget));
        assert!(one.memory_growing(0, 90, None).unwrap());
        assert!(!other.memory_growing(0, 90, None).unwrap());
        assert!(other.budget_refused() && !other.memory_refused());
        assert!(other.memory_growing(0, 60, None).unwrap(), "a refused growth costs nothing");
        drop(one);
        assert!(other.memory_growing(60, 100, None).unwrap());
        drop(other);
        assert_eq!(budget.0.load(Ordering::Relaxed), 150);
    }

    #[test]
    fn two_memories_share_one_limit() {
        let mut limiter = limiter();
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(!limiter.memory_refused());
        assert!(!limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_refused());
        assert!(limiter.memory_growing(60, 100, None).unwrap(), "a refused growth costs nothing");
    }

    #[test]
    fn a_growth_past_the_own_maximum_is_not_counted() {
        let mut limiter = limiter();
        assert!(!limiter.table_growing(0, 5, Some(4)).unwrap());
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(!limiter.table_growing(10, 11, None).unwrap());
    }
}
