//! The unpacked files of a release: put in place, judged, committed, removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    bundle,
    content::{ContentStore, RELEASES, list, locked},
    disk,
    inventory::{self, Damage, Inventory},
};
use crate::domain::{
    digest::Sha256Digest,
    error::{Error, ErrorCode},
    id::ConnectorKey,
    release::Release,
};

const RECEIPT: &str = "receipt.json";
const CONTENT: &str = "content";
const CURRENT: &str = "current";
const SCHEMA_VERSION: &str = "1";
const SMALL_FILE_BYTES: u64 = 64 * 1024;
/// A longer version would be no name for a folder everywhere.
const VERSION_BYTES: usize = 128;

/// What was put in place. It is believed only as far as the files bear it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Receipt {
    schema_version: String,
    connector_key: ConnectorKey,
    version: semver::Version,
    release_digest: Sha256Digest,
    manifest_digest: Sha256Digest,
    artifact_sha256: Sha256Digest,
    inventory_digest: Sha256Digest,
}

impl Receipt {
    fn of(release: &Release, inventory_digest: Sha256Digest) -> Self {
        Self {
            schema_version: SCHEMA_VERSION.to_owned(),
            connector_key: release.connector_key.clone(),
            version: release.version.clone(),
            release_digest: release.release_digest,
            manifest_digest: release.manifest_digest,
            artifact_sha256: release.artifact.sha256,
            inventory_digest,
        }
    }
}

/// Which releases of a connector are committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Committed {
    schema_version: String,
    current: Pointer,
    /// The one before: what a failed update goes back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Pointer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pointer {
    version: semver::Version,
    release_digest: Sha256Digest,
    artifact_sha256: Sha256Digest,
}

impl Pointer {
    fn to(release: &Release) -> Self {
        Self {
            version: release.version.clone(),
            release_digest: release.release_digest,
            artifact_sha256: release.artifact.sha256,
        }
    }
}

/// What a connector's note says of the releases that are committed.
enum Note {
    /// Nothing was committed.
    None,
    /// It cannot be read, so nothing may be removed on its word.
    Unreadable,
    /// These are.
    Known(Box<Committed>),
}

/// Files that are exactly those of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) content: PathBuf,
    pub(super) inventory_digest: Sha256Digest,
    /// Path and SHA-256; none when the connector runs elsewhere.
    pub(super) component: Option<(PathBuf, Sha256Digest)>,
}

impl ContentStore {
    /// Judges the files of a release by reading all of them. Repairs nothing.
    pub(super) fn verify(&self, release: &Release) -> Result<Verified, Damage> {
        let folder = self.folder_of(release);
        let before = self.fingerprint(release)?;
        let receipt = match disk::read_small(&folder.join(RECEIPT), SMALL_FILE_BYTES) {
            Ok(json) => serde_json::from_slice::<Receipt>(&json).ok(),
            Err(cause) if matches!(cause.raw_os_error(), None | Some(libc::ENOENT | libc::ELOOP)) => None,
            Err(cause) => return Err(cause.into()),
        };
        let receipt = receipt.ok_or(Damage::Invalid("artifact_receipt_unreadable"))?;
        if receipt != Receipt::of(release, receipt.inventory_digest) {
            return Err(Damage::Invalid("artifact_receipt_mismatch"));
        }
        let content = folder.join(CONTENT);
        let inventory = match Inventory::of(&content, self.limits.entries) {
            Err(Damage::Absent) => return Err(Damage::Invalid("artifact_content_missing")),
            other => other?,
        };
        if inventory.digest() != receipt.inventory_digest {
            return Err(Damage::Invalid("artifact_inventory_mismatch"));
        }
        bundle::examine(&content, &inventory, release).map_err(|error| match error.code {
            ErrorCode::Unavailable => Damage::Unreadable(io::Error::other(error)),
            _ => Damage::Invalid("artifact_manifest_mismatch"),
        })?;
        let component = bundle::component_path(release)
            .and_then(|path| Some((content.join(path), inventory.file(path)?)));
        let verified = Verified { content, inventory_digest: receipt.inventory_digest, component };
        locked(&self.verified).insert(folder, (before, verified.clone()));
        Ok(verified)
    }

