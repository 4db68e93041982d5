//! Component and manifest to a bundle and its release document.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use base64::Engine as _;

use super::{bundle, component::ComponentInterface, contract, files, manifest};
use crate::domain::{
    digest::{Sha256Digest, canonical_json},
    error::{Error, ErrorCode},
    id::ConnectorKey,
    manifest::{Implementation, Manifest},
    release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
    timestamp::Timestamp,
};

/// What a release document's name ends in.
pub const RELEASE_SUFFIX: &str = ".release.json";

/// The permission, scoped or not, whose words say that a connector reaches hosts.
const NETWORK: &str = "network";

/// What to pack.
#[derive(Clone, Debug)]
pub struct PackRequest {
    /// The component; none for a connector that runs elsewhere.
    pub component: Option<PathBuf>,
    /// The manifest.
    pub manifest: PathBuf,
    /// The connector.
    pub key: ConnectorKey,
    /// The version of the release.
    pub version: semver::Version,
    /// An icon that takes the place of the manifest's `iconUrl`, carried inside it.
    pub icon: Option<PathBuf>,
    /// A folder of skills.
    pub skills: Option<PathBuf>,
    /// Further files, each put beside the manifest under its own name.
    pub files: Vec<PathBuf>,
    /// When it was published.
    pub published_at: Timestamp,
    /// The folder that bundle and release document go to.
    pub out: PathBuf,
    /// Whether another release of the same version may be overwritten there.
    pub force: bool,
}

/// A release that was packed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Packed {
    /// The bundle.
    pub bundle: PathBuf,
    /// The release document.
    pub release_document: PathBuf,
    /// What the document says.
    pub release: Release,
}

/// Packs a release. The same input gives the same bytes.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::InvalidManifest`] naming the field;
/// `component_*` codes for a component that its host would refuse;
/// [`crate::domain::error::ErrorCode::InvalidRequest`] for files that cannot be
/// packed; [`ErrorCode::ArtifactDigestMismatch`] where another release of the
/// version lies already. Nothing is written then.
pub fn pack(request: &PackRequest) -> Result<Packed, Error> {
    let in_file =
        |path: &Path, error: Error| Error { message: format!("{}: {error}", path.display()), ..error };
    let mut document = files::read(&request.manifest)?;
    if let Some(icon) = &request.icon {
        document = manifest::with_icon(&document, &icon_url(icon)?)
            .map_err(|error| in_file(&request.manifest, error))?;
    }
    let manifest = manifest::read(&document).map_err(|error| in_file(&request.manifest, error))?;
    words_fit_hosts(&manifest).map_err(|error| in_file(&request.manifest, error))?;
    let mut contents = bundle::Files::new();
    contents.insert(bundle::MANIFEST.to_owned(), canonical_json(&manifest)?);
    match (&manifest.implementation, &request.component) {
        (Implementation::WasmComponent(wasm), Some(path)) => {
            let bytes = files::read(path)?;
            ComponentInterface::read(&bytes)
                .and_then(|interface| contract::require(&interface, &wasm.world))
                .map_err(|error| in_file(path, error))?;
            add(&mut contents, wasm.component.clone(), bytes)?;
        }
        (Implementation::WasmComponent(_), None) => {
            return Err(Error::invalid_request("name the component: this connector is a wasm_component"));
        }
        (Implementation::RemoteStreamableHttp(_), None) => {}
        (Implementation::RemoteStreamableHttp(_), Some(path)) => {
            return Err(Error::invalid_request(format!(
                "leave {} out: this connector is a remote_streamable_http and has no component",
                path.display()
            )));
        }
    }
    if let Some(folder) = &request.skills {
        add_skills(&mut contents, folder)?;
    }
    for path in &request.files {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Error::invalid_request(format!("{} has no name that can stand in a bundle", path.display()))
        })?;
        add(&mut contents, name.to_owned(), files::read(path)?)?;
    }
    let bytes = bundle::write(&contents)?;
    // What a host would not unpack is not worth publishing.
    bundle::read(&bytes)?;

    let stem = format!("{}-{}", request.key, request.version);
    let release = assemble(request, manifest, format!("{stem}.tar.gz"), &bytes)?;
    let bundle = request.out.join(&release.artifact.key);
    let release_document = request.out.join(format!("{stem}{RELEASE_SUFFIX}"));
    if !request.force {
        refuse_another(&bundle, &release_document, &release)?;
    }
    files::write_atomically(&bundle, &bytes)?;
    files::write_atomically(&release_document, &files::pretty_json(&release)?)?;
    Ok(Packed { bundle, release_document, release })
}

