//! `progress`: reports to the caller, merged when they come too fast.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use wasmtime::component::HasData;

use crate::{
    domain::capability::Progress,
    sandbox::{bindings::imported::progress, counters::Counters, flight::Passage, guest_text},
};

/// At most 100 reports a second reach the caller.
const INTERVAL: Duration = Duration::from_millis(10);

/// Where a caller takes reports.
pub(crate) type Listener = Arc<dyn Fn(Progress) + Send + Sync>;

/// The reports of one call.
pub(crate) struct ProgressReports {
    listener: Option<Listener>,
    passage: Option<Passage>,
    counters: Arc<Counters>,
    delivered: Option<Instant>,
    done: f64,
    waiting: Option<Progress>,
}

impl ProgressReports {
    /// Reports to `listener`, as long as the route is not fenced.
    pub(crate) fn new(listener: Option<Listener>, passage: Option<Passage>, counters: Arc<Counters>) -> Self {
        Self { listener, passage, counters, delivered: None, done: f64::NEG_INFINITY, waiting: None }
    }

    /// Delivers what was merged last.
    pub(crate) fn flush(&mut self) {
        if let Some(report) = self.waiting.take() {
            self.deliver(report);
        }
    }

    fn take(&mut self, report: Progress) {
        // A report that goes back or is no number says nothing.
        if !report.done.is_finite() || report.done < self.done {
            return;
        }
        self.done = report.done;
        if self.delivered.is_some_and(|last| last.elapsed() < INTERVAL) {
            if self.waiting.replace(report).is_some() {
                self.counters.progress_merged.count();
            }
            return;
        }
        if self.waiting.take().is_some() {
            self.counters.progress_merged.count();
        }
        self.deliver(report);
    }

    fn deliver(&mut self, report: Progress) {
        let fenced = self.passage.as_ref().is_none_or(|passage| passage.flight().is_fenced());
        if let Some(listener) = self.listener.as_ref().filter(|_| !fenced) {
            listener(report);
            self.counters.progress_reports.count();
        }
        self.delivered = Some(Instant::now());
    }
}

/// Marks the interface for the linker.
pub(crate) struct Reporting;

impl HasData for Reporting {
    type Data<'a> = ReportingView<'a>;
}

/// What one host call sees.
pub(crate) struct ReportingView<'a>(pub(crate) &'a mut ProgressReports);

impl progress::Host for ReportingView<'_> {
    fn report(&mut self, done: f64, total: Option<f64>, message: Option<String>) {
        if self.0.listener.is_some() {
            self.0.take(Progress {
                done,
                total: total.filter(|total| total.is_finite()),
                message: message.map(|text| guest_text::plain(&text, guest_text::MESSAGE_BYTES)),
            });
        }
    }
}
