//! A connector on the wire. How it is implemented is reduced to its kind; what it
//! asks permission for, and what it would reach and take, is shown in full.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::{
    authorization::AuthorizationState,
    compatibility::CompatibilityState,
    connector,
    convergence::ConnectorRuntime,
    installation,
    manifest::{self, AgentRouting, AuthorizationKind, CredentialPlacement, ImplementationKind},
    release::{self, ReleaseStatus},
    timestamp::Timestamp,
};

/// A connector.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connector {
    /// Identifies it.
    pub key: String,
    /// What the catalog offers now; not what is installed.
    pub release: Release,
    /// What is installed.
    pub installation: Installation,
    /// Its authorization.
    pub authorization: Authorization,
    /// Whether the offered release runs here.
    pub compatibility: Compatibility,
    /// Whether it runs; there once it is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    /// When it last changed.
    pub revision: u64,
}

impl Connector {
    /// What the wire shows of `connector`.
    #[must_use]
    pub fn new(connector: connector::Connector, runtime: Option<ConnectorRuntime>) -> Self {
        Self {
            key: connector.key.as_str().to_owned(),
            release: connector.release.into(),
            installation: (&connector.installation).into(),
            authorization: Authorization {
                state: connector.authorization.state,
                failure_code: connector.authorization.failure_code,
            },
            compatibility: Compatibility {
                state: connector.compatibility.state,
                reason: connector.compatibility.reason,
            },
            runtime: runtime.map(Runtime::from),
            revision: connector.revision.0,
        }
    }

    /// Adds what the release in place may do, where the catalog offers another.
    #[must_use]
    pub fn with_installed(mut self, installed: Option<release::Release>) -> Self {
        self.installation.installed_access = installed.map(|release| InstalledAccess {
            access: (&release.manifest.implementation).into(),
            permissions: Manifest::from(release.manifest).permissions,
        });
        self
    }
}

/// What the release in place says it needs, reaches and takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstalledAccess {
    /// What it asked permission for.
    pub permissions: Vec<String>,
    /// What it reaches and takes.
    #[serde(flatten)]
    pub access: Access,
}

/// A release.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The version of this document's form.
    pub schema_version: String,
    /// Identifies it.
    pub release_id: String,
    /// The connector.
    pub connector_key: String,
    /// Its version.
    pub version: String,
    /// SHA-256 over its identity.
    pub release_digest: String,
    /// SHA-256 of its manifest.
    pub manifest_digest: String,
    /// What the connector says of itself.
    pub manifest: Manifest,
    /// Its bytes.
    pub artifact: Artifact,
    /// When it was published.
    pub published_at: Timestamp,
    /// Whether it is still the one to install.
    pub status: ReleaseStatus,
}

impl From<release::Release> for Release {
    fn from(release: release::Release) -> Self {
        Self {
            schema_version: release.schema_version,
            release_id: release.release_id.as_str().to_owned(),
            connector_key: release.connector_key.as_str().to_owned(),
            version: release.version.to_string(),
            release_digest: release.release_digest.to_string(),
            manifest_digest: release.manifest_digest.to_string(),
            manifest: release.manifest.into(),
            artifact: Artifact {
                sha256: release.artifact.sha256.to_string(),
                size_bytes: release.artifact.size_bytes,
                media_type: release.artifact.media_type,
            },
            published_at: release.published_at,
            status: release.status,
        }
    }
}

/// The bytes of a release; where they are kept is not shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Their SHA-256.
    pub sha256: String,
    /// How many there are.
    pub size_bytes: i64,
    /// What they are.
    pub media_type: String,
}

/// What a connector says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The version of its form.
    pub schema_version: String,
    /// A name for people.
    pub display_name: String,
    /// Its picture.
    pub icon_url: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Other names for agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_routing: Option<AgentRouting>,
    /// What it asks permission for.
    pub permissions: Vec<String>,
    /// What it would reach and take; enforced, not only shown.
    pub access: Access,
    /// What it needs of a remote server.
    pub required_capabilities: Vec<String>,
    /// How it runs; its kind only.
    pub implementation: Implementation,
    /// How it is authorized.
    pub authorization_kind: AuthorizationKind,
    /// Data of its authorization flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_interaction: Option<Value>,
    /// What it asks of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<Requirements>,
}

/// How a connector runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Implementation {
    /// Its kind.
    pub kind: ImplementationKind,
}

/// What a connector asks of its host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirements {
    /// Products it is for; empty for all.
    pub products: Vec<String>,
    /// Platforms it is for; empty for all.
    pub platforms: Vec<String>,
    /// The oldest host version it works with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_host_version: Option<String>,
}

