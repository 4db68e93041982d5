//! The manifest: what a connector says of itself before anything of it runs.
//!
//! [`Manifest`] is parsed with unknown fields refused; [`Manifest::validate`]
//! checks the rules of spec F. A manifest that passed both can be trusted.

mod implementation;
mod limits;
mod permission;
mod validate;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{digest::Sha256Digest, error::Error};

pub use implementation::{
    CredentialInjection, CredentialPlacement, HostName, Implementation, ImplementationKind,
    RemoteAuthentication, RemoteLimits, RemoteStreamableHttp, WORLD_AUTHORIZING_CONNECTOR, WORLD_CONNECTOR,
    WasmComponent,
};
pub use limits::{ComponentLimits, EffectiveLimits};
pub use permission::Permission;
pub use validate::is_safe_relative_path;

/// The schema version that this host reads.
pub const SCHEMA_VERSION: &str = "1";

/// How a connector is authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthorizationKind {
    /// It needs no authorization.
    None,
    /// OAuth 2.0, or a flow of the connector's own.
    Oauth2,
    /// A secret that the person pastes in.
    ApiKey,
}

/// Other names by which agents may look for a connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentRouting {
    /// 1 to 12 names, unique ignoring case.
    pub aliases: Vec<String>,
}

/// What a connector asks of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompatibilityRequirements {
    /// Products it is for; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub products: Vec<String>,
    /// Platforms it is for, such as `linux-amd64`; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<String>,
    /// The oldest host version it works with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_host_version: Option<semver::Version>,
}

/// What a connector says of itself (spec A.3, F).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// Always [`SCHEMA_VERSION`].
    pub schema_version: String,
    /// A name for people.
    pub display_name: String,
    /// An https URL, or an inline PNG, WebP or SVG of at most 128 KiB as a data URL.
    pub icon_url: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Other names for agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_routing: Option<AgentRouting>,
    /// What it asks permission for, shown before installation.
    #[serde(default)]
    pub permissions: Vec<Permission>,
    /// What it needs of a remote server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_capabilities: Vec<String>,
    /// How it runs.
    pub implementation: Implementation,
    /// How it is authorized.
    pub authorization_kind: AuthorizationKind,
    /// Data of the authorization flow, opaque here; at most 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_interaction: Option<Value>,
    /// What it asks of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<CompatibilityRequirements>,
    /// Inputs that a conformance run plays, by capability name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub examples: BTreeMap<String, Vec<Value>>,
}

impl Manifest {
    /// Parses a manifest and checks every rule.
    ///
    /// # Errors
    /// [`super::error::ErrorCode::InvalidManifest`], naming the field and the rule.
    pub fn parse(json: &[u8]) -> Result<Self, Error> {
        let manifest: Self = serde_json::from_slice(json)
            .map_err(|cause| Error::invalid_manifest(format!("the manifest is not readable: {cause}")))?;
        manifest.validate()?;
        Ok(manifest)
    }

    /// SHA-256 of the manifest as canonical JSON (RFC 8785).
    ///
    /// # Errors
    /// When the manifest has no canonical form.
    pub fn digest(&self) -> Result<Sha256Digest, Error> {
        Sha256Digest::of_canonical_json(self)
    }
}
