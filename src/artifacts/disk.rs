//! Private files and folders: made for the owner alone, never through a link,
//! and durable before anything relies on them.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use sha2::{Digest as _, Sha256};

use crate::domain::{
    digest::Sha256Digest,
    error::{Error, ErrorCode},
};

/// What the disk said, as an error that may heal (a full disk can be emptied).
pub(super) fn failed(action: &str, cause: io::Error) -> Error {
    Error::unavailable(format!("the artifact store could not {action}: {cause}")).with_cause(cause)
}

/// A path in the store is not what the store put there; a person has to look.
pub(super) fn foreign(what: &str) -> Error {
    Error::new(
        ErrorCode::InstallFailed,
        format!("the artifact store holds a link or a file where {what} belongs; remove it and try again"),
    )
}

/// Makes `root/…segments`, each folder for the owner alone, following no link.
pub(super) fn ensure_folder(root: &Path, segments: &[&str]) -> Result<(), Error> {
    let mut path = root.to_path_buf();
    for segment in segments {
        path.push(segment);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => sync_parent(&path).map_err(|cause| failed("make a folder durable", cause))?,
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                let metadata =
                    fs::symlink_metadata(&path).map_err(|cause| failed("look at a folder", cause))?;
                if !metadata.is_dir() {
                    return Err(foreign("a folder"));
                }
            }
            Err(cause) => return Err(failed("make a folder", cause)),
        }
    }
    Ok(())
}

/// Whether `root/…segments` is a folder reached through folders only.
///
/// # Errors
/// When a link or a file stands in its place or on the way there.
pub(super) fn is_folder(root: &Path, segments: &[&str]) -> Result<bool, Error> {
    let mut path = root.to_path_buf();
    for segment in segments {
        path.push(segment);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(foreign("a folder")),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(cause) => return Err(failed("look at a folder", cause)),
        }
    }
    Ok(true)
}

/// Creates a file that was not there, for the owner alone.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Opens a regular file and nothing else; no link is followed and no pipe waited for.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Reads a regular file of at most `limit` bytes.
pub(crate) fn read_small(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is larger than it may be"));
    }
    Ok(bytes)
}

/// Size and SHA-256 of a regular file.
pub(super) fn hash_file(path: &Path) -> io::Result<(u64, Sha256Digest)> {
    let mut file = open_file(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 128 * 1024];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((size, Sha256Digest::from_bytes(hasher.finalize().into())));
        }
        hasher.update(&buffer[..read]);
        size += read as u64;
    }
}

/// Replaces a small file as a whole: after a crash it is the old one or the new one.
pub(super) fn replace_file(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = folder.join(format!(".{name}.new"));
    match fs::remove_file(&temporary) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let mut file = create_file(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, folder.join(name))?;
    sync_folder(folder)
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes the name of `path` durable.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_folder)
}

/// Removes a folder and all in it, or a file, or a link itself; nothing is a success.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(cause) => Err(cause),
    };
    match removed {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Closes a folder to everyone but the owner.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}
