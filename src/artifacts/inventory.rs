//! What a folder holds, as one digest.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use sha2::{Digest as _, Sha256};

use super::disk;
use crate::domain::digest::Sha256Digest;

/// Why a folder has no inventory.
#[derive(Debug)]
pub(super) enum Damage {
    /// There is none.
    Absent,
    /// It is not what was put there; a stable word says why.
    Invalid(&'static str),
    /// It cannot be told now.
    Unreadable(io::Error),
}

impl From<io::Error> for Damage {
    fn from(cause: io::Error) -> Self {
        Self::Unreadable(cause)
    }
}

/// One thing in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Folder,
    File { size: u64, sha256: Sha256Digest },
}

/// Every path in a folder with its type, size and contents, sorted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inventory(BTreeMap<String, Item>);

impl Inventory {
    /// Reads everything in `root`.
    pub(super) fn of(root: &Path, max_entries: usize) -> Result<Self, Damage> {
        let mut items = BTreeMap::new();
        walk(root, max_entries, |relative, path, metadata| {
            let item = if metadata.is_dir() {
                Item::Folder
            } else {
                let (size, sha256) = disk::hash_file(path)?;
                Item::File { size, sha256 }
            };
            items.insert(relative.to_owned(), item);
            Ok(())
        })?;
        Ok(Self(items))
    }

    /// SHA-256 over sorted paths, types, sizes and contents.
    pub(super) fn digest(&self) -> Sha256Digest {
        let mut hasher = Sha256::new();
        for (path, item) in &self.0 {
            match item {
                Item::Folder => hasher.update(format!("folder\0{path}\0\n")),
                Item::File { size, sha256 } => hasher.update(format!("file\0{path}\0{size}\0{sha256}\n")),
            }
        }
        Sha256Digest::from_bytes(hasher.finalize().into())
    }

    /// The contents of the file at `path`.
    pub(super) fn file(&self, path: &str) -> Option<Sha256Digest> {
        match self.0.get(path)? {
            Item::File { sha256, .. } => Some(*sha256),
            Item::Folder => None,
        }
    }
}

/// What the file system says of a folder without reading a file: equal for a
/// folder that nobody has touched since.
pub(super) fn fingerprint(root: &Path, max_entries: usize) -> Result<Sha256Digest, Damage> {
    let mut lines = Vec::new();
    walk(root, max_entries, |relative, _, metadata| {
        lines.push(format!(
            "{relative}\0{}\0{}\0{}\0{}.{}\0{}.{}\n",
            metadata.dev(),
            metadata.ino(),
            metadata.size(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ));
        Ok(())
    })?;
    lines.sort_unstable();
    Ok(Sha256Digest::of(lines.concat().as_bytes()))
}

/// Visits folders and regular files; anything else makes the folder invalid.
fn walk(
    root: &Path,
    max_entries: usize,
    mut visit: impl FnMut(&str, &Path, &Metadata) -> Result<(), Damage>,
) -> Result<(), Damage> {
    match fs::symlink_metadata(root) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(Damage::Invalid("artifact_not_a_folder")),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Err(Damage::Absent),
        Err(cause) => return Err(cause.into()),
    }
    let mut folders = vec![(root.to_path_buf(), String::new())];
    let mut seen = 0;
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().ok_or(Damage::Invalid("artifact_unsafe_name"))?;
            let relative = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
            let path = entry.path();
            let metadata = fs::symlink_metadata(&path)?;
            seen += 1;
            if seen > max_entries || !(metadata.is_dir() || metadata.is_file()) {
                return Err(Damage::Invalid("artifact_foreign_entry"));
            }
            visit(&relative, &path, &metadata)?;
            if metadata.is_dir() {
                folders.push((path, relative));
            }
        }
    }
    Ok(())
}
