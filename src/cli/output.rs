//! What people and programs see. Results go to standard output, everything said
//! about them to standard error; `--json` leaves one JSON document on standard
//! output, or one on standard error when the command failed.

use std::io::{self, IsTerminal as _};

use serde::Serialize;
use serde_json::{Value, json};

use super::exit::Failure;

/// Where a command writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    json: bool,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether a program reads.
    pub(super) fn is_json(self) -> bool {
        self.json
    }

    /// A line of the result, for people.
    pub(super) fn line(self, text: impl AsRef<str>) {
        if !self.json {
            write(&mut io::stdout(), &clean(text.as_ref()));
        }
    }

    /// A line about the work, for people.
    pub(super) fn note(self, text: impl AsRef<str>) {
        if !self.json {
            write(&mut io::stderr(), &clean(text.as_ref()));
        }
    }

    /// The result, for programs.
    pub(super) fn document<T: Serialize>(self, value: &T) {
        if self.json {
            write(&mut io::stdout(), &serde_json::to_string_pretty(value).unwrap_or_default());
        }
    }

    /// Text that a connector wrote. On a terminal its control characters are
    /// replaced; a pipe gets it as it is.
    pub(super) fn content(self, text: &str) {
        if io::stdout().is_terminal() {
            write(&mut io::stdout(), &clean(text));
        } else {
            write(&mut io::stdout(), text);
        }
    }

    /// Columns, aligned, under `head`.
    pub(super) fn table<const N: usize>(self, head: [&str; N], rows: &[[String; N]]) {
        let mut widths = head.map(|cell| cell.chars().count());
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let print = |row: [&str; N]| {
            let cells: Vec<String> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            self.line(cells.join("  ").trim_end());
        };
        print(head);
        for row in rows {
            print(row.each_ref().map(String::as_str));
        }
    }

    /// Why the command failed, and what to do.
    pub(super) fn failure(self, failure: &Failure) {
        if self.json {
            let document = json!({
                "code": failure.code,
                "message": failure.message,
                "retryable": failure.retryable,
                "hint": failure.hint,
                "requestId": failure.request_id,
                "exit": failure.exit as u8,
            });
            let present: serde_json::Map<String, Value> = match document {
                Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
                _ => serde_json::Map::new(),
            };
            write(&mut io::stderr(), &serde_json::to_string_pretty(&present).unwrap_or_default());
            return;
        }
        let code = failure.code.as_ref().map(|code| format!(" [{code}]")).unwrap_or_default();
        self.note(format!("error: {}{code}", failure.message));
        if let Some(hint) = &failure.hint {
            self.note(format!("  {hint}"));
        }
    }
}

/// A reader that went away ends nothing: there is nobody left to tell.
fn write(to: &mut dyn io::Write, text: &str) {
    let _ = writeln!(to, "{text}").and_then(|()| to.flush());
}

/// Keeps text from steering the terminal: other people's words are printed here.
fn clean(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\n' | '\t' => character,
            // Also the marks that turn the direction of what follows.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            character if character.is_control() => '\u{fffd}',
            character => character,
        })
        .collect()
}

/// The first line of a text, shortened where a terminal has only so much room.
pub(super) fn cell(text: &str, characters: usize) -> String {
    headline(text, if io::stdout().is_terminal() { characters } else { usize::MAX })
}

/// The first line of a text, shortened.
pub(super) fn headline(text: &str, characters: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= characters {
        line.to_owned()
    } else {
        let short: String = line.chars().take(characters.saturating_sub(1)).collect();
        format!("{short}…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_peoples_words_do_not_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\u{202e}c\r\nd\te"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}\nd\te");
    }
}