    /// As [`Self::verify`], without reading again what this process has verified
    /// and the file system says nobody has touched since.
    pub(super) fn verify_fast(&self, release: &Release) -> Result<Verified, Damage> {
        let known = locked(&self.verified).get(&self.folder_of(release)).cloned();
        match known {
            Some((fingerprint, verified)) if fingerprint == self.fingerprint(release)? => Ok(verified),
            _ => self.verify(release),
        }
    }

    /// Puts the laid-out files of a release in place, unless the very same are
    /// there already. `staging` holds them in `content`.
    pub(super) fn promote(&self, staging: &Path, release: &Release, fresh: &Inventory) -> Result<(), Error> {
        let digest = fresh.digest();
        if self.verify(release).is_ok_and(|there| there.inventory_digest == digest) {
            return Ok(());
        }
        let folder = self.folder_of(release);
        locked(&self.verified).remove(&folder);
        disk::ensure_folder(&self.root, &[RELEASES, release.connector_key.as_str(), &version_of(release)])?;
        let json = serde_json::to_vec_pretty(&Receipt::of(release, digest))
            .map_err(|cause| Error::unavailable("a receipt could not be written").with_cause(cause))?;
        let promote = || {
            let staged = staging.join("release");
            disk::remove(&staged)?;
            fs::create_dir(&staged)?;
            disk::make_private(&staged)?;
            fs::rename(staging.join(CONTENT), staged.join(CONTENT))?;
            disk::replace_file(&staged, RECEIPT, &json)?;
            if fs::symlink_metadata(&folder).is_ok() {
                fs::rename(&folder, staging.join("retired"))?;
            }
            fs::rename(&staged, &folder)?;
            disk::sync_parent(&folder)
        };
        promote().map_err(|cause| disk::failed("put a release in place", cause))
    }

    /// Makes a release the current one of its connector.
    pub(super) fn commit(&self, release: &Release) -> Result<(), Error> {
        let key = &release.connector_key;
        let current = Pointer::to(release);
        let previous = match self.note(key)? {
            Note::Known(known) if known.current == current => return Ok(()),
            Note::Known(known) => Some(known.current),
            Note::None | Note::Unreadable => None,
        };
        let committed = Committed { schema_version: SCHEMA_VERSION.to_owned(), current, previous };
        let json = serde_json::to_vec_pretty(&committed)
            .map_err(|cause| Error::unavailable("a pointer could not be written").with_cause(cause))?;
        disk::replace_file(&self.connector_folder(key), CURRENT, &json)
            .map_err(|cause| disk::failed("commit a release", cause))
    }

    /// Whether a release is the committed one of its connector, or the one before.
    pub(super) fn is_committed(&self, release: &Release) -> Result<bool, Error> {
        let wanted = Pointer::to(release);
        Ok(match self.note(&release.connector_key)? {
            Note::Known(known) => known.current == wanted || known.previous == Some(wanted),
            Note::None => false,
            Note::Unreadable => true,
        })
    }

    /// Removes the releases of a connector but the committed ones and `candidate`.
    pub(super) fn prune(&self, candidate: &Release) -> Result<(), Error> {
        let key = &candidate.connector_key;
        let mut kept = vec![Pointer::to(candidate)];
        match self.note(key)? {
            Note::Known(known) => kept.extend([Some(known.current), known.previous].into_iter().flatten()),
            Note::None => {}
            Note::Unreadable => {
                tracing::warn!(connector.key = %key, "which release is current cannot be read; none is removed");
                return Ok(());
            }
        }
        for (version, digest) in self.releases_of(key)? {
            let is_kept = |pointer: &Pointer| {
                pointer.version.to_string() == version && pointer.release_digest.to_string() == digest
            };
            if !kept.iter().any(is_kept) {
                let folder = self.connector_folder(key).join(version).join(digest);
                locked(&self.verified).remove(&folder);
                disk::remove(&folder).map_err(|cause| disk::failed("remove a release", cause))?;
            }
        }
        self.drop_empty_folders(key);
        self.collect()
    }

