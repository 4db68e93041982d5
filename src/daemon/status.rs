//! What each background task last did, and whether the daemon is ready.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::domain::{error::ErrorCode, timestamp::Timestamp};

/// What a task's last failure was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskFailure {
    /// The code; none when the task panicked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// What was wrong.
    pub message: String,
    /// When.
    pub at: Timestamp,
}

/// What one background task does and did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    /// Its name.
    pub name: &'static str,
    /// How often it was activated.
    pub activations: u64,
    /// Since when its current activation runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Timestamp>,
    /// When its last activation ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ended_at: Option<Timestamp>,
    /// How many things its last successful activation did.
    pub last_done: u64,
    /// How many activations in a row failed.
    pub failures: u32,
    /// How often it panicked and was started again.
    pub panics: u32,
    /// The last failure, also after it was overcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<TaskFailure>,
}

/// How the daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Whether it answers calls: bootstrapped, open, and not stopping.
    pub ready: bool,
    /// Whether what was installed was recovered for the active account.
    pub bootstrapped: bool,
    /// Whether it is stopping.
    pub stopping: bool,
    /// Why the last bootstrap failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_failure: Option<TaskFailure>,
    /// Connectors whose start is still being planned.
    pub connectors_planned_later: usize,
    /// The background tasks.
    pub tasks: Vec<TaskStatus>,
}

impl Health {
    /// What it waits for, in words; none when it is ready.
    #[must_use]
    pub fn waiting_for(&self) -> Option<String> {
        if self.ready {
            None
        } else if self.stopping {
            Some("the daemon is stopping".to_owned())
        } else if let Some(failure) = &self.bootstrap_failure {
            Some(format!("the last bootstrap failed: {}", failure.message))
        } else {
            Some("a bootstrap: what is installed is not restored yet, or was fenced".to_owned())
        }
    }
}

/// A task's status, written by the driver, read by anyone.
#[derive(Clone, Debug)]
pub struct StatusCell(Arc<Mutex<TaskStatus>>);

impl StatusCell {
    pub(super) fn new(name: &'static str) -> Self {
        Self(Arc::new(Mutex::new(TaskStatus {
            name,
            activations: 0,
            running_since: None,
            last_ended_at: None,
            last_done: 0,
            failures: 0,
            panics: 0,
            last_failure: None,
        })))
    }

    /// The status as of now.
    #[must_use]
    pub fn read(&self) -> TaskStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut TaskStatus)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
