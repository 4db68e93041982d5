//! A market host over a database in memory, with everything around it faked.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use portcullis::{
    daemon::{Events, MarketHost, MarketHostConfig, NoAuthorization, tasks::CleanupPolicy, worker_id},
    domain::{
        catalog::{CatalogCategory, CatalogContents, SourcePage, SourcePageQuery},
        compatibility::Compatibility,
        connector::Connector,
        error::{Error, ErrorCode},
        id::{ConnectorKey, NodeId},
        installation::{Installation, InstalledRelease},
        manifest::ImplementationKind,
        operation::{
            Execution, Operation, OperationKind, OperationState, OperationTarget, Stage, Visibility,
        },
        release::Release,
        revision::Revision,
        runtime::ReleaseReceipt,
        timestamp::Timestamp,
    },
    market::{HostIdentity, ImplementationRegistry},
    ports::{
        CatalogSource, Clock, InstallRequest, PhysicalState, PreparedRelease, RandomIds, ReleaseInstaller,
        ReleaseObservation, Store, UninstallRequest,
    },
    store::{SqlStore, StoreOptions},
};
use tokio::runtime::Handle;

use super::fakes::{FakeClock, FakeHost, account, eventually, key};

/// An installer whose files are all there, unless told otherwise.
#[derive(Default)]
pub(crate) struct FakeInstaller {
    absent: Mutex<HashSet<ConnectorKey>>,
    hanging: Mutex<HashSet<ConnectorKey>>,
}

impl FakeInstaller {
    pub(crate) fn lose(&self, connector: &str) {
        self.absent.lock().expect("not poisoned").insert(key(connector));
    }

    pub(crate) fn hang(&self, connector: &str) {
        self.hanging.lock().expect("not poisoned").insert(key(connector));
    }
}

#[async_trait]
impl ReleaseInstaller for FakeInstaller {
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

    async fn commit(&self, _request: &InstallRequest, _receipt: &ReleaseReceipt) -> Result<(), Error> {
        Ok(())
    }

    async fn inspect(&self, release: &Release) -> Result<ReleaseObservation, Error> {
        let connector_key = release.connector_key.clone();
        if self.hanging.lock().expect("not poisoned").contains(&connector_key) {
            std::future::pending::<()>().await;
        }
        let absent = self.absent.lock().expect("not poisoned").contains(&connector_key);
        let state = if absent { PhysicalState::Absent } else { PhysicalState::Present };
        Ok(ReleaseObservation { connector_key, release_digest: release.release_digest, state, reason: None })
    }

    async fn open(&self, release: &Release) -> Result<PreparedRelease, Error> {
        let component_digest = release.artifact.sha256;
        Ok(PreparedRelease { root: PathBuf::new(), component: PathBuf::new(), component_digest })
    }

