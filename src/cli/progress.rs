//! What a person sees while an operation runs: a spinner on a terminal, nothing
//! elsewhere.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

use super::output::{Output, headline};
use crate::api::dto;

/// A spinner, or nothing.
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(super) fn start(output: Output, what: &str) -> Self {
        if output.is_json() || !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(Some(bar))
    }

    /// Shows where the operation stands and why its last attempt ended.
    pub(super) fn show(&self, operation: &dto::Operation) {
        let Some(bar) = &self.0 else { return };
        let mut message = format!("{}: {}", word(&operation.kind), word(&operation.stage));
        if operation.attempt > 1 {
            message = format!("{message}, attempt {}", operation.attempt);
        }
        if let Some(failure) = &operation.failure {
            message = format!("{message}; last: {}", headline(&failure.message, 80));
        }
        bar.set_message(message.chars().filter(|character| !character.is_control()).collect::<String>());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// A wire name as words.
pub(super) fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name.replace('_', " "),
        _ => String::new(),
    }
}