    /// The archives that the releases of a connector came from; none in place of
    /// one that cannot be told.
    pub(super) fn artifacts_of(&self, key: &ConnectorKey) -> Result<Vec<Option<Sha256Digest>>, Error> {
        let mut artifacts = Vec::new();
        for (version, digest) in self.releases_of(key)? {
            let path = self.connector_folder(key).join(version).join(digest).join(RECEIPT);
            let receipt = disk::read_small(&path, SMALL_FILE_BYTES).ok();
            let receipt = receipt.and_then(|json| serde_json::from_slice::<Receipt>(&json).ok());
            artifacts.push(receipt.map(|receipt| receipt.artifact_sha256));
        }
        match self.note(key)? {
            Note::Known(known) => {
                artifacts.push(Some(known.current.artifact_sha256));
                artifacts.extend(known.previous.map(|previous| Some(previous.artifact_sha256)));
            }
            Note::None => {}
            Note::Unreadable => artifacts.push(None),
        }
        Ok(artifacts)
    }

    /// Folders without a release in them say nothing.
    pub(super) fn drop_empty_folders(&self, key: &ConnectorKey) {
        let folder = self.connector_folder(key);
        for version in list(&folder).unwrap_or_default() {
            // Removing a folder that is not empty, or a file, fails; as it shall.
            let _not_empty = fs::remove_dir(folder.join(version));
        }
        let _not_empty = fs::remove_dir(folder);
    }

    fn note(&self, key: &ConnectorKey) -> Result<Note, Error> {
        match disk::read_small(&self.connector_folder(key).join(CURRENT), SMALL_FILE_BYTES) {
            Ok(json) => {
                Ok(serde_json::from_slice(&json)
                    .map_or(Note::Unreadable, |known| Note::Known(Box::new(known))))
            }
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Note::None),
            Err(cause) if cause.raw_os_error().is_none() => Ok(Note::Unreadable),
            Err(cause) => Err(disk::failed("read which release is current", cause)),
        }
    }

    fn releases_of(&self, key: &ConnectorKey) -> Result<Vec<(String, String)>, Error> {
        let mut releases = Vec::new();
        if !disk::is_folder(&self.root, &[RELEASES, key.as_str()])? {
            return Ok(releases);
        }
        let folder = self.connector_folder(key);
        for version in list(&folder)? {
            if semver::Version::parse(&version).is_ok()
                && disk::is_folder(&self.root, &[RELEASES, key.as_str(), &version])?
            {
                let digests = list(&folder.join(&version))?;
                releases.extend(digests.into_iter().map(|digest| (version.clone(), digest)));
            }
        }
        Ok(releases)
    }

    fn fingerprint(&self, release: &Release) -> Result<Sha256Digest, Damage> {
        let segments = [RELEASES, release.connector_key.as_str(), &version_of(release)];
        match disk::is_folder(&self.root, &segments) {
            Ok(true) => inventory::fingerprint(&self.folder_of(release), self.limits.entries + 2),
            Ok(false) => Err(Damage::Absent),
            Err(error) if error.code == ErrorCode::InstallFailed => {
                Err(Damage::Invalid("artifact_not_a_folder"))
            }
            Err(error) => Err(Damage::Unreadable(io::Error::other(error))),
        }
    }

    fn folder_of(&self, release: &Release) -> PathBuf {
        self.connector_folder(&release.connector_key)
            .join(version_of(release))
            .join(release.release_digest.to_string())
    }

    fn connector_folder(&self, key: &ConnectorKey) -> PathBuf {
        self.root.join(RELEASES).join(key.as_str())
    }
}

fn version_of(release: &Release) -> String {
    release.version.to_string()
}

/// Refuses a version that is no name for a folder.
pub(super) fn check_version(release: &Release) -> Result<(), Error> {
    if version_of(release).len() <= VERSION_BYTES {
        return Ok(());
    }
    Err(Error::invalid_manifest(format!(
        "release {}: a version may have at most {VERSION_BYTES} characters",
        release.release_id
    )))
}
