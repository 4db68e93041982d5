//! What a bundle, a component or a release holds, asks for and weighs.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    bundle,
    component::ComponentInterface,
    contract::{self, Problem},
    files, manifest,
};
use crate::domain::{
    digest::Sha256Digest,
    error::{Error, ErrorCode},
    id::ConnectorKey,
    manifest::{
        AuthorizationKind, CredentialInjection, HostName, Implementation, ImplementationKind, Manifest,
        Permission,
    },
    release::{Artifact, MEDIA_TYPE_BUNDLE, MEDIA_TYPE_COMPONENT, Release},
};

/// A file or a stretch of bytes: how much it weighs and its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Weight {
    /// Its bytes.
    pub size_bytes: u64,
    /// Their SHA-256.
    pub sha256: Sha256Digest,
}

impl Weight {
    fn of(bytes: &[u8]) -> Self {
        Self { size_bytes: bytes.len() as u64, sha256: Sha256Digest::of(bytes) }
    }
}

/// What a release document says, all of it checked.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseFacts {
    /// The connector.
    pub connector_key: ConnectorKey,
    /// The version.
    pub version: semver::Version,
    /// Recomputed, and equal to the document's.
    pub release_digest: Sha256Digest,
    /// Whether the artifact was at hand; if it was, its size and digest are the release's.
    pub artifact_verified: bool,
}

/// What a connector asks permission for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Demands {
    /// Its name for people.
    pub display_name: String,
    /// SHA-256 of the manifest as canonical JSON.
    pub manifest_digest: Sha256Digest,
    /// How it runs.
    pub implementation: ImplementationKind,
    /// The world it says it was built for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world: Option<String>,
    /// How it is authorized.
    pub authorization_kind: AuthorizationKind,
    /// What it asks for in words.
    pub permissions: Vec<Permission>,
    /// The hosts it may talk to.
    pub allowed_hosts: Vec<HostName>,
    /// Where the host puts the credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialInjection>,
    /// The limits it asks for; what is left out is the host's default.
    pub limits: serde_json::Value,
}

/// A component in what was inspected.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentFacts {
    /// Where it lies in the bundle; none for a bare component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What it weighs.
    #[serde(flatten)]
    pub weight: Weight,
    /// The world it was judged by.
    pub world: Option<String>,
    /// What it imports and exports.
    #[serde(flatten)]
    pub interface: ComponentInterface,
}

/// A file of a bundle.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileFacts {
    /// Where it lies.
    pub path: String,
    /// How many bytes it has.
    pub size_bytes: u64,
}

/// Everything there is to say of a file without running anything.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseFacts>,
    /// The artifact as it travels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Weight>,
    /// What the manifest asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Demands>,
    /// The component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<ComponentFacts>,
    /// The files of the bundle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileFacts>,
    /// Why a host would not take it; empty when nothing speaks against it.
    pub problems: Vec<Problem>,
}

/// Looks into a bundle, a bare component or a release document; which of them it
/// is, is told by its first bytes.
///
/// # Errors
/// `artifact_*` codes for an archive that is unsafe or not what its release says,
/// [`ErrorCode::InvalidManifest`] for a manifest or release that breaks a rule,
/// [`ErrorCode::ComponentInvalid`] for a component that is none.
pub fn inspect(path: &Path) -> Result<Inspection, Error> {
    let bytes = files::read(path)?;
    match bytes.first_chunk::<2>() {
        Some([0x1f, 0x8b]) => of_bundle(&bytes, None),
        Some(b"\0a") => of_component(&bytes),
        _ if bytes.trim_ascii_start().starts_with(b"{") => of_release(&bytes, path),
        _ => Err(Error::invalid_request(format!(
            "{} is neither a bundle (tar.gz) nor a component nor a release document",
            path.display()
        ))),
    }
}

/// Parses a release document, finds the artifact beside it, and proves that both
/// fit. Answers without bytes where the artifact is not there.
pub(super) fn read_release(json: &[u8], path: &Path) -> Result<(Release, PathBuf, Option<Vec<u8>>), Error> {
    let release: Release = serde_json::from_slice(json).map_err(|cause| {
        Error::invalid_manifest(if looks_like_manifest(json) {
            format!(
                "{path} is no release document, it looks like a manifest; `portcullis connector pack \
                 --manifest {path} ...` checks it and makes a release of it, which can be inspected",
                path = path.display()
            )
        } else {
            format!("{} is no release document: {cause}", path.display())
        })
    })?;
    release.validate()?;
    let artifact = path.parent().unwrap_or(Path::new("")).join(&release.artifact.key);
    if !artifact.exists() {
        return Ok((release, artifact, None));
    }
    let bytes = files::read(&artifact)?;
    verify(&release.artifact, &bytes)
        .map_err(|error| Error { message: format!("{}: {error}", artifact.display()), ..error })?;
    Ok((release, artifact, Some(bytes)))
}

/// A manifest says how it runs; a release document has that one level deeper.
fn looks_like_manifest(json: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(json)
        .is_ok_and(|document| document.contains_key("implementation") && !document.contains_key("manifest"))
}

fn verify(artifact: &Artifact, bytes: &[u8]) -> Result<(), Error> {
    if u64::try_from(artifact.size_bytes).ok() != Some(bytes.len() as u64) {
        return Err(Error::new(
            ErrorCode::ArtifactSizeMismatch,
            format!("the artifact has {} bytes, its release says {}", bytes.len(), artifact.size_bytes),
        ));
    }
    let found = Sha256Digest::of(bytes);
    if found != artifact.sha256 {
        return Err(Error::new(
            ErrorCode::ArtifactDigestMismatch,
            format!("the artifact's SHA-256 is {found}, its release says {}", artifact.sha256),
        ));
    }
    Ok(())
}

