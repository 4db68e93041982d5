//! What a local command answers: text for people and the same as JSON.

use serde::Serialize;
use serde_json::Value;

use crate::domain::error::Error;

/// An answer in both forms.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// For people; lines without a newline at the end.
    pub human: String,
    /// For programs.
    pub json: Value,
}

impl Report {
    /// Pairs a text with the value that it describes.
    ///
    /// # Errors
    /// When the value has no JSON form.
    pub fn new<T: Serialize>(human: String, value: &T) -> Result<Self, Error> {
        let json = serde_json::to_value(value).map_err(|cause| {
            Error::invalid_request("the answer cannot be written as JSON").with_cause(cause)
        })?;
        Ok(Self { human, json })
    }
}

/// `bytes` as a person reads it.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit, name) in UNITS {
        if bytes >= unit {
            let tenths = (u128::from(bytes) * 10 + u128::from(unit) / 2) / u128::from(unit);
            let (whole, rest) = (tenths / 10, tenths % 10);
            return if rest == 0 { format!("{whole} {name}") } else { format!("{whole}.{rest} {name}") };
        }
    }
    format!("{bytes} bytes")
}

/// What a stranger wrote, without the control characters that move a terminal's cursor.
#[must_use]
pub fn shown(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect()
}
