//! What the files of a release must be, whichever way they were packed.

use std::{io, path::Path};

use super::{
    disk,
    inventory::{Damage, Inventory},
    unpack::{self, UnpackLimits},
};
use crate::domain::{
    error::{Error, ErrorCode},
    manifest::{Implementation, Manifest},
    release::{MEDIA_TYPE_BUNDLE, MEDIA_TYPE_COMPONENT, Release},
};

/// The packed manifest.
pub const MANIFEST_FILE: &str = "connector.json";
const MANIFEST_BYTES: u64 = 1 << 20;

/// Refuses an artifact that this host could not unpack, before it is fetched.
pub(super) fn check_artifact(
    release: &Release,
    limits: &UnpackLimits,
    archive_bytes: u64,
) -> Result<(), Error> {
    let artifact = &release.artifact;
    let most = match artifact.media_type.as_str() {
        MEDIA_TYPE_BUNDLE => archive_bytes,
        MEDIA_TYPE_COMPONENT if release.manifest.implementation.is_remote() => {
            return Err(Error::new(
                ErrorCode::ArtifactMediaTypeUnsupported,
                format!("{}: a connector that runs elsewhere has no component to fetch", release.release_id),
            ));
        }
        MEDIA_TYPE_COMPONENT => archive_bytes.min(limits.file_bytes),
        other => {
            return Err(Error::new(
                ErrorCode::ArtifactMediaTypeUnsupported,
                format!(
                    "{}: the artifact's media type {other:?} is unknown; this host reads {MEDIA_TYPE_BUNDLE} and {MEDIA_TYPE_COMPONENT}",
                    release.release_id
                ),
            ));
        }
    };
    if u64::try_from(artifact.size_bytes).is_ok_and(|size| size <= most) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::ArtifactLimitExceeded,
        format!(
            "{}: the artifact has {} bytes, at most {most} are fetched",
            release.release_id, artifact.size_bytes
        ),
    ))
}

/// Lays the files of a release, whose archive was verified, into the empty folder
/// `content`, and takes their inventory.
pub(super) fn lay_out(
    archive: &Path,
    content: &Path,
    release: &Release,
    limits: &UnpackLimits,
) -> Result<Inventory, Error> {
    if release.artifact.media_type == MEDIA_TYPE_COMPONENT {
        copy_component(archive, content, release)?;
    } else {
        unpack::unpack(archive, content, limits)?;
    }
    let inventory = Inventory::of(content, limits.entries).map_err(|damage| match damage {
        Damage::Unreadable(cause) => disk::failed("read what was unpacked", cause),
        Damage::Absent | Damage::Invalid(_) => disk::foreign("what was just unpacked"),
    })?;
    examine(content, &inventory, release)?;
    unpack::sync_all(content).map_err(|cause| disk::failed("make files durable", cause))?;
    Ok(inventory)
}

/// Checks that the files are those of the release: the packed manifest is the
/// released one, and the component is there. Other files are inert.
pub(super) fn examine(content: &Path, inventory: &Inventory, release: &Release) -> Result<(), Error> {
    let bare = release.artifact.media_type == MEDIA_TYPE_COMPONENT;
    if !bare {
        manifest(content, release)?;
    }
    let Some(path) = component_path(release) else { return Ok(()) };
    match inventory.file(path) {
        None => Err(Error::new(
            ErrorCode::ArtifactMalformed,
            format!("{}: the bundle does not hold the component {path:?}", release.release_id),
        )),
        Some(sha256) if bare && sha256 != release.artifact.sha256 => Err(Error::new(
            ErrorCode::ArtifactDigestMismatch,
            format!("{}: the component is not the released one", release.release_id),
        )),
        Some(_) => Ok(()),
    }
}

/// Where the component lies among the files; none when the connector runs elsewhere.
pub(super) fn component_path(release: &Release) -> Option<&str> {
    match &release.manifest.implementation {
        Implementation::WasmComponent(component) => Some(&component.component),
        Implementation::RemoteStreamableHttp(_) => None,
    }
}

fn manifest(content: &Path, release: &Release) -> Result<(), Error> {
    let mismatch = |why: &str| {
        Error::new(
            ErrorCode::ArtifactManifestMismatch,
            format!("{}: the bundle's {MANIFEST_FILE} {why}", release.release_id),
        )
    };
    let bytes = match disk::read_small(&content.join(MANIFEST_FILE), MANIFEST_BYTES) {
        Ok(bytes) => bytes,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Err(mismatch("is missing")),
        Err(cause) if cause.raw_os_error().is_none() => {
            return Err(mismatch(&format!("is not a file of at most {MANIFEST_BYTES} bytes")));
        }
        Err(cause) => return Err(disk::failed("read a manifest", cause)),
    };
    // The cause is told in words alone: its own code is the one of a bad catalog,
    // and callers act on the innermost code.
    let packed =
        Manifest::parse(&bytes).map_err(|cause| mismatch(&format!("is no valid manifest: {cause}")))?;
    if packed.digest()? == release.manifest_digest {
        Ok(())
    } else {
        Err(mismatch("is not the released manifest"))
    }
}

fn copy_component(archive: &Path, content: &Path, release: &Release) -> Result<(), Error> {
    let Some(path) = component_path(release) else { return Ok(()) };
    if let Some((parents, _)) = path.rsplit_once('/') {
        disk::ensure_folder(content, &parents.split('/').collect::<Vec<_>>())?;
    }
    let copy = || {
        let mut from = disk::open_file(archive)?;
        let mut to = disk::create_file(&content.join(path))?;
        io::copy(&mut from, &mut to)
    };
    copy().map(drop).map_err(|cause| disk::failed("copy a component", cause))
}
