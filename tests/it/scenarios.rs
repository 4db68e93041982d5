//! The table of scenarios in the docs of [`crate::market`] names tests that exist, and
//! leaves no scenario out.

use std::{collections::BTreeSet, fs, path::Path};

const TABLE: &str = include_str!("market/mod.rs");

/// The rows: the lines of section J, and where they are told.
fn rows() -> Vec<(Vec<u16>, &'static str)> {
    let row = |line: &'static str| {
        let (lines, told) = line.strip_prefix("//! | ")?.strip_suffix(" |")?.split_once(" | ")?;
        Some((numbers(lines)?, told))
    };
    TABLE.lines().filter_map(row).collect()
}

/// `1, 3 to 5` is 1, 3, 4 and 5; none for a heading.
fn numbers(text: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for part in text.split(", ") {
        let (from, to) = part.split_once(" to ").unwrap_or((part, part));
        numbers.extend(from.parse::<u16>().ok()?..=to.parse().ok()?);
    }
    Some(numbers)
}

/// The text of a module's file: of the market, else below `tests/it`, else below `src`.
fn module(path: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = path.replace("::", "/") + ".rs";
    ["tests/it/market", "tests/it", "src"]
        .iter()
        .find_map(|folder| fs::read_to_string(root.join(folder).join(&file)).ok())
}

/// The file of a module that is named, or of the test's.
fn exists(path: &str) -> bool {
    if module(path).is_some() {
        return true;
    }
    path.rsplit_once("::")
        .and_then(|(parent, name)| Some(module(parent)?.contains(&format!("fn {name}("))))
        .unwrap_or(false)
}

#[test]
fn every_test_that_is_named_exists() {
    let named: Vec<&str> = rows().iter().flat_map(|(_, told)| told.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 150, "the table is read: {}", named.len());
    let missing: Vec<_> = named.into_iter().filter(|path| !exists(path)).collect();
    assert!(missing.is_empty(), "the table names what does not exist: {missing:#?}");
}

#[test]
fn a_test_that_bears_a_number_is_told_at_that_line() {
    let rows = rows();
    for path in rows.iter().flat_map(|(_, told)| told.split('`').skip(1).step_by(2)) {
        let name = path.rsplit("::").next().unwrap_or(path);
        let borne = name.split('_').filter_map(|part| part.strip_prefix('s')?.parse::<u16>().ok());
        for line in borne {
            let there = rows.iter().any(|(lines, told)| lines.contains(&line) && told.contains(path));
            assert!(there, "{path} is not told at {line}");
        }
    }
}

#[test]
fn no_scenario_is_left_out() {
    let told: BTreeSet<u16> = rows().into_iter().flat_map(|(lines, _)| lines).collect();
    let missing: Vec<u16> = (1..=406).filter(|line| !told.contains(line)).collect();
    assert!(missing.is_empty(), "the table leaves out {missing:?}");
}
