//! The house keeps its floors: nothing points back up, each engine stays on its
//! floor, and files stay short enough to read.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The floors from the ground up, and what each may use beside the ones below it.
/// A floor that is not there yet may be named already.
const FLOORS: [&str; 14] = [
    "domain",
    "ports",
    "artifacts",
    "market",
    "connections",
    "store",
    "remote",
    "sandbox",
    "authoring",
    "conformance",
    "config",
    "daemon",
    "api",
    "cli",
];

/// Crates that only the named floors may use.
const RESERVED: [(&str, &[&str]); 5] = [
    ("sqlx", &["store"]),
    ("wasmtime", &["sandbox", "conformance"]),
    ("axum", &["api", "daemon", "cli"]),
    ("clap", &["config", "cli"]),
    (
        "tokio",
        &[
            "ports",
            "artifacts",
            "market",
            "connections",
            "store",
            "remote",
            "sandbox",
            "daemon",
            "api",
            "cli",
            "config",
        ],
    ),
];

const LONGEST_FILE: usize = 500;

#[test]
fn a_floor_uses_only_floors_below_it() {
    let mut wrong = Vec::new();
    for (floor, path, text) in sources() {
        let Some(level) = FLOORS.iter().position(|name| *name == floor) else { continue };
        for used in crate_paths(&text) {
            if let Some(other) = FLOORS.iter().position(|name| *name == used)
                && other > level
            {
                wrong.push(format!("{} uses crate::{used}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "these point back up:\n{}", wrong.join("\n"));
}

#[test]
fn each_engine_stays_on_its_floor() {
    let mut wrong = Vec::new();
    for (floor, path, text) in sources() {
        for (engine, floors) in RESERVED {
            let uses = [
                format!("use {engine}::"),
                format!(" {engine}::"),
                format!("({engine}::"),
                format!("<{engine}::"),
            ];
            if !floors.contains(&floor.as_str())
                && floor != "telemetry"
                && uses.iter().any(|one| text.contains(one))
            {
                wrong.push(format!("{} uses {engine}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "these use what is not theirs:\n{}", wrong.join("\n"));
}

#[test]
fn every_floor_is_known() {
    let known: Vec<&str> = FLOORS.iter().copied().chain(["telemetry", "lib", "main"]).collect();
    let unknown: Vec<String> = sources()
        .into_iter()
        .map(|(floor, ..)| floor)
        .filter(|floor| !known.contains(&floor.as_str()))
        .collect();
    assert!(unknown.is_empty(), "put these into the table of floors: {unknown:?}");
}

#[test]
fn no_file_is_too_long_to_read() {
    let long: BTreeMap<String, usize> = sources()
        .into_iter()
        .map(|(_, path, text)| (path.display().to_string(), text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST_FILE)
        .collect();
    assert!(long.is_empty(), "split these by noun or verb: {long:?}");
}

/// Every source file: its floor, its path, its code without comments.
fn sources() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the source folder can be read") {
            let path = entry.expect("an entry of the source folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path.strip_prefix(&root).expect("a path under src").to_path_buf();
                let floor = relative.components().next().expect("a first component").as_os_str();
                let floor = Path::new(floor).file_stem().expect("a name").to_string_lossy().into_owned();
                let text = fs::read_to_string(&path).expect("a source file is text");
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                found.push((floor, relative, code.collect::<Vec<_>>().join("\n")));
            }
        }
    }
    assert!(found.len() > 20, "the source folder was found");
    found
}

/// The first segment after every `crate::`, those in a grouped import included.
fn crate_paths(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0_usize;
            let mut item = String::new();
            for character in group.chars() {
                match character {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => used.push(std::mem::take(&mut item)),
                    _ if depth == 0 => item.push(character),
                    _ => {}
                }
            }
            used.push(item);
        } else {
            used.push(rest.chars().take_while(|one| one.is_alphanumeric() || *one == '_').collect());
        }
    }
    used.into_iter().map(|path| path.trim().split("::").next().unwrap_or_default().to_owned()).collect()
}
