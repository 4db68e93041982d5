//! Unpacks an archive that nobody vouches for.
//!
//! Only regular files and folders, only names that are safe everywhere, only so
//! many and so much; what is unpacked is for the owner alone. A refusal leaves
//! whatever was unpacked before it: the caller unpacks into staging and drops that.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{self, BufRead as _, BufReader, Read, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

use flate2::bufread::GzDecoder;
use tar::EntryType;

use super::{
    disk,
    meter::{Breach, Meter, Metered},
};
use crate::domain::{
    error::{Error, ErrorCode},
    manifest::is_safe_relative_path,
};

/// What a tar header and its extensions may take; the paths in it are at most 1 KiB.
const HEADER_BYTES: u64 = 256 * 1024;
/// The zeros that tar writers pad an archive with.
const PADDING_BYTES: u64 = 1024 * 1024;
/// The end of a tar archive: two blocks of zeros.
const END_BYTES: u64 = 1024;

/// What an archive may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Files and folders, those only implied by a path included.
    pub entries: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub expanded_bytes: u64,
    /// Expanded bytes a compressed byte.
    pub ratio: u64,
    /// An archive that expands to no more than this is never judged by its ratio.
    pub ratio_floor_bytes: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        Self {
            entries: 10_000,
            file_bytes: 64 << 20,
            expanded_bytes: 512 << 20,
            ratio: 200,
            ratio_floor_bytes: 1 << 20,
        }
    }
}

/// Unpacks the gzip-compressed tar file `archive` into the empty folder `target`.
pub(crate) fn unpack(archive: &Path, target: &Path, limits: &UnpackLimits) -> Result<(), Error> {
    let file = disk::open_file(archive).map_err(|cause| disk::failed("open an archive", cause))?;
    let compressed = file.metadata().map_err(|cause| disk::failed("look at an archive", cause))?.len();
    let by_ratio = compressed.saturating_mul(limits.ratio).max(limits.ratio_floor_bytes);
    let by_size = limits
        .expanded_bytes
        .saturating_add((limits.entries as u64 + 1) * 4096)
        .saturating_add(PADDING_BYTES);
    let meter = Meter::new(by_ratio.min(by_size));
    let judge = |cause: io::Error| match meter.breach() {
        Some(Breach::Total) if by_ratio < by_size => {
            limit(format!("it expands to more than {} times its {compressed} bytes", limits.ratio))
        }
        Some(Breach::Total) => limit(format!("it expands to more than {} bytes", limits.expanded_bytes)),
        Some(Breach::Part) => limit("its headers or its padding are larger than any honest archive's".into()),
        None if cause.raw_os_error().is_some() => disk::failed("read an archive", cause),
        None => {
            malformed(format!("it is not a readable gzip-compressed tar file: {cause}")).with_cause(cause)
        }
    };

    let decoder = GzDecoder::new(BufReader::new(file));
    let mut tar = tar::Archive::new(Metered { inner: decoder, meter: &meter });
    let mut target = Target::new(target, limits);
    let mut entries = tar.entries().map_err(judge)?;
    loop {
        meter.begin_part(HEADER_BYTES);
        let Some(mut entry) = entries.next().transpose().map_err(judge)? else { break };
        let size = entry.size();
        let path = entry.path_bytes().into_owned();
        let path = String::from_utf8(path).map_err(|cause| {
            unsafe_entry(&String::from_utf8_lossy(cause.as_bytes()), "its name is not UTF-8")
        })?;
        match entry.header().entry_type() {
            EntryType::Directory if size == 0 => target.folder(&path)?,
            EntryType::Regular => {
                // Judge the name and size before a byte of it is written.
                let mut file = target.file(&path, size)?;
                meter.begin_part(size.saturating_add(512));
                copy(&mut entry, &mut file, size).map_err(|failure| match failure {
                    CopyFailure::Reading(cause) => judge(cause),
                    CopyFailure::Writing(cause) => disk::failed("write a file", cause),
                })?;
            }
            _ => {
                return Err(unsafe_entry(
                    &path,
                    "it is a link, a device or something else than a file or folder",
                ));
            }
        }
    }
    finish(tar.into_inner(), &meter).map_err(judge)?
}

/// Nothing may follow the archive: zeros as padding, then the end.
fn finish(mut rest: Metered<'_, GzDecoder<BufReader<File>>>, meter: &Meter) -> io::Result<Result<(), Error>> {
    meter.begin_part(PADDING_BYTES);
    let mut buffer = [0; 8192];
    loop {
        match rest.read(&mut buffer)? {
            0 => break,
            read if buffer[..read].iter().any(|&byte| byte != 0) => {
                return Ok(Err(malformed("data follows the end of the archive".into())));
            }
            _ => {}
        }
    }
    if meter.trailing_zeros() < END_BYTES {
        return Ok(Err(malformed("it stops before the end of the archive".into())));
    }
    if !rest.inner.into_inner().fill_buf()?.is_empty() {
        return Ok(Err(malformed("data follows the end of the compressed stream".into())));
    }
    Ok(Ok(()))
}

