//! A host that remembers what it was asked, and what else these tests share.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use portcullis::{
    domain::{
        authorization::AuthorizationState,
        capability::{CallRequest, CallResponse, PublishedCapability},
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        generation::Generation,
        id::{AccountId, ConnectionId, ConnectorKey},
        installation::{Installation, InstalledRelease},
        manifest::Manifest,
        operation::OperationScope,
        release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
        runtime::{
            ConnectorSummary, DeactivateRequest, InterfaceKind, InterfaceReadiness, REASON_RUNTIME_DISABLED,
            ReadinessState, ReconcileRequest, RuntimeReadiness, RuntimeReceipt,
        },
        timestamp::Timestamp,
    },
    ports::{Clock, ImplementationHost, RouteSummary},
};
use serde_json::{Value, json};

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub(crate) struct FakeClock(AtomicI64);

impl FakeClock {
    pub(crate) fn at(millis: i64) -> Self {
        Self(AtomicI64::new(millis))
    }

    pub(crate) fn forward(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).expect("a short time"), Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// What a host was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Enable(ConnectorKey, u64),
    Disable(ConnectorKey, u64),
    Deactivate(ConnectorKey),
    FailClosed,
    Close,
}

/// A host without connectors: it remembers, and answers as it was told to.
#[derive(Default)]
pub(crate) struct FakeHost {
    asked: Mutex<Vec<Asked>>,
    connections: Mutex<BTreeMap<ConnectorKey, ConnectionId>>,
    published: Mutex<bool>,
    failures: Mutex<HashMap<ConnectorKey, u32>>,
    hanging: Mutex<HashSet<ConnectorKey>>,
    broken_fences: Mutex<u32>,
}

impl FakeHost {
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("not poisoned").clone()
    }

    pub(crate) fn forget(&self) {
        self.asked.lock().expect("not poisoned").clear();
    }

    pub(crate) fn is_published(&self) -> bool {
        *self.published.lock().expect("not poisoned")
    }

    /// The connection that a connector was last enabled on; none once it is down.
    pub(crate) fn connection(&self, connector: &ConnectorKey) -> Option<ConnectionId> {
        self.connections.lock().expect("not poisoned").get(connector).cloned()
    }

    pub(crate) fn fail_next(&self, connector: &ConnectorKey, times: u32) {
        self.failures.lock().expect("not poisoned").insert(connector.clone(), times);
    }

    pub(crate) fn hang(&self, connector: &ConnectorKey) {
        self.hanging.lock().expect("not poisoned").insert(connector.clone());
    }

    pub(crate) fn break_fences(&self, times: u32) {
        *self.broken_fences.lock().expect("not poisoned") = times;
    }

    fn note(&self, asked: Asked) {
        self.asked.lock().expect("not poisoned").push(asked);
    }
}

#[async_trait]
impl ImplementationHost for FakeHost {
    async fn reconcile(&self, request: &ReconcileRequest) -> Result<RuntimeReceipt, Error> {
        let connector = request.release.connector_key.clone();
        let number = request.generation.number;
        self.note(match request.enabled {
            true => Asked::Enable(connector.clone(), number),
            false => Asked::Disable(connector.clone(), number),
        });
        if self.hanging.lock().expect("not poisoned").contains(&connector) {
            std::future::pending::<()>().await;
        }
        if let Some(left) = self.failures.lock().expect("not poisoned").get_mut(&connector)
            && *left > 0
        {
            *left -= 1;
            return Err(Error::new(ErrorCode::ConnectorUpstream, "the probe failed"));
        }
        let mut connections = self.connections.lock().expect("not poisoned");
        if request.enabled {
            connections.insert(connector, request.connection_id.clone());
        } else {
            connections.remove(&connector);
        }
        Ok(receipt(request))
    }

    async fn deactivate(&self, request: &DeactivateRequest, _deadline: Duration) -> Result<(), Error> {
        self.note(Asked::Deactivate(request.connector_key.clone()));
        self.connections.lock().expect("not poisoned").remove(&request.connector_key);
        Ok(())
    }

    async fn fail_closed(&self, _deadline: Duration) -> Result<(), Error> {
        self.note(Asked::FailClosed);
        self.set_publication(false);
        let mut broken = self.broken_fences.lock().expect("not poisoned");
        if *broken > 0 {
            *broken -= 1;
            return Err(Error::unavailable("an instance is still there"));
        }
        self.connections.lock().expect("not poisoned").clear();
        Ok(())
    }

    fn set_publication(&self, enabled: bool) {
        *self.published.lock().expect("not poisoned") = enabled;
    }

