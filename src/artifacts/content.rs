//! The store on disk: verified archives by their digest, and what was unpacked
//! from them by release.
//!
//! ```text
//! archives/sha256/<hex>                              verified archives
//! releases/<key>/current                             which releases are committed
//! releases/<key>/<version>/<digest>/receipt.json     what was put there
//! releases/<key>/<version>/<digest>/content/…        the files of the bundle
//! staging/<hash>/…                                   of one preparation; dropped at start
//! ```
//!
//! Things enter `archives` and `releases` by an atomic rename, whole and durable.
//! All of it blocks; the installer calls it off the async threads.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{disk, tree::Verified, unpack::UnpackLimits};
use crate::domain::{digest::Sha256Digest, error::Error, id::ConnectorKey, release::Artifact};

const ARCHIVES: [&str; 2] = ["archives", "sha256"];
pub(super) const RELEASES: &str = "releases";
const STAGING: &str = "staging";

/// What the store has of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArchiveState {
    /// The bytes of the release.
    Verified,
    /// Nothing.
    Missing,
    /// Other bytes.
    Damaged,
}

/// The store under one root.
pub(super) struct ContentStore {
    pub(super) root: PathBuf,
    pub(super) limits: UnpackLimits,
    /// Archives that a preparation is using; collecting leaves them alone.
    pins: Mutex<HashMap<Sha256Digest, usize>>,
    /// Trees that this process has verified, with their fingerprint at that time.
    pub(super) verified: Mutex<HashMap<PathBuf, (Sha256Digest, Verified)>>,
}

impl ContentStore {
    /// Opens the store, making its folders where they are missing.
    pub(super) fn open(root: &Path, limits: UnpackLimits) -> Result<Self, Error> {
        fs::create_dir_all(root).map_err(|cause| disk::failed("make its folder", cause))?;
        let root = fs::canonicalize(root).map_err(|cause| disk::failed("find its folder", cause))?;
        disk::make_private(&root).map_err(|cause| disk::failed("make its folder private", cause))?;
        disk::ensure_folder(&root, &ARCHIVES)?;
        disk::ensure_folder(&root, &[RELEASES])?;
        disk::ensure_folder(&root, &[STAGING])?;
        Ok(Self { root, limits, pins: Mutex::default(), verified: Mutex::default() })
    }

    /// Drops what interrupted runs left behind. Before anything else, and never
    /// beside it.
    pub(super) fn recover(&self) -> Result<(), Error> {
        self.clear(&self.root.join(STAGING))?;
        for key in self.connectors()? {
            self.drop_empty_folders(&key);
        }
        self.collect()
    }

    /// An empty folder for one piece of work. Its name is a hash, since what it is
    /// made of may hold anything.
    pub(super) fn stage(&self, name: &str) -> Result<PathBuf, Error> {
        let name = &Sha256Digest::of(name.as_bytes()).to_string()[..32];
        disk::ensure_folder(&self.root, &[STAGING])?;
        let path = self.root.join(STAGING).join(name);
        disk::remove(&path).map_err(|cause| disk::failed("empty a staging folder", cause))?;
        disk::ensure_folder(&self.root, &[STAGING, name])?;
        Ok(path)
    }

    /// Where an archive is, or would be.
    pub(super) fn archive(&self, sha256: &Sha256Digest) -> PathBuf {
        self.archives().join(sha256.to_string())
    }

    /// Reads an archive to its end and compares it with the release.
    pub(super) fn check_archive(&self, artifact: &Artifact) -> Result<ArchiveState, Error> {
        disk::is_folder(&self.root, &ARCHIVES)?;
        Self::check_file(&self.archive(&artifact.sha256), artifact)
    }

    /// Reads a file to its end and compares it with the release.
    pub(super) fn check_file(path: &Path, artifact: &Artifact) -> Result<ArchiveState, Error> {
        match fs::symlink_metadata(path) {
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(ArchiveState::Missing),
            Err(cause) => return Err(disk::failed("look at an archive", cause)),
            Ok(metadata) if !metadata.is_file() => return Ok(ArchiveState::Damaged),
            Ok(_) => {}
        }
        let (size, sha256) = disk::hash_file(path).map_err(|cause| disk::failed("read an archive", cause))?;
        let same = sha256 == artifact.sha256 && i64::try_from(size) == Ok(artifact.size_bytes);
        Ok(if same { ArchiveState::Verified } else { ArchiveState::Damaged })
    }

