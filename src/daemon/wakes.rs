//! The wake-ups of all tasks, in one place.

use super::driver::Wake;

/// One wake-up a task.
#[derive(Clone, Debug, Default)]
pub struct Wakes {
    /// There may be events to announce.
    pub outbox: Wake,
    /// There may be operations to take up again.
    pub recovery: Wake,
    /// There may be connectors whose start has to be planned.
    pub planning: Wake,
    /// There may be routes that are not what they should be.
    pub convergence: Wake,
    /// The catalog may be read.
    pub catalog: Wake,
    /// There may be something to forget.
    pub cleanup: Wake,
    /// A bootstrap may have to be tried again.
    pub bootstrap: Wake,
}
