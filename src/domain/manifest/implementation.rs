//! How a connector runs: a component here, or a server elsewhere.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::{super::error::Error, ComponentLimits};

/// The world of a connector whose authorization the host handles.
pub const WORLD_CONNECTOR: &str = "portcullis:connector/connector@0.1.0";
/// The world of a connector that owns its provider's flow.
pub const WORLD_AUTHORIZING_CONNECTOR: &str = "portcullis:connector/authorizing-connector@0.1.0";

/// The name of an implementation kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImplementationKind {
    /// A WebAssembly component that this host runs.
    WasmComponent,
    /// An MCP server elsewhere, over streamable HTTP.
    RemoteStreamableHttp,
}

impl ImplementationKind {
    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WasmComponent => "wasm_component",
            Self::RemoteStreamableHttp => "remote_streamable_http",
        }
    }
}

/// How a connector runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Implementation {
    /// A WebAssembly component that this host runs.
    WasmComponent(WasmComponent),
    /// An MCP server elsewhere, over streamable HTTP.
    RemoteStreamableHttp(RemoteStreamableHttp),
}

impl Implementation {
    /// Which kind it is.
    #[must_use]
    pub fn kind(&self) -> ImplementationKind {
        match self {
            Self::WasmComponent(_) => ImplementationKind::WasmComponent,
            Self::RemoteStreamableHttp(_) => ImplementationKind::RemoteStreamableHttp,
        }
    }

    /// Whether it runs elsewhere.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::RemoteStreamableHttp(_))
    }

    /// The hosts it may talk to.
    #[must_use]
    pub fn allowed_hosts(&self) -> &[HostName] {
        match self {
            Self::WasmComponent(component) => &component.allowed_hosts,
            Self::RemoteStreamableHttp(remote) => &remote.allowed_hosts,
        }
    }
}

/// An exact DNS name in lower case: no port, path, address or wildcard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct HostName(String);

impl HostName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`super::super::error::ErrorCode::InvalidManifest`] when it is no exact DNS name.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let lower = text.to_ascii_lowercase();
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        let numeric_tail =
            lower.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if lower.len() > 253 || numeric_tail || !lower.split('.').all(label) {
            return Err(Error::invalid_manifest(format!(
                "host {text:?} must be an exact DNS name: no port, path, address or wildcard"
            )));
        }
        Ok(Self(lower))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for HostName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A WebAssembly component that this host runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WasmComponent {
    /// Where the component lies in the bundle.
    #[serde(default = "default_component_path")]
    pub component: String,
    /// The world it targets, [`WORLD_CONNECTOR`] or [`WORLD_AUTHORIZING_CONNECTOR`].
    pub world: String,
    /// What it asks for; the operator's ceilings hold all the same.
    #[serde(default)]
    pub limits: ComponentLimits,
    /// The hosts it may send requests to.
    #[serde(default)]
    pub allowed_hosts: Vec<HostName>,
    /// Where the host puts the connection's credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialInjection>,
}

fn default_component_path() -> String {
    "component.wasm".to_owned()
}

/// Where the host puts the connection's credential. The guest never sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CredentialInjection {
    /// For which of the allowed hosts.
    pub hosts: Vec<HostName>,
    /// In which place.
    pub placement: CredentialPlacement,
}

/// The place of a credential in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "in", rename_all = "snake_case", deny_unknown_fields)]
pub enum CredentialPlacement {
    /// A request header.
    Header {
        /// Its name.
        name: String,
        /// What stands before the credential, such as `Bearer `.
        #[serde(default)]
        prefix: String,
    },
    /// A query parameter.
    Query {
        /// Its name.
        name: String,
    },
}

/// An MCP server elsewhere, over streamable HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoteStreamableHttp {
    /// An https URL on one of the allowed hosts, without userinfo or fragment.
    pub endpoint: url::Url,
    /// Whose credential the requests bear.
    pub authentication: RemoteAuthentication,
    /// The hosts it may be reached at.
    pub allowed_hosts: Vec<HostName>,
    /// What one request may take.
    #[serde(default)]
    pub limits: RemoteLimits,
}

/// Whose credential the requests to a remote server bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteAuthentication {
    /// None.
    None,
    /// The connection's.
    Connection,
}

/// What one request to a remote server may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RemoteLimits {
    /// Milliseconds for one request; 100 to 120,000.
    pub timeout_ms: u64,
    /// Bytes of one response; 1 to 10 MiB.
    pub response_bytes: u64,
}

impl Default for RemoteLimits {
    fn default() -> Self {
        Self { timeout_ms: 30_000, response_bytes: 1 << 20 }
    }
}