    fn capabilities(&self, _account: Option<&AccountId>) -> Vec<PublishedCapability> {
        Vec::new()
    }

    async fn call(&self, _request: CallRequest) -> Result<CallResponse, Error> {
        Err(Error::new(ErrorCode::CapabilityNotFound, "this host has none"))
    }

    fn routes(&self) -> Vec<RouteSummary> {
        Vec::new()
    }

    async fn close(&self, _deadline: Duration) -> Result<(), Error> {
        self.note(Asked::Close);
        self.set_publication(false);
        self.connections.lock().expect("not poisoned").clear();
        Ok(())
    }
}

fn receipt(request: &ReconcileRequest) -> RuntimeReceipt {
    let kind = InterfaceKind::Mcp;
    let (readiness, summary) = if request.enabled {
        let interfaces = vec![InterfaceReadiness { kind, state: ReadinessState::Ready }];
        let summary = ConnectorSummary {
            key: request.release.connector_key.clone(),
            version: request.release.version.clone(),
            name: "Fake".into(),
            description: "A fake".into(),
            skills: Vec::new(),
            interfaces: vec![kind],
        };
        (RuntimeReadiness { state: ReadinessState::Ready, reason_code: None, interfaces }, Some(summary))
    } else {
        (RuntimeReadiness::blocked(REASON_RUNTIME_DISABLED), None)
    };
    RuntimeReceipt {
        operation_id: request.operation_id.clone(),
        connection_id: request.connection_id.clone(),
        connector_key: request.release.connector_key.clone(),
        release_digest: request.release.release_digest,
        generation: request.generation.clone(),
        readiness,
        summary,
    }
}

/// Waits until `holds`; a test that waits for ever fails after a while.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

pub(crate) fn key(text: &str) -> ConnectorKey {
    text.parse().expect("a key")
}

pub(crate) fn account(text: &str) -> OperationScope {
    OperationScope::account(text.parse().expect("an account"))
}

pub(crate) fn release(connector: &str, version: &str) -> Release {
    let implementation = json!({
        "kind": "wasm_component",
        "world": "portcullis:connector/connector@0.1.0",
        "allowedHosts": []
    });
    release_of(connector, version, &json!([]), &implementation)
}

pub(crate) fn remote_release(connector: &str) -> Release {
    let implementation = json!({
        "kind": "remote_streamable_http",
        "endpoint": "https://mcp.example.org/mcp",
        "authentication": "none",
        "allowedHosts": ["mcp.example.org"]
    });
    release_of(connector, "1.0.0", &json!(["tools"]), &implementation)
}

fn release_of(connector: &str, version: &str, required: &Value, implementation: &Value) -> Release {
    let manifest = json!({
        "schemaVersion": "1",
        "displayName": "Fake",
        "iconUrl": "https://example.org/fake.svg",
        "permissions": ["fake:read"],
        "authorizationKind": "none",
        "requiredCapabilities": required,
        "implementation": implementation
    });
    let artifact = Artifact {
        key: format!("artifacts/{connector}/{version}.tar.gz"),
        sha256: Sha256Digest::of(format!("{connector}@{version}").as_bytes()),
        size_bytes: 10,
        media_type: MEDIA_TYPE_BUNDLE.into(),
        object_version: None,
    };
    let manifest = Manifest::parse(manifest.to_string().as_bytes()).expect("a manifest");
    Release::assemble(key(connector), version.parse().expect("a version"), manifest, artifact, Timestamp(1))
        .expect("a release")
}

/// A request to bring `connector` up or down at generation `number`.
pub(crate) fn reconcile(
    scope: &OperationScope,
    connector: &str,
    enabled: bool,
    number: u64,
) -> ReconcileRequest {
    let release = release(connector, "1.0.0");
    let installed = InstalledRelease { identity: (&release).into(), installed_at: Timestamp(1) };
    ReconcileRequest {
        operation_id: format!("runtime/{connector}/{number}").parse().expect("an operation id"),
        scope: scope.clone(),
        connection_id: ConnectionId::device(&release.connector_key),
        installation: Installation::Installed { installed, failure_code: None },
        release,
        authorization: AuthorizationState::NotRequired,
        connection_version: 0,
        server_revision: 0,
        enabled,
        generation: Generation { boot_epoch: "boot".parse().expect("an epoch"), number },
    }
}

pub(crate) fn deactivate(scope: &OperationScope, connector: &str, number: u64) -> DeactivateRequest {
    DeactivateRequest {
        scope: scope.clone(),
        connection_id: None,
        connector_key: key(connector),
        release_digest: None,
        generation: Generation { boot_epoch: "boot".parse().expect("an epoch"), number },
    }
}