/// Hosts are enforced and permissions are words for people, so a host runs what
/// has the one without the other. A person would be misled; an author is told.
fn words_fit_hosts(manifest: &Manifest) -> Result<(), Error> {
    let asks = manifest
        .permissions
        .iter()
        .any(|permission| permission.as_str().split(':').next().is_some_and(|name| name == NETWORK));
    let hosts = manifest.implementation.allowed_hosts();
    match (asks, hosts.first()) {
        (false, Some(host)) => Err(Error::invalid_manifest(format!(
            "permissions: add {NETWORK:?}, because implementation.allowedHosts names {host}; \
             or empty allowedHosts"
        ))),
        (true, None) => Err(Error::invalid_manifest(format!(
            "permissions: {NETWORK:?} asks for what it cannot use; add the hosts to \
             implementation.allowedHosts, or remove the permission"
        ))),
        _ => Ok(()),
    }
}

/// A version names one release, here as in a catalog.
fn refuse_another(bundle: &Path, document: &Path, release: &Release) -> Result<(), Error> {
    let other_bundle = bundle.exists() && Sha256Digest::of(&files::read(bundle)?) != release.artifact.sha256;
    let other_document = document.exists()
        && serde_json::from_slice::<Release>(&files::read(document)?)
            .map_or(true, |there| there.release_digest != release.release_digest);
    match (other_bundle, other_document) {
        (false, false) => Ok(()),
        (bundle_differs, _) => Err(Error::new(
            ErrorCode::ArtifactDigestMismatch,
            format!(
                "{} is there and is another release; a released version never changes; \
                 raise the version or pass --force",
                if bundle_differs { bundle } else { document }.display()
            ),
        )),
    }
}

/// An icon as a data URL, which works without a network.
fn icon_url(path: &Path) -> Result<String, Error> {
    let media_type = match path.extension().and_then(|extension| extension.to_str()) {
        Some("png") => "image/png",
        Some("webp") => "image/webp",
        Some("svg") => "image/svg+xml",
        _ => {
            return Err(Error::invalid_request(format!(
                "{} must be a .png, .webp or .svg to be an icon",
                path.display()
            )));
        }
    };
    let bytes = base64::engine::general_purpose::STANDARD.encode(files::read(path)?);
    Ok(format!("data:{media_type};base64,{bytes}"))
}

fn assemble(request: &PackRequest, manifest: Manifest, name: String, bytes: &[u8]) -> Result<Release, Error> {
    let artifact = Artifact {
        key: name,
        sha256: Sha256Digest::of(bytes),
        size_bytes: i64::try_from(bytes.len())
            .map_err(|cause| Error::invalid_request("the bundle is too large").with_cause(cause))?,
        media_type: MEDIA_TYPE_BUNDLE.to_owned(),
        object_version: None,
    };
    Release::assemble(request.key.clone(), request.version.clone(), manifest, artifact, request.published_at)
}

fn add(contents: &mut bundle::Files, path: String, bytes: Vec<u8>) -> Result<(), Error> {
    if contents.contains_key(&path) {
        return Err(Error::invalid_request(format!(
            "{path} is in the bundle already; rename one of the files"
        )));
    }
    contents.insert(path, bytes);
    Ok(())
}

/// Adds every file below `folder`. Hidden files are left out; a link is refused,
/// because what it points to is not what the author looks at.
fn add_skills(contents: &mut bundle::Files, folder: &Path) -> Result<(), Error> {
    let mut waiting = vec![(folder.to_owned(), bundle::SKILLS.to_owned())];
    let mut found = false;
    while let Some((folder, inside)) = waiting.pop() {
        let unreadable = |cause: std::io::Error| {
            Error::invalid_request(format!("cannot read the folder {}: {cause}", folder.display()))
                .with_cause(cause)
        };
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| {
                Error::invalid_request(format!("{} has a name that is no text", entry.path().display()))
            })?;
            if name.starts_with('.') {
                continue;
            }
            let path = format!("{inside}/{name}");
            let kind = entry.file_type().map_err(unreadable)?;
            if kind.is_dir() {
                waiting.push((entry.path(), path));
            } else if kind.is_file() {
                found |= name == "SKILL.md";
                add(contents, path, files::read(&entry.path())?)?;
            } else {
                return Err(Error::invalid_request(format!(
                    "{} is neither a file nor a folder; skills may hold nothing else",
                    entry.path().display()
                )));
            }
        }
    }
    if found {
        Ok(())
    } else {
        Err(Error::invalid_request(format!("{} holds no SKILL.md", folder.display())))
    }
}
