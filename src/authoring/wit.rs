//! The WIT contract that this program carries: for the checks here, and for
//! authors, whose guests are built against it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::files;
use crate::domain::error::Error;

/// The version of the contract.
pub const VERSION: &str = "0.1.0";

/// The files of the contract by their names.
pub const SOURCES: [(&str, &str); 5] = [
    ("types.wit", include_str!("../../wit/0.1.0/types.wit")),
    ("capabilities.wit", include_str!("../../wit/0.1.0/capabilities.wit")),
    ("authorization.wit", include_str!("../../wit/0.1.0/authorization.wit")),
    ("host.wit", include_str!("../../wit/0.1.0/host.wit")),
    ("worlds.wit", include_str!("../../wit/0.1.0/worlds.wit")),
];

/// How far below a guest's `src` its sources are looked for.
const SOURCE_DEPTH: usize = 4;

/// The contract in a folder.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WitWritten {
    /// The folder.
    pub folder: PathBuf,
    /// The version of the contract.
    pub version: &'static str,
    /// The files that were written; those that were there already are not named.
    pub written: Vec<&'static str>,
}

/// Writes the contract into `folder`. What is there already and the same stays.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::InvalidRequest`] naming every file that
/// would be overwritten with something else, or read as a part of the contract
/// without being one. Nothing is written then.
pub fn write(folder: &Path) -> Result<WitWritten, Error> {
    let unreadable = |cause: std::io::Error| {
        Error::invalid_request(format!("cannot read the folder {}: {cause}", folder.display()))
            .with_cause(cause)
    };
    let mut present = Vec::new();
    let mut foreign = Vec::new();
    if folder.exists() {
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match SOURCES.iter().find(|(source, _)| *source == name) {
                Some((source, text)) if path.is_file() && files::read(&path)? == text.as_bytes() => {
                    present.push(*source);
                }
                Some(_) => foreign.push(name),
                None if path.extension().is_some_and(|end| end == "wit") => foreign.push(name),
                None => {}
            }
        }
    }
    if !foreign.is_empty() {
        foreign.sort();
        return Err(Error::invalid_request(format!(
            "{} holds other WIT than the contract {VERSION}: {}; name an empty folder, or remove them",
            folder.display(),
            foreign.join(", ")
        )));
    }
    let mut written = Vec::new();
    for (name, text) in SOURCES {
        if !present.contains(&name) {
            files::write_atomically(&folder.join(name), text.as_bytes())?;
            written.push(name);
        }
    }
    Ok(WitWritten { folder: folder.to_owned(), version: VERSION, written })
}

/// A folder of WIT that the guest crate in `folder` names in `generate!` and that
/// is not there. It explains a failed build and decides nothing, so a plain
/// search of the text is enough.
pub(super) fn missing(folder: &Path) -> Option<PathBuf> {
    let mut waiting = vec![(folder.join("src"), 0)];
    while let Some((sources, depth)) = waiting.pop() {
        for entry in fs::read_dir(&sources).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if depth < SOURCE_DEPTH {
                    waiting.push((path, depth + 1));
                }
            } else if path.extension().is_some_and(|end| end == "rs")
                && let Ok(text) = files::read(&path)
                && let Some(missing) = named(&String::from_utf8_lossy(&text))
                    .into_iter()
                    .find(|named| !folder.join(named).exists())
            {
                return Some(PathBuf::from(missing));
            }
        }
    }
    None
}

/// The folders that the calls of `generate!` in `source` read.
fn named(source: &str) -> Vec<String> {
    let mut folders = Vec::new();
    let code: Vec<&str> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    for call in code.split("generate!").skip(1) {
        let call = call.split(';').next().unwrap_or_default();
        if call.contains("inline:") {
            continue;
        }
        let Some((_, value)) = call.split_once("path:") else {
            // Without one, wit-bindgen reads this folder.
            folders.push("wit".to_owned());
            continue;
        };
        let value = value.trim_start();
        let literals = |text: &str, most: usize| -> Vec<String> {
            text.split('"').skip(1).step_by(2).take(most).map(str::to_owned).collect()
        };
        match value.strip_prefix('[') {
            Some(list) => {
                folders.extend(literals(list.split(']').next().unwrap_or_default(), usize::MAX));
            }
            None if value.starts_with('"') => folders.extend(literals(value, 1)),
            None => {}
        }
    }
    folders
}
