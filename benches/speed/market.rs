//! A market over a real database, with everything around it answering at once: what
//! the rows about the market are measured on.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use portcullis::{
    daemon::NoAuthorization,
    domain::{
        capability::{CallRequest, CallResponse, PublishedCapability},
        catalog::{CatalogCategory, CatalogContents, SourcePage, SourcePageQuery},
        digest::Sha256Digest,
        error::Error,
        id::{AccountId, ConnectorKey, OperationId},
        manifest::Manifest,
        operation::OperationScope,
        release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
        revision::Revision,
        runtime::{
            ConnectorSummary, DeactivateRequest, InterfaceKind, InterfaceReadiness, REASON_RUNTIME_DISABLED,
            ReadinessState, ReconcileRequest, ReleaseReceipt, RuntimeReadiness, RuntimeReceipt,
        },
        timestamp::Timestamp,
    },
    market::{
        Accepted, Application, ApplicationConfig, ConnectorMutation, HostIdentity, ImplementationRegistry,
        Mutation,
    },
    ports::{
        CatalogSource, IdSource as _, ImplementationHost, InstallRequest, OperationScheduler, PhysicalState,
        PreparedRelease, RandomIds, ReleaseInstaller, ReleaseObservation, RouteSummary, Store, SystemClock,
        UninstallRequest,
    },
    store::{SqlStore, StoreOptions},
};

/// A market on one database.
pub(crate) struct Market {
    pub(crate) application: Arc<Application>,
    pub(crate) store: Arc<dyn Store>,
    catalog: Arc<Catalog>,
    requests: AtomicU64,
}

impl Market {
    pub(crate) async fn open(url: &str) -> Self {
        let options = StoreOptions {
            url: url.to_owned(),
            node_id: "bench".parse().expect("a node id"),
            lease_clock: None,
        };
        let store: Arc<dyn Store> = Arc::new(SqlStore::open(options).await.expect("a database"));
        let catalog = Arc::new(Catalog::default());
        let application = Application::new(ApplicationConfig {
            store: Arc::clone(&store),
            catalog: Arc::clone(&catalog) as _,
            installer: Arc::new(Installer),
            host: Arc::new(Host),
            authorization: Arc::new(NoAuthorization),
            authorization_source: None,
            scheduler: Arc::new(Scheduler),
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            registry: ImplementationRegistry::default(),
            identity: HostIdentity {
                product: "portcullis".into(),
                platform: "linux-amd64".into(),
                version: semver::Version::new(1, 0, 0),
            },
            worker_id: "bench".parse().expect("a worker id"),
            boot_epoch: RandomIds.fresh().expect("randomness").parse().expect("an epoch"),
            lease_duration: Duration::ZERO,
        })
        .expect("an application");
        Self { application, store, catalog, requests: AtomicU64::new(0) }
    }

    /// What the catalog offers from now on.
    pub(crate) fn offer(&self, releases: Vec<Release>) {
        *self.catalog.0.lock().unwrap_or_else(PoisonError::into_inner) = releases;
    }

    pub(crate) async fn accept_refresh(&self) -> Accepted {
        let mutation = self.mutation().await;
        self.application.refresh_catalog(mutation).await.expect("accepted")
    }

    pub(crate) async fn run(&self, accepted: &Accepted) {
        self.application.execute(&accepted.operation.operation_id).await.expect("executed");
    }

    pub(crate) async fn refresh(&self) {
        let accepted = self.accept_refresh().await;
        self.run(&accepted).await;
    }

    /// From the command to the completed operation. `revision` is the connector's, as
    /// the caller has read it.
    pub(crate) async fn install(&self, key: &ConnectorKey, revision: Revision) {
        let command = ConnectorMutation {
            mutation: Mutation {
                client_request_id: self.request_id(),
                expected_revision: revision,
                scope: account(),
            },
            connector_key: key.clone(),
            expected_connector_revision: Some(revision),
        };
        let accepted = self.application.install(command).await.expect("accepted");
        self.run(&accepted).await;
    }

    async fn mutation(&self) -> Mutation {
        let expected_revision = self.store.snapshot().await.expect("a snapshot").revision;
        Mutation { client_request_id: self.request_id(), expected_revision, scope: account() }
    }

    fn request_id(&self) -> portcullis::domain::id::ClientRequestId {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        format!("request-{number}").parse().expect("a request id")
    }
}

pub(crate) fn account() -> OperationScope {
    OperationScope::account(AccountId::parse("ada").expect("an account"))
}

pub(crate) fn key(number: usize) -> ConnectorKey {
    format!("connector-{number:05}").parse().expect("a key")
}