    /// Takes a verified file into the archives; a damaged one of its name goes.
    pub(super) fn keep_archive(&self, staged: &Path, sha256: &Sha256Digest) -> Result<(), Error> {
        disk::is_folder(&self.root, &ARCHIVES)?;
        let path = self.archive(sha256);
        let keep = || {
            if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
                disk::remove(&path)?;
            }
            fs::rename(staged, &path)?;
            disk::sync_folder(&self.archives())
        };
        keep().map_err(|cause| disk::failed("keep an archive", cause))
    }

    /// Keeps an archive from being collected until [`Self::unpin`].
    pub(super) fn pin(&self, sha256: Sha256Digest) {
        *locked(&self.pins).entry(sha256).or_insert(0) += 1;
    }

    /// Ends one [`Self::pin`].
    pub(super) fn unpin(&self, sha256: Sha256Digest) {
        let mut pins = locked(&self.pins);
        if let Some(count) = pins.get_mut(&sha256) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&sha256);
            }
        }
    }

    /// Removes the archives that no release needs. Where a receipt cannot be read
    /// nothing is removed: its archive may be what repairs it.
    pub(super) fn collect(&self) -> Result<(), Error> {
        disk::is_folder(&self.root, &ARCHIVES)?;
        // Held to the end: what is pinned meanwhile was not removed before.
        let pins = locked(&self.pins);
        let mut needed: BTreeSet<String> = pins.keys().map(Sha256Digest::to_string).collect();
        for key in self.connectors()? {
            let artifacts = self.artifacts_of(&key).unwrap_or_else(|error| {
                tracing::warn!(%error, connector.key = %key, "what a connector's releases came from cannot be told");
                vec![None]
            });
            for artifact in artifacts {
                let Some(artifact) = artifact else {
                    tracing::warn!(connector.key = %key, "a release cannot be read, so no archive is removed");
                    return Ok(());
                };
                needed.insert(artifact.to_string());
            }
        }
        for entry in list(&self.archives())? {
            if !needed.contains(&entry) {
                disk::remove(&self.archives().join(&entry))
                    .map_err(|cause| disk::failed("remove an archive", cause))?;
            }
        }
        Ok(())
    }

    /// Removes every release of a connector; nothing is a success.
    pub(super) fn remove_connector(&self, key: &ConnectorKey) -> Result<(), Error> {
        if disk::is_folder(&self.root, &[RELEASES, key.as_str()])? {
            let trash = self.stage(&format!("uninstall\0{key}"))?;
            let folder = self.root.join(RELEASES).join(key.as_str());
            let remove = || {
                // Gone at once, then removed: an interruption leaves no half of it.
                fs::rename(&folder, trash.join("releases"))?;
                disk::sync_parent(&folder)?;
                disk::remove(&trash)
            };
            remove().map_err(|cause| disk::failed("remove a connector", cause))?;
            locked(&self.verified).retain(|path, _| !path.starts_with(&folder));
        }
        self.collect()
    }

    /// The connectors that have a folder.
    fn connectors(&self) -> Result<Vec<ConnectorKey>, Error> {
        let names = list(&self.root.join(RELEASES))?;
        Ok(names.into_iter().filter_map(|name| ConnectorKey::parse(name).ok()).collect())
    }

    fn archives(&self) -> PathBuf {
        self.root.join(ARCHIVES[0]).join(ARCHIVES[1])
    }

    fn clear(&self, folder: &Path) -> Result<(), Error> {
        for name in list(folder)? {
            disk::remove(&folder.join(name)).map_err(|cause| disk::failed("clean up", cause))?;
        }
        Ok(())
    }
}

/// The names in a folder; none where there is no folder.
pub(super) fn list(folder: &Path) -> Result<Vec<String>, Error> {
    let read = || -> std::io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    };
    match read() {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|cause| disk::failed("list a folder", cause)),
    }
}

/// The data of a lock, whatever became of the thread that held it.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
