//! A release: an immutable identity over a manifest and an artifact.

use serde::{Deserialize, Serialize};

use super::{
    digest::Sha256Digest,
    error::Error,
    id::{ConnectorKey, ReleaseId},
    manifest::{Manifest, SCHEMA_VERSION, is_safe_relative_path},
    timestamp::Timestamp,
};

/// Whether a release is still the one to install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseStatus {
    /// It is.
    Available,
    /// A newer one took its place.
    Superseded,
}

/// The media types that an artifact may have.
pub const MEDIA_TYPE_BUNDLE: &str = "application/vnd.portcullis.bundle.v1.tar+gzip";
/// A bare component.
pub const MEDIA_TYPE_COMPONENT: &str = "application/wasm";

/// The bytes of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Artifact {
    /// Where the bytes are, relative to the catalog.
    pub key: String,
    /// Their SHA-256.
    pub sha256: Sha256Digest,
    /// How many there are; more than 0.
    pub size_bytes: i64,
    /// [`MEDIA_TYPE_BUNDLE`] or [`MEDIA_TYPE_COMPONENT`].
    pub media_type: String,
    /// The version of the stored object, where the store has versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_version: Option<String>,
}

/// A release (spec A.3, design: release digest).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// Always [`SCHEMA_VERSION`].
    pub schema_version: String,
    /// Identifies it: `<connector key>@<version>`.
    pub release_id: ReleaseId,
    /// The connector.
    pub connector_key: ConnectorKey,
    /// Its version.
    pub version: semver::Version,
    /// SHA-256 over connector key, version, manifest digest and artifact identity.
    pub release_digest: Sha256Digest,
    /// SHA-256 of the manifest as canonical JSON.
    pub manifest_digest: Sha256Digest,
    /// What the connector says of itself.
    pub manifest: Manifest,
    /// Its bytes.
    pub artifact: Artifact,
    /// When it was published.
    pub published_at: Timestamp,
    /// Whether it is still the one to install.
    pub status: ReleaseStatus,
}

impl Release {
    /// Puts a release together and computes its digests.
    ///
    /// # Errors
    /// [`super::error::ErrorCode::InvalidManifest`] when a part breaks a rule.
    pub fn assemble(
        connector_key: ConnectorKey,
        version: semver::Version,
        manifest: Manifest,
        artifact: Artifact,
        published_at: Timestamp,
    ) -> Result<Self, Error> {
        let manifest_digest = manifest.digest()?;
        let release_digest = release_digest(&connector_key, &version, &manifest_digest, &artifact)?;
        let release = Self {
            schema_version: SCHEMA_VERSION.to_owned(),
            release_id: ReleaseId::parse(format!("{connector_key}@{version}"))?,
            connector_key,
            version,
            release_digest,
            manifest_digest,
            manifest,
            artifact,
            published_at,
            status: ReleaseStatus::Available,
        };
        release.validate()?;
        Ok(release)
    }

    /// Checks the shape, and recomputes both digests.
    ///
    /// # Errors
    /// [`super::error::ErrorCode::InvalidManifest`], naming what does not hold.
    pub fn validate(&self) -> Result<(), Error> {
        let check = |holds: bool, message: &str| {
            if holds {
                Ok(())
            } else {
                Err(Error::invalid_manifest(format!("release {}: {message}", self.release_id)))
            }
        };
        check(self.schema_version == SCHEMA_VERSION, "schemaVersion must be \"1\"")?;
        check(self.published_at.0 > 0, "publishedAt must be set")?;
        check(is_safe_relative_path(&self.artifact.key), "artifact.key must be a relative path")?;
        check(self.artifact.size_bytes > 0, "artifact.sizeBytes must be more than 0")?;
        check(!self.artifact.media_type.trim().is_empty(), "artifact.mediaType must not be blank")?;
        self.manifest.validate()?;
        check(self.manifest.digest()? == self.manifest_digest, "manifestDigest is not the manifest's")?;
        let digest =
            release_digest(&self.connector_key, &self.version, &self.manifest_digest, &self.artifact)?;
        check(digest == self.release_digest, "releaseDigest does not cover this release")
    }
}

fn release_digest(
    connector_key: &ConnectorKey,
    version: &semver::Version,
    manifest_digest: &Sha256Digest,
    artifact: &Artifact,
) -> Result<Sha256Digest, Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ArtifactIdentity<'a> {
        media_type: &'a str,
        sha256: &'a Sha256Digest,
        size_bytes: i64,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Identity<'a> {
        artifact: ArtifactIdentity<'a>,
        connector_key: &'a ConnectorKey,
        manifest_digest: &'a Sha256Digest,
        version: &'a semver::Version,
    }
    Sha256Digest::of_canonical_json(&Identity {
        artifact: ArtifactIdentity {
            media_type: &artifact.media_type,
            sha256: &artifact.sha256,
            size_bytes: artifact.size_bytes,
        },
        connector_key,
        manifest_digest,
        version,
    })
}
