//! A fence against a hundred calls in endless loops: from the request until the
//! last instance is gone.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use portcullis::{
    domain::{
        authorization::AuthorizationState,
        capability::CallRequest,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        generation::Generation,
        id::ConnectionId,
        installation::{Installation, InstalledRelease},
        manifest::Manifest,
        operation::OperationScope,
        release::{Artifact, MEDIA_TYPE_COMPONENT, Release},
        runtime::{DeactivateRequest, ReconcileRequest, ReleaseReceipt},
        timestamp::Timestamp,
    },
    ports::{
        ImplementationHost as _, InstallRequest, PreparedRelease, ReleaseInstaller, ReleaseObservation,
        SystemClock, UninstallRequest,
    },
    sandbox::{SandboxHost, SandboxSettings},
    store::{SqlStore, StoreOptions},
};
use serde_json::json;

use super::{Bar, Row, guest, percentile};

pub(crate) const NAME: &str = "fence of 100 endless calls, p99";

const CALLS: usize = 100;
const FENCES: u64 = 100;

/// Knows one component and where it lies.
struct OneRelease(PathBuf, Sha256Digest);

#[async_trait]
impl ReleaseInstaller for OneRelease {
    async fn install(&self, _: &InstallRequest) -> Result<ReleaseReceipt, Error> {
        Err(Error::unavailable("nothing is installed here"))
    }

    async fn commit(&self, _: &InstallRequest, _: &ReleaseReceipt) -> Result<(), Error> {
        Ok(())
    }

    async fn inspect(&self, _: &Release) -> Result<ReleaseObservation, Error> {
        Err(Error::unavailable("nothing is inspected here"))
    }

    async fn open(&self, _: &Release) -> Result<PreparedRelease, Error> {
        let root = self.0.parent().expect("a folder").to_owned();
        Ok(PreparedRelease { root, component: self.0.clone(), component_digest: self.1 })
    }

    async fn uninstall(&self, _: &UninstallRequest) -> Result<(), Error> {
        Ok(())
    }
}

pub(crate) fn measure() -> Row {
    let folder = tempfile::tempdir().expect("a folder");
    let component = guest::misbehave();
    let digest = Sha256Digest::of(&std::fs::read(&component).expect("the component"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let mut samples = runtime.block_on(async {
        let clock = Arc::new(SystemClock);
        let store = SqlStore::open(StoreOptions {
            url: "sqlite::memory:".into(),
            node_id: "bench".parse().expect("a node id"),
            lease_clock: None,
        });
        let installer = Arc::new(OneRelease(component, digest));
        let ledger = Arc::new(store.await.expect("a store"));
        let settings = SandboxSettings::new(folder.path().join("compiled"));
        let host = SandboxHost::new(settings, installer, ledger, clock).expect("a host");
        host.set_publication(true);
        let release = release(digest);
        let mut samples = Vec::new();
        for round in 1..=FENCES {
            samples.push(fence(&host, &release, round * 2).await);
        }
        samples
    });
    Row {
        name: NAME,
        measured: percentile(&mut samples, 99),
        reference: None,
        bar: Bar::Time(Duration::from_millis(20)),
        condition: Ok(()),
    }
}

async fn fence(host: &Arc<SandboxHost>, release: &Release, number: u64) -> Duration {
    let generation = Generation { boot_epoch: "bench".parse().expect("an epoch"), number };
    let installed = InstalledRelease { identity: release.into(), installed_at: Timestamp(1) };
    let request = ReconcileRequest {
        operation_id: format!("bench-{number}").parse().expect("an operation id"),
        scope: OperationScope::default(),
        connection_id: ConnectionId::device(&release.connector_key),
        release: release.clone(),
        installation: Installation::Installed { installed, failure_code: None },
        authorization: AuthorizationState::NotRequired,
        connection_version: 0,
        server_revision: 0,
        enabled: true,
        generation: generation.clone(),
    };
    host.reconcile(&request).await.expect("the route starts");
    let calls: Vec<_> = (0..CALLS)
        .map(|call| {
            let host = Arc::clone(host);
            let request = CallRequest {
                request_id: format!("call-{call}").parse().expect("a request id"),
                account: None,
                capability: "misbehave.loop".parse().expect("a capability"),
                input: json!({}),
                deadline: None,
                progress: None,
            };
            tokio::spawn(async move { host.call(request).await })
        })
        .collect();
    while host.routes().iter().map(|route| route.calls_in_flight).sum::<usize>() < CALLS {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let request = DeactivateRequest {
        scope: OperationScope::default(),
        connection_id: None,
        connector_key: release.connector_key.clone(),
        release_digest: None,
        generation,
    };
    let start = Instant::now();
    host.deactivate(&request, Duration::from_secs(5)).await.expect("all instances go");
    let elapsed = start.elapsed();
    for call in calls {
        let ended = call.await.expect("the call ends").expect_err("a loop has no answer");
        assert_eq!(ended.code, ErrorCode::CapabilityFenced);
    }
    elapsed
}

fn release(digest: Sha256Digest) -> Release {
    let manifest = json!({
        "schemaVersion": "1",
        "displayName": "Misbehave",
        "iconUrl": "https://example.org/icon.svg",
        "authorizationKind": "none",
        "implementation": {
            "kind": "wasm_component",
            "world": "portcullis:connector/connector@0.1.0",
            "limits": { "concurrentCalls": 200, "cpuMs": 60_000, "wallMs": 120_000 }
        }
    });
    let artifact = Artifact {
        key: "misbehave.wasm".into(),
        sha256: digest,
        size_bytes: 1,
        media_type: MEDIA_TYPE_COMPONENT.into(),
        object_version: None,
    };
    let manifest = Manifest::parse(manifest.to_string().as_bytes()).expect("a manifest");
    let key = "misbehave".parse().expect("a key");
    Release::assemble(key, "1.0.0".parse().expect("a version"), manifest, artifact, Timestamp(1))
        .expect("a release")
}
