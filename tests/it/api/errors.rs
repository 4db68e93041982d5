//! The error map: every code has a status and an exit code, and readers are told.

use std::{collections::BTreeMap, fs, path::Path};

use portcullis::{
    api::error::status,
    cli::{Exit, exit_of},
    domain::error::ErrorCode,
};

/// The rows of `docs/errors.md`: code to status, exit code and retryability.
fn documented() -> BTreeMap<String, (u16, u8, bool)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
    let text = fs::read_to_string(path).unwrap();
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [code, status, exit, retryable, meaning] = cells.as_slice() else { panic!("{line}") };
        assert!(!meaning.is_empty(), "{line}");
        let row = (status.parse().unwrap(), exit.parse().unwrap(), *retryable == "yes");
        let code = code.trim_matches('`').to_owned();
        assert!(rows.insert(code, row).is_none(), "listed twice: {line}");
    }
    rows
}

#[test]
fn the_document_lists_every_code_with_what_is_true_of_it() {
    let expected: BTreeMap<String, (u16, u8, bool)> = ErrorCode::ALL
        .iter()
        .map(|code| {
            (code.as_str().to_owned(), (status(*code).as_u16(), exit_of(*code) as u8, code.retryable()))
        })
        .collect();
    assert_eq!(documented(), expected);
}

#[test]
fn every_code_is_an_error_to_programs_too() {
    for code in ErrorCode::ALL {
        assert!(status(*code).is_client_error() || status(*code).is_server_error(), "{code}");
        assert!(!matches!(exit_of(*code), Exit::Ok | Exit::Usage | Exit::Unreachable), "{code}");
    }
}
