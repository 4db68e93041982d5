//! Reading with a bound, writing in full or not at all.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::Path,
};

use crate::domain::error::Error;

/// The largest file that authoring reads: far above any release that a host takes.
pub(super) const READ_LIMIT: u64 = 512 << 20;

/// Reads a file that the caller named.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let unreadable = |cause: std::io::Error| {
        Error::invalid_request(format!("cannot read {}: {cause}", path.display())).with_cause(cause)
    };
    let file = File::open(path).map_err(unreadable)?;
    let kind = file.metadata().map_err(unreadable)?.file_type();
    if kind.is_dir() {
        return Err(Error::invalid_request(format!("{} is a folder, not a file", path.display())));
    }
    let mut bytes = Vec::new();
    file.take(READ_LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > READ_LIMIT {
        return Err(Error::invalid_request(format!(
            "{} is larger than {} MiB",
            path.display(),
            READ_LIMIT >> 20
        )));
    }
    Ok(bytes)
}

/// Puts `bytes` at `path` so that a reader sees the old file or the new one,
/// never a part. Makes the folder where there is none.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let mut file = builder.prefix(".portcullis-").tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|failed| failed.error)?;
        #[cfg(unix)]
        File::open(folder)?.sync_all()?;
        Ok(())
    };
    write().map_err(|cause| {
        Error::unavailable(format!("cannot write {}: {cause}", path.display()))
            .with_retryable(false)
            .with_cause(cause)
    })
}

/// A document for people and programs: indented JSON with a newline at its end.
pub(super) fn pretty_json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, Error> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|cause| Error::invalid_manifest("the document has no JSON form").with_cause(cause))?;
    bytes.push(b'\n');
    Ok(bytes)
}
