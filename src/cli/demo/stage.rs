//! Numbered steps with their timings.

use std::time::{Duration, Instant};

use super::super::output::Output;

/// Prints the steps of the story.
pub(super) struct Stage {
    output: Output,
    number: u32,
}

impl Stage {
    pub(super) fn new(output: Output) -> Self {
        Self { output, number: 0 }
    }

    /// Where the story is told.
    pub(super) fn output(&self) -> Output {
        self.output
    }

    /// Begins the next step.
    pub(super) fn step(&mut self, title: &str) {
        self.number += 1;
        self.output.line("");
        self.output.line(format!("{:>2}. {title}", self.number));
    }

    /// Tells something about the step.
    pub(super) fn detail(&self, text: impl AsRef<str>) {
        self.output.line(format!("    {}", text.as_ref()));
    }

    /// Tells something, and how long it took.
    pub(super) fn timed(&self, text: impl AsRef<str>, since: Instant) {
        self.detail(format!("{} ({})", text.as_ref(), duration(since.elapsed())));
    }
}

/// `0.8 ms`, `12 ms`, `3.4 s`.
pub(super) fn duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..10_000 => format!("{}.{} ms", micros / 1000, micros % 1000 / 100),
        10_000..1_000_000 => format!("{} ms", micros / 1000),
        _ => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
    }
}
