//! What a guest can call of ours, a file a WIT interface. Each is implemented on a
//! view of the instance that lives as long as one host call.

mod client;
mod log;
mod progress;
mod request;
mod state;

pub(crate) use client::{Client, ClientView};
pub(crate) use log::{CallLog, Log, LogView, Severity};
pub(crate) use progress::{ProgressReports, Reporting, ReportingView};
pub(crate) use request::bound_requests;
pub(crate) use state::{STATE_QUOTA_BYTES, State, StateBuffer, StateView};