enum CopyFailure {
    Reading(io::Error),
    Writing(io::Error),
}

fn copy(from: &mut impl Read, to: &mut File, size: u64) -> Result<(), CopyFailure> {
    let mut buffer = vec![0; 64 * 1024];
    let mut copied = 0;
    loop {
        let read = from.read(&mut buffer).map_err(CopyFailure::Reading)?;
        if read == 0 {
            break;
        }
        to.write_all(&buffer[..read]).map_err(CopyFailure::Writing)?;
        copied += read as u64;
    }
    if copied == size {
        Ok(())
    } else {
        Err(CopyFailure::Reading(io::Error::new(io::ErrorKind::UnexpectedEof, "a file ends too early")))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ImpliedFolder,
    Folder,
    File,
}

/// The folder that is unpacked into, and every name taken in it.
struct Target<'a> {
    root: &'a Path,
    limits: &'a UnpackLimits,
    /// By name in lower case: two names that differ in case alone are one file
    /// on some systems.
    taken: BTreeMap<String, (String, Kind)>,
    expanded: u64,
}

impl<'a> Target<'a> {
    fn new(root: &'a Path, limits: &'a UnpackLimits) -> Self {
        Self { root, limits, taken: BTreeMap::new(), expanded: 0 }
    }

    fn folder(&mut self, path: &str) -> Result<(), Error> {
        let path = path.strip_suffix('/').unwrap_or(path);
        if path == "." {
            return Ok(());
        }
        let path = safe(path)?;
        self.parents(path)?;
        match self.taken.get_mut(&path.to_lowercase()) {
            Some((name, kind @ Kind::ImpliedFolder)) if name == path => {
                *kind = Kind::Folder;
                Ok(())
            }
            Some(_) => Err(twice(path)),
            None => self.make_folder(path, Kind::Folder),
        }
    }

    fn file(&mut self, path: &str, size: u64) -> Result<File, Error> {
        let path = safe(path)?;
        if size > self.limits.file_bytes {
            return Err(limit(format!(
                "{} has {size} bytes, a file may have {}",
                shown(path),
                self.limits.file_bytes
            )));
        }
        self.expanded = self.expanded.saturating_add(size);
        if self.expanded > self.limits.expanded_bytes {
            return Err(limit(format!("it expands to more than {} bytes", self.limits.expanded_bytes)));
        }
        self.parents(path)?;
        if self.taken.contains_key(&path.to_lowercase()) {
            return Err(twice(path));
        }
        self.take(path, Kind::File)?;
        disk::create_file(&self.root.join(path)).map_err(|cause| disk::failed("create a file", cause))
    }

    fn parents(&mut self, path: &str) -> Result<(), Error> {
        for (at, _) in path.match_indices('/') {
            let parent = &path[..at];
            match self.taken.get(&parent.to_lowercase()) {
                Some((_, Kind::File)) => return Err(unsafe_entry(path, "it lies beneath a file")),
                Some((name, _)) if name != parent => return Err(twice(parent)),
                Some(_) => {}
                None => self.make_folder(parent, Kind::ImpliedFolder)?,
            }
        }
        Ok(())
    }

    fn make_folder(&mut self, path: &str, kind: Kind) -> Result<(), Error> {
        self.take(path, kind)?;
        DirBuilder::new()
            .mode(0o700)
            .create(self.root.join(path))
            .map_err(|cause| disk::failed("make a folder", cause))
    }

    fn take(&mut self, path: &str, kind: Kind) -> Result<(), Error> {
        if self.taken.len() >= self.limits.entries {
            return Err(limit(format!("it holds more than {} files and folders", self.limits.entries)));
        }
        self.taken.insert(path.to_lowercase(), (path.to_owned(), kind));
        Ok(())
    }
}

/// Makes everything in `folder` durable.
pub(super) fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        } else {
            disk::open_file(&entry.path())?.sync_all()?;
        }
    }
    disk::sync_folder(folder)
}

/// `tar` run inside a folder writes `./name`, which means `name`.
fn safe(path: &str) -> Result<&str, Error> {
    let path = path.strip_prefix("./").unwrap_or(path);
    if is_safe_relative_path(path) {
        Ok(path)
    } else {
        Err(unsafe_entry(path, "its name is absolute, leaves its folder or is not portable"))
    }
}

fn shown(path: &str) -> String {
    format!("{:?}", path.chars().take(120).collect::<String>())
}

fn twice(path: &str) -> Error {
    unsafe_entry(path, "its name, ignoring case, is there already")
}

fn unsafe_entry(path: &str, why: &str) -> Error {
    Error::new(
        ErrorCode::ArtifactUnsafeEntry,
        format!("the artifact holds an entry that is not unpacked, {}: {why}", shown(path)),
    )
}

fn limit(why: String) -> Error {
    Error::new(ErrorCode::ArtifactLimitExceeded, format!("the artifact passes a limit: {why}"))
}

fn malformed(why: String) -> Error {
    Error::new(ErrorCode::ArtifactMalformed, format!("the artifact is no well-formed bundle: {why}"))
}