/// A release as catalogs have them.
pub(crate) fn release(number: usize, version: &str) -> Release {
    let manifest = format!(
        r#"{{
            "schemaVersion": "1",
            "displayName": "Connector {number}",
            "iconUrl": "https://example.com/icons/{number}.png",
            "description": "Reads what connector {number} offers and answers questions about it.",
            "permissions": ["items.read", "items.write:own"],
            "agentRouting": {{"aliases": ["connector {number}", "the {number}th"]}},
            "authorizationKind": "none",
            "implementation": {{
                "kind": "wasm_component",
                "world": "portcullis:connector/connector@0.1.0",
                "allowedHosts": ["api-{number}.example.com", "files-{number}.example.com"]
            }}
        }}"#
    );
    let key = key(number);
    let artifact = Artifact {
        key: format!("{key}/{version}.tar.gz"),
        sha256: Sha256Digest::of(format!("{key} {version}").as_bytes()),
        size_bytes: 100_000,
        media_type: MEDIA_TYPE_BUNDLE.to_owned(),
        object_version: None,
    };
    let manifest = Manifest::parse(manifest.as_bytes()).expect("a manifest");
    Release::assemble(key, version.parse().expect("a version"), manifest, artifact, Timestamp(1))
        .expect("a release")
}

#[derive(Default)]
struct Catalog(Mutex<Vec<Release>>);

#[async_trait]
impl CatalogSource for Catalog {
    async fn categories(&self) -> Result<Vec<CatalogCategory>, Error> {
        Ok(Vec::new())
    }

    async fn page(&self, _: &SourcePageQuery) -> Result<SourcePage, Error> {
        Err(Error::invalid_request("nothing is browsed here"))
    }

    async fn contents(&self) -> Result<CatalogContents, Error> {
        let releases = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(CatalogContents { source_revision: releases.len().to_string(), releases })
    }
}

struct Installer;

#[async_trait]
impl ReleaseInstaller for Installer {
    async fn install(&self, request: &InstallRequest) -> Result<ReleaseReceipt, Error> {
        let release = &request.release;
        Ok(ReleaseReceipt {
            operation_id: request.operation_id.clone(),
            connector_key: release.connector_key.clone(),
            version: release.version.clone(),
            release_digest: release.release_digest,
            artifact_sha256: release.artifact.sha256,
            inventory_digest: release.artifact.sha256,
        })
    }

    async fn commit(&self, _: &InstallRequest, _: &ReleaseReceipt) -> Result<(), Error> {
        Ok(())
    }

    async fn inspect(&self, release: &Release) -> Result<ReleaseObservation, Error> {
        Ok(ReleaseObservation {
            connector_key: release.connector_key.clone(),
            release_digest: release.release_digest,
            state: PhysicalState::Present,
            reason: None,
        })
    }

    async fn open(&self, _: &Release) -> Result<PreparedRelease, Error> {
        Err(Error::unavailable("nothing is opened here"))
    }

    async fn uninstall(&self, _: &UninstallRequest) -> Result<(), Error> {
        Ok(())
    }
}

struct Host;

#[async_trait]
impl ImplementationHost for Host {
    async fn reconcile(&self, request: &ReconcileRequest) -> Result<RuntimeReceipt, Error> {
        let release = &request.release;
        let interface = InterfaceReadiness { kind: InterfaceKind::Mcp, state: ReadinessState::Ready };
        let ready =
            RuntimeReadiness { state: ReadinessState::Ready, reason_code: None, interfaces: vec![interface] };
        Ok(RuntimeReceipt {
            operation_id: request.operation_id.clone(),
            connection_id: request.connection_id.clone(),
            connector_key: release.connector_key.clone(),
            release_digest: release.release_digest,
            generation: request.generation.clone(),
            readiness: if request.enabled {
                ready
            } else {
                RuntimeReadiness::blocked(REASON_RUNTIME_DISABLED)
            },
            summary: request.enabled.then(|| ConnectorSummary {
                key: release.connector_key.clone(),
                version: release.version.clone(),
                name: release.manifest.display_name.clone(),
                description: String::new(),
                skills: Vec::new(),
                interfaces: vec![InterfaceKind::Mcp],
            }),
        })
    }

    async fn deactivate(&self, _: &DeactivateRequest, _: Duration) -> Result<(), Error> {
        Ok(())
    }

    async fn fail_closed(&self, _: Duration) -> Result<(), Error> {
        Ok(())
    }

    fn set_publication(&self, _: bool) {}

    fn capabilities(&self, _: Option<&AccountId>) -> Vec<PublishedCapability> {
        Vec::new()
    }

    async fn call(&self, _: CallRequest) -> Result<CallResponse, Error> {
        Err(Error::unavailable("nothing is called here"))
    }

    fn routes(&self) -> Vec<RouteSummary> {
        Vec::new()
    }

    async fn close(&self, _: Duration) -> Result<(), Error> {
        Ok(())
    }
}

/// The rows execute by themselves what they accept.
struct Scheduler;

impl OperationScheduler for Scheduler {
    fn schedule(&self, _: &OperationId) -> Result<(), Error> {
        Ok(())
    }
}
