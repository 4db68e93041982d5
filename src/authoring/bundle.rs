//! The bundle: a `tar.gz` whose bytes depend on its contents alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::Path,
};

use flate2::{Compression, GzBuilder};

use crate::{
    artifacts::{MANIFEST_FILE, UnpackLimits, unpack},
    domain::{error::Error, manifest::is_safe_relative_path},
};

/// Where the manifest lies in a bundle.
pub const MANIFEST: &str = MANIFEST_FILE;
/// Where skills lie in a bundle.
pub const SKILLS: &str = "skills";

/// "Unknown" in the gzip header: the archive does not tell where it was made.
const ANY_SYSTEM: u8 = 255;

/// Files by their path in the bundle.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Packs files. The same files give the same bytes: entries in order of their
/// paths, no owner, no time, one mode, one compression.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::InvalidRequest`] for a path that no host would unpack.
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

/// Reads a bundle, unpacked as a host unpacks it and refused for what a host refuses.
///
/// # Errors
/// [`ErrorCode::ArtifactMalformed`], [`ErrorCode::ArtifactUnsafeEntry`] or
/// [`ErrorCode::ArtifactLimitExceeded`].
///
/// [`ErrorCode::ArtifactMalformed`]: crate::domain::error::ErrorCode::ArtifactMalformed
/// [`ErrorCode::ArtifactUnsafeEntry`]: crate::domain::error::ErrorCode::ArtifactUnsafeEntry
/// [`ErrorCode::ArtifactLimitExceeded`]: crate::domain::error::ErrorCode::ArtifactLimitExceeded
pub fn read(bytes: &[u8]) -> Result<Files, Error> {
    let failed = |cause: std::io::Error| {
        Error::unavailable(format!("cannot unpack into the folder for temporary files: {cause}"))
            .with_cause(cause)
    };
    let workplace = tempfile::Builder::new().prefix("portcullis-").tempdir().map_err(failed)?;
    let (archive, content) = (workplace.path().join("archive"), workplace.path().join("content"));
    fs::write(&archive, bytes).map_err(failed)?;
    fs::create_dir(&content).map_err(failed)?;
    unpack(&archive, &content, &UnpackLimits::default())?;
    let mut files = Files::new();
    collect(&content, "", &mut files).map_err(failed)?;
    Ok(files)
}

fn collect(folder: &Path, inside: &str, files: &mut Files) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // The host unpacks names of plain text alone.
        let path = format!("{inside}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else {
            files.insert(path, fs::read(entry.path())?);
        }
    }
    Ok(())
}