/// Looks into the artifact of a release, and proves that it is that release's.
pub(super) fn of_artifact(release: &Release, bytes: &[u8]) -> Result<Inspection, Error> {
    match release.artifact.media_type.as_str() {
        MEDIA_TYPE_BUNDLE => of_bundle(bytes, Some(release)),
        MEDIA_TYPE_COMPONENT => {
            let mut inspection = of_component(bytes)?;
            judge(&mut inspection, &release.manifest)?;
            inspection.manifest = Some(demands(&release.manifest)?);
            Ok(inspection)
        }
        other => Err(Error::new(
            ErrorCode::ArtifactMediaTypeUnsupported,
            format!(
                "artifact.mediaType {other:?} is unknown; use {MEDIA_TYPE_BUNDLE} or {MEDIA_TYPE_COMPONENT}"
            ),
        )),
    }
}

fn of_release(json: &[u8], path: &Path) -> Result<Inspection, Error> {
    let (release, _, bytes) = read_release(json, path)?;
    let mut inspection = match &bytes {
        Some(bytes) => of_artifact(&release, bytes)?,
        None => Inspection { manifest: Some(demands(&release.manifest)?), ..Inspection::default() },
    };
    inspection.release = Some(ReleaseFacts {
        artifact_verified: bytes.is_some(),
        connector_key: release.connector_key,
        version: release.version,
        release_digest: release.release_digest,
    });
    Ok(inspection)
}

fn of_bundle(bytes: &[u8], release: Option<&Release>) -> Result<Inspection, Error> {
    let contents = bundle::read(bytes)?;
    let packed = contents.get(bundle::MANIFEST).ok_or_else(|| {
        Error::new(ErrorCode::ArtifactMalformed, format!("the bundle has no {}", bundle::MANIFEST))
    })?;
    let manifest = manifest::read(packed)?;
    if let Some(release) = release
        && manifest.digest()? != release.manifest_digest
    {
        return Err(Error::new(
            ErrorCode::ArtifactManifestMismatch,
            format!("the bundle's {} is not the manifest of {}", bundle::MANIFEST, release.release_id),
        ));
    }
    let mut inspection = Inspection { artifact: Some(Weight::of(bytes)), ..Inspection::default() };
    if let Implementation::WasmComponent(wasm) = &manifest.implementation {
        let component = contents.get(&wasm.component).ok_or_else(|| {
            Error::new(
                ErrorCode::ArtifactMalformed,
                format!("the bundle has no {}, which implementation.component names", wasm.component),
            )
        })?;
        inspection.component = Some(component_facts(Some(wasm.component.clone()), component)?);
        judge(&mut inspection, &manifest)?;
    }
    inspection.manifest = Some(demands(&manifest)?);
    inspection.files = contents
        .into_iter()
        .map(|(path, bytes)| FileFacts { path, size_bytes: bytes.len() as u64 })
        .collect();
    Ok(inspection)
}

fn of_component(bytes: &[u8]) -> Result<Inspection, Error> {
    let mut facts = component_facts(None, bytes)?;
    facts.world = contract::likely_world(&facts.interface)?.map(str::to_owned);
    let world = facts.world.as_deref().unwrap_or(crate::domain::manifest::WORLD_CONNECTOR);
    Ok(Inspection {
        artifact: Some(facts.weight.clone()),
        problems: contract::problems(&facts.interface, world)?,
        component: Some(facts),
        ..Inspection::default()
    })
}

fn component_facts(path: Option<String>, bytes: &[u8]) -> Result<ComponentFacts, Error> {
    let interface = ComponentInterface::read(bytes)?;
    Ok(ComponentFacts { path, weight: Weight::of(bytes), world: None, interface })
}

/// Judges the component by the world that the manifest names.
fn judge(inspection: &mut Inspection, manifest: &Manifest) -> Result<(), Error> {
    if let (Some(facts), Implementation::WasmComponent(wasm)) =
        (&mut inspection.component, &manifest.implementation)
    {
        facts.world = Some(wasm.world.clone());
        inspection.problems = contract::problems(&facts.interface, &wasm.world)?;
    }
    Ok(())
}

fn demands(manifest: &Manifest) -> Result<Demands, Error> {
    let json = |value: serde_json::Result<serde_json::Value>| {
        value.map_err(|cause| Error::invalid_manifest("the limits have no JSON form").with_cause(cause))
    };
    let (world, credential, limits) = match &manifest.implementation {
        Implementation::WasmComponent(wasm) => {
            (Some(wasm.world.clone()), wasm.credential.clone(), json(serde_json::to_value(wasm.limits))?)
        }
        Implementation::RemoteStreamableHttp(remote) => {
            (None, None, json(serde_json::to_value(remote.limits))?)
        }
    };
    Ok(Demands {
        display_name: manifest.display_name.clone(),
        manifest_digest: manifest.digest()?,
        implementation: manifest.implementation.kind(),
        world,
        authorization_kind: manifest.authorization_kind,
        permissions: manifest.permissions.clone(),
        allowed_hosts: manifest.implementation.allowed_hosts().to_vec(),
        credential,
        limits,
    })
}