    async fn uninstall(&self, request: &UninstallRequest) -> Result<(), Error> {
        if self.hanging.lock().expect("not poisoned").contains(&request.connector_key) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// A catalog that lists nothing, or cannot be reached.
#[derive(Default)]
pub(crate) struct FakeCatalog {
    pub(crate) reads: AtomicU32,
    pub(crate) unreachable: Mutex<bool>,
}

#[async_trait]
impl CatalogSource for FakeCatalog {
    async fn categories(&self) -> Result<Vec<CatalogCategory>, Error> {
        Ok(Vec::new())
    }

    async fn page(&self, query: &SourcePageQuery) -> Result<SourcePage, Error> {
        let section_id = query.section_id.clone();
        Ok(SourcePage { section_id, entries: Vec::new(), next_page_token: String::new() })
    }

    async fn contents(&self) -> Result<CatalogContents, Error> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if *self.unreachable.lock().expect("not poisoned") {
            return Err(Error::new(ErrorCode::UpstreamUnavailable, "the catalog cannot be reached"));
        }
        Ok(CatalogContents { source_revision: "1".into(), releases: Vec::new() })
    }
}

/// What outlives a restart, and what stands around it.
pub(crate) struct World {
    pub(crate) store: SqlStore,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) host: Arc<FakeHost>,
    pub(crate) installer: Arc<FakeInstaller>,
    pub(crate) catalog: Arc<FakeCatalog>,
    pub(crate) node: NodeId,
    boots: AtomicU32,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on("sqlite::memory:").await
    }

    /// On the database that `url` names.
    pub(crate) async fn on(url: &str) -> Self {
        let clock = Arc::new(FakeClock::at(1_000_000_000));
        let node: NodeId = "node".parse().expect("a node id");
        let store = SqlStore::open(StoreOptions {
            url: url.to_owned(),
            node_id: node.clone(),
            lease_clock: Some(Arc::clone(&clock) as _),
        })
        .await
        .expect("a database");
        Self {
            store,
            clock,
            host: Arc::default(),
            installer: Arc::default(),
            catalog: Arc::default(),
            node,
            boots: AtomicU32::new(0),
        }
    }

    pub(crate) fn port(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    /// Starts a daemon on what there is; each start is a boot of its own.
    pub(crate) fn boot(&self) -> MarketHost {
        self.boot_with_refreshes(None)
    }

    pub(crate) fn boot_with_refreshes(&self, catalog_refresh_interval: Option<Duration>) -> MarketHost {
        let number = self.boots.fetch_add(1, Ordering::SeqCst) + 1;
        let boot_epoch = format!("boot-{number}").parse().expect("an epoch");
        let config = MarketHostConfig {
            store: self.port(),
            catalog: Arc::clone(&self.catalog) as _,
            installer: Arc::clone(&self.installer) as _,
            host: Arc::clone(&self.host) as _,
            authorization: Arc::new(NoAuthorization),
            authorization_source: None,
            events: Arc::new(Events::new(16)),
            clock: Arc::clone(&self.clock) as _,
            ids: Arc::new(RandomIds),
            registry: ImplementationRegistry::of([
                ImplementationKind::WasmComponent,
                ImplementationKind::RemoteStreamableHttp,
            ]),
            identity: HostIdentity {
                product: "portcullis".into(),
                platform: "test".into(),
                version: semver::Version::new(1, 0, 0),
            },
            worker_id: worker_id(&self.node, &boot_epoch).expect("a worker id"),
            boot_epoch,
            lease_duration: Duration::from_secs(30),
            scope: account("alice"),
            catalog_refresh_interval,
            cleanup: CleanupPolicy::default(),
        };
        MarketHost::start(config, Handle::current()).expect("a host")
    }

    /// Starts a daemon and bootstraps it for alice.
    pub(crate) async fn up(&self) -> MarketHost {
        let market = self.boot();
        market.bootstrap().bootstrap(&account("alice")).await.expect("bootstrapped");
        market
    }

    /// Puts an installed connector into the database.
    pub(crate) async fn installed(&self, release: &Release) {
        let mut tx = self.store.begin().await.expect("a transaction");
        let revision = tx.advance_revision();
        let mut connector = Connector::listed(release.clone(), Compatibility::supported(), revision);
        let installed = InstalledRelease { identity: release.into(), installed_at: Timestamp(1) };
        connector.installation = Installation::Installed { installed, failure_code: None };
        tx.save_connector(&connector).await.expect("saved");
        tx.commit().await.expect("committed");
    }

    pub(crate) async fn save_operation(&self, operation: &Operation) {
        let mut tx = self.store.begin().await.expect("a transaction");
        tx.save_operation(operation).await.expect("saved");
        tx.commit().await.expect("committed");
    }

    pub(crate) async fn operation(&self, id: &str) -> Operation {
        let id = id.parse().expect("an operation id");
        self.store.operation(&id).await.expect("readable").expect("it is there")
    }

    pub(crate) async fn connector(&self, connector: &str) -> Connector {
        self.store.connector(&key(connector)).await.expect("readable").expect("it is there")
    }

    pub(crate) async fn revision(&self) -> Revision {
        self.store.snapshot().await.expect("readable").revision
    }

    pub(crate) async fn runs(&self, connector: &str) {
        let connector = key(connector);
        eventually("the connector runs", || self.host.connection(&connector).is_some()).await;
    }

    /// An operation of alice's that nobody has begun.
    pub(crate) fn accepted(&self, id: &str, kind: OperationKind, connector: Option<&Connector>) -> Operation {
        let now = self.clock.now();
        let scope = account("alice");
        Operation {
            operation_id: id.parse().expect("an operation id"),
            client_request_id: format!("request-{id}").parse().expect("a request id"),
            owner_account_id: scope.account_id.clone(),
            visibility: Visibility::Account,
            connector_key: connector.map(|connector| connector.key.clone()),
            kind,
            scope,
            state: OperationState::Accepted,
            stage: Stage::Accepted,
            target: connector.and_then(|connector| OperationTarget::freeze(kind, connector)),
            generation: None,
            execution: Execution::default(),
            attempt: 0,
            interrupted: 0,
            lease: None,
            lease_token: Default::default(),
            created_at: now,
            updated_at: now,
        }
    }
}

/// The installation failure codes by connector.
pub(crate) async fn failures(world: &World) -> HashMap<String, String> {
    let connectors = world.store.snapshot().await.expect("readable").connectors;
    let failed = connectors.into_iter().filter_map(|connector| match connector.installation {
        Installation::Failed { failure_code, .. } => Some((connector.key.to_string(), failure_code.0)),
        _ => None,
    });
    failed.collect()
}
