//! Memory and tables of one instance.

use wasmtime::ResourceLimiter;

use crate::domain::manifest::EffectiveLimits;

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
}

impl Limiter {
    /// A limiter for one call.
    pub(crate) fn new(limits: &EffectiveLimits) -> Self {
        Self {
            memory_limit: usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX),
            memory_used: 0,
            table_limit: usize::try_from(limits.table_elements).unwrap_or(usize::MAX),
            table_used: 0,
            memory_refused: false,
        }
    }

    /// Whether the guest asked for more memory than it may have.
    pub(crate) fn memory_refused(&self) -> bool {
        self.memory_refused
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
        let fits = possible && grow(&mut self.memory_used, self.memory_limit, current, desired);
        self.memory_refused |= !fits;
        Ok(fits)
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
        Limiter::new(&EffectiveLimits { memory_bytes: 100, table_elements: 10, ..EffectiveLimits::default() })
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