/// What a connector would reach and take.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// The hosts it may send requests to.
    pub allowed_hosts: Vec<String>,
    /// Where the host puts the connection's credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// What it asks for; what is left out is the operator's default, and the
    /// operator's ceiling holds all the same.
    pub limits: Limits,
}

/// Where the host puts the connection's credential. The connector never sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// For which hosts.
    pub hosts: Vec<String>,
    /// In which place.
    pub placement: CredentialPlacement,
}

/// What one call may take, as asked for.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Bytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Elements of all tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_elements: Option<u64>,
    /// Milliseconds of CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Milliseconds from start to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Calls at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_calls: Option<u32>,
    /// Bytes of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u64>,
}

impl From<manifest::Manifest> for Manifest {
    fn from(manifest: manifest::Manifest) -> Self {
        Self {
            access: (&manifest.implementation).into(),
            implementation: Implementation { kind: manifest.implementation.kind() },
            schema_version: manifest.schema_version,
            display_name: manifest.display_name,
            icon_url: manifest.icon_url,
            description: manifest.description,
            agent_routing: manifest.agent_routing,
            permissions: manifest.permissions.iter().map(ToString::to_string).collect(),
            required_capabilities: manifest.required_capabilities,
            authorization_kind: manifest.authorization_kind,
            authorization_interaction: manifest.authorization_interaction,
            compatibility: manifest.compatibility.map(|asked| Requirements {
                products: asked.products,
                platforms: asked.platforms,
                minimum_host_version: asked.minimum_host_version.map(|version| version.to_string()),
            }),
        }
    }
}

impl From<&manifest::Implementation> for Access {
    fn from(implementation: &manifest::Implementation) -> Self {
        let names = |hosts: &[manifest::HostName]| hosts.iter().map(ToString::to_string).collect();
        let (credential, limits) = match implementation {
            manifest::Implementation::WasmComponent(component) => (
                component.credential.as_ref().map(|injection| Credential {
                    hosts: names(&injection.hosts),
                    placement: injection.placement.clone(),
                }),
                Limits {
                    memory_bytes: component.limits.memory_bytes,
                    table_elements: component.limits.table_elements,
                    cpu_ms: component.limits.cpu_ms,
                    wall_ms: component.limits.wall_ms,
                    concurrent_calls: component.limits.concurrent_calls,
                    response_bytes: component.limits.response_bytes,
                },
            ),
            manifest::Implementation::RemoteStreamableHttp(remote) => (
                None,
                Limits {
                    wall_ms: Some(remote.limits.timeout_ms),
                    response_bytes: Some(remote.limits.response_bytes),
                    ..Limits::default()
                },
            ),
        };
        Self { allowed_hosts: names(implementation.allowed_hosts()), credential, limits }
    }
}

/// What is installed. A release that is only on its way is not shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Installation {
    /// `not_installed`, `installing`, `installed`, `updating`, `uninstalling` or `failed`.
    pub state: String,
    /// When it was committed, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_at_unix_ms: Option<i64>,
    /// The version in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_version: Option<String>,
    /// The release in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_release_id: Option<String>,
    /// Its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_release_digest: Option<String>,
    /// What that release may do; only where one connector is read, the catalog
    /// offers another release, and what was installed is still known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_access: Option<InstalledAccess>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
}

impl From<&installation::Installation> for Installation {
    fn from(installation: &installation::Installation) -> Self {
        let installed = installation.installed();
        Self {
            state: installation.name().to_owned(),
            installed_at_unix_ms: installed.map(|one| one.installed_at.0),
            installed_version: installed.map(|one| one.identity.version.to_string()),
            installed_release_id: installed.map(|one| one.identity.release_id.as_str().to_owned()),
            installed_release_digest: installed.map(|one| one.identity.release_digest.to_string()),
            installed_access: None,
            failure_code: installation.failure_code().map(|code| code.0.clone()),
        }
    }
}

/// An authorization.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// Where it stands.
    pub state: AuthorizationState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
}

/// A verdict on whether a release runs here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compatibility {
    /// The verdict.
    pub state: CompatibilityState,
    /// A stable word for why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether an installed connector runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// `started`, `starting`, `stopped` or `failed`.
    pub state: String,
    /// Why it does not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
}

impl From<ConnectorRuntime> for Runtime {
    fn from(runtime: ConnectorRuntime) -> Self {
        let (state, failure_code) = match runtime {
            ConnectorRuntime::Started => ("started", None),
            ConnectorRuntime::Starting => ("starting", None),
            ConnectorRuntime::Stopped => ("stopped", None),
            ConnectorRuntime::Failed { failure_code } => ("failed", Some(failure_code)),
        };
        Self { state: state.to_owned(), failure_code: failure_code.map(|code| code.as_str().to_owned()) }
    }
}
