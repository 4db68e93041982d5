//! `log`: lines for the operator, at most so many a call.

use std::sync::{Arc, Mutex, PoisonError};

use wasmtime::component::HasData;

use crate::sandbox::{bindings::imported::log, counters::Counters, guest_text};

const LINE_BYTES: usize = 8 << 10;
const LINES: u32 = 1_000;
const CALL_BYTES: usize = 256 << 10;

/// How much a line matters, from `log` or from a standard stream.
pub(crate) use log::Level as Severity;

/// The log of one call; standard streams of the guest write here too.
pub(crate) struct CallLog {
    connector: Arc<str>,
    request: String,
    counters: Arc<Counters>,
    budget: Mutex<Budget>,
}

struct Budget {
    lines: u32,
    bytes: usize,
}

impl CallLog {
    /// An empty log.
    pub(crate) fn new(connector: Arc<str>, request: String, counters: Arc<Counters>) -> Self {
        let budget = Mutex::new(Budget { lines: LINES, bytes: CALL_BYTES });
        Self { connector, request, counters, budget }
    }

    /// Writes one line, cuts it, or drops it; each is counted.
    pub(crate) fn line(&self, level: Severity, text: &str) {
        let size = text.len().min(LINE_BYTES);
        let fits = {
            let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = budget.lines > 0 && size <= budget.bytes;
            if fits {
                budget.lines -= 1;
                budget.bytes -= size;
            } else {
                // A later, shorter line must not slip through a hole.
                budget.lines = 0;
            }
            fits
        };
        if !fits {
            self.counters.log_lines_dropped.count();
            return;
        }
        self.counters.log_lines.count();
        if text.len() > LINE_BYTES {
            self.counters.log_lines_cut.count();
        }
        let line = guest_text::plain(text, LINE_BYTES);
        let (connector, request) = (&*self.connector, self.request.as_str());
        macro_rules! emit {
            ($level:ident) => {
                tracing::$level!(target: "connector", { connector.key = connector, request.id = request }, "{line}")
            };
        }
        match level {
            Severity::Trace => emit!(trace),
            Severity::Debug => emit!(debug),
            Severity::Info => emit!(info),
            Severity::Warn => emit!(warn),
            Severity::Error => emit!(error),
        }
    }
}

/// Marks the interface for the linker.
pub(crate) struct Log;

impl HasData for Log {
    type Data<'a> = LogView<'a>;
}

/// What one host call sees.
pub(crate) struct LogView<'a>(pub(crate) &'a CallLog);

impl log::Host for LogView<'_> {
    fn emit(&mut self, level: Severity, message: String) {
        self.0.line(level, &message);
    }
}
