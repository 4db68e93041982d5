//! The log: lines for people or for programs, on stderr, behind a filter.

use std::{
    io::{self, IsTerminal},
    str::FromStr,
};

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use crate::domain::error::Error;

/// How the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// What is logged; checked when it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl FromStr for LogFilter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = if text.trim().is_empty() { "info" } else { text.trim() };
        EnvFilter::try_new(text).map_err(|cause| {
            Error::invalid_request(format!(
                "the log filter {text:?} cannot be read; write a level (error, warn, info, debug, trace) \
                 or target=level, separated by commas"
            ))
            .with_cause(cause)
        })?;
        Ok(Self(text.to_owned()))
    }
}

/// How the daemon logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How it looks.
    pub format: LogFormat,
    /// What is logged.
    pub filter: LogFilter,
}

/// Sends what the process logs to stderr, panics included, from now on.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::Unavailable`] when the process logs somewhere already.
pub fn init(settings: &LogSettings) -> Result<(), Error> {
    let filter = EnvFilter::new(&settings.filter.0);
    let lines = match settings.format {
        LogFormat::Human => tracing_subscriber::fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_writer(io::stderr)
            .boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(|cause| {
        Error::unavailable("the log is set up already; it can be set up once a process")
            .with_retryable(false)
            .with_cause(cause)
    })?;
    // A panic is a line of the log as well, in the log's own format.
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("without a message");
        let location = panic.location().map(tracing::field::display);
        tracing::error!(panic.location = location, "panicked: {message}");
    }));
    Ok(())
}
