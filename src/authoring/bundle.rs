//! The bundle: a `tar.gz` whose bytes depend on its contents alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Write as _},
};

use flate2::{Compression, GzBuilder, read::MultiGzDecoder};

use crate::domain::{
    error::{Error, ErrorCode},
    manifest::is_safe_relative_path,
};

/// Where the manifest lies in a bundle.
pub const MANIFEST: &str = "connector.json";
/// Where skills lie in a bundle.
pub const SKILLS: &str = "skills";

/// "Unknown" in the gzip header: the archive does not tell where it was made.
const ANY_SYSTEM: u8 = 255;
const ENTRIES: usize = 2_048;
const UNPACKED_BYTES: u64 = 256 << 20;

/// Files by their path in the bundle.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Packs files. The same files give the same bytes: entries in order of their
/// paths, no owner, no time, one mode, one compression.
///
/// # Errors
/// [`ErrorCode::InvalidRequest`] for a path that no host would unpack.
pub fn write(files: &Files) -> Result<Vec<u8>, Error> {
    check_paths(files)?;
    let gzip = GzBuilder::new().mtime(0).operating_system(ANY_SYSTEM).write(Vec::new(), Compression::new(9));
    let mut archive = tar::Builder::new(gzip);
    let failed = |cause: std::io::Error| Error::unavailable("cannot pack the bundle").with_cause(cause);
    for (path, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_path(path).map_err(|cause| {
            Error::invalid_request(format!("{path} cannot stand in a bundle: {cause}")).with_cause(cause)
        })?;
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        archive.append(&header, bytes.as_slice()).map_err(failed)?;
    }
    let mut gzip = archive.into_inner().map_err(failed)?;
    gzip.flush().map_err(failed)?;
    gzip.finish().map_err(failed)
}

fn check_paths(files: &Files) -> Result<(), Error> {
    let refuse = |message: String| Err(Error::invalid_request(message));
    let mut folded = BTreeSet::new();
    for path in files.keys() {
        if !is_safe_relative_path(path) {
            return refuse(format!("{path:?} is no path that every platform can unpack; rename the file"));
        }
        if !folded.insert(path.to_lowercase()) {
            return refuse(format!("{path:?} differs from another file in case only; rename one of them"));
        }
    }
    for path in &folded {
        let mut folder = path.as_str();
        while let Some((parent, _)) = folder.rsplit_once('/') {
            if folded.contains(parent) {
                return refuse(format!(
                    "{parent:?} would be a file and a folder at once; rename one of them"
                ));
            }
            folder = parent;
        }
    }
    Ok(())
}

/// Reads a bundle into memory, refusing what a host refuses.
///
/// # Errors
/// [`ErrorCode::ArtifactMalformed`], [`ErrorCode::ArtifactUnsafeEntry`] or
/// [`ErrorCode::ArtifactLimitExceeded`].
pub fn read(bytes: &[u8]) -> Result<Files, Error> {
    let malformed = |cause: std::io::Error| {
        Error::new(ErrorCode::ArtifactMalformed, format!("this is no readable tar.gz: {cause}"))
            .with_cause(cause)
    };
    let unsafe_entry = |message: String| Error::new(ErrorCode::ArtifactUnsafeEntry, message);
    let exceeded = |message: String| Error::new(ErrorCode::ArtifactLimitExceeded, message);
    let mut budget = UNPACKED_BYTES;
    let mut folded = BTreeSet::new();
    let mut files = Files::new();
    // A tar header costs 512 bytes: the bound holds for floods of headers too.
    let unpacked = MultiGzDecoder::new(bytes).take(UNPACKED_BYTES + (ENTRIES as u64 + 4) * 1024);
    for (index, entry) in tar::Archive::new(unpacked).entries().map_err(malformed)?.raw(true).enumerate() {
        let mut entry = entry.map_err(malformed)?;
        if index >= ENTRIES {
            return Err(exceeded(format!("the bundle has more than {ENTRIES} entries")));
        }
        let raw = entry.path_bytes();
        let path = String::from_utf8_lossy(&raw).into_owned();
        let kind = entry.header().entry_type();
        if kind.is_dir() && is_safe_relative_path(path.trim_end_matches('/')) {
            continue;
        }
        if kind != tar::EntryType::Regular {
            return Err(unsafe_entry(format!("entry {path:?} is neither a file nor a folder")));
        }
        if !is_safe_relative_path(&path) {
            return Err(unsafe_entry(format!("entry {path:?} is no safe path inside the bundle")));
        }
        if !folded.insert(path.to_lowercase()) {
            return Err(unsafe_entry(format!("entry {path:?} is there twice")));
        }
        let size = entry.header().entry_size().map_err(malformed)?;
        budget = budget.checked_sub(size).ok_or_else(|| {
            exceeded(format!("the bundle unpacks to more than {} MiB", UNPACKED_BYTES >> 20))
        })?;
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(malformed)?;
        if content.len() as u64 != size {
            return Err(malformed(std::io::Error::other("it ends in the middle of a file")));
        }
        files.insert(path, content);
    }
    Ok(files)
}
