//! What the daemon says about itself: the log, and the fields of its spans.
//!
//! What lives here: the subscriber, and the one place that names span fields, so
//! that an operation, a connector or an account looks the same in every line.
//! What may not: a decision, or a secret. An account appears as a hash only.

mod spans;
mod subscriber;

pub use spans::{account_hash, connector_span, operation_span, task_span};
pub use subscriber::{LogFilter, LogFormat, LogSettings, init};
