//! One device under test: the market over a real database and a scripted
//! world, and what a test says about it.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use portcullis::{
    domain::{
        authorization::AuthorizationProjection,
        catalog::{CatalogEntry, CatalogState, SourcePage},
        connector::Connector,
        convergence::Convergence,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        event::OutboxEvent,
        id::{AccountId, ClientRequestId, ConnectorKey},
        installation::Installation,
        manifest::{ImplementationKind, Manifest},
        operation::{Operation, OperationScope},
        release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
        revision::Revision,
        timestamp::Timestamp,
    },
    market::{
        Accepted, Application, ApplicationConfig, ConnectorMutation, HostIdentity, ImplementationRegistry,
        Mutation,
    },
    ports::{SandboxLedger, Store, Tx},
    store::{SqlStore, StoreOptions},
};
use serde_json::{Value, json};

use super::fakes::Fakes;
use crate::store::postgres::Schema;

tokio::task_local! {
    static DATABASE: Database;
}

/// The databases that every scenario runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

impl Database {
    /// Runs a scenario whose world has this database.
    pub(crate) async fn during(self, scenario: impl Future<Output = ()>) {
        DATABASE.scope(self, scenario).await;
    }

    /// The one that the running scenario is for.
    fn chosen() -> Self {
        DATABASE.try_with(|chosen| *chosen).expect("the scenario is listed in its module's on_every_store!")
    }
}

pub(crate) struct World {
    pub(crate) app: Arc<Application>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Arc<dyn SandboxLedger>,
    pub(crate) fakes: Fakes,
    boots: u32,
    /// Where the store is, on PostgreSQL; dropped with the world.
    _schema: Option<Schema>,
}

impl std::ops::Deref for World {
    type Target = Fakes;

    fn deref(&self) -> &Fakes {
        &self.fakes
    }
}

/// Everything that a refusal must leave as it was.
#[derive(Debug, PartialEq)]
pub(crate) struct State {
    revision: Revision,
    catalog_state: CatalogState,
    source_revision: String,
    connectors: Vec<Connector>,
    operations: Vec<Operation>,
    convergences: Vec<Convergence>,
    projections: Vec<AuthorizationProjection>,
    events: Vec<OutboxEvent>,
    hints: usize,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_lease(Duration::ZERO).await
    }

    pub(crate) async fn with_lease(lease: Duration) -> Self {
        let schema = match Database::chosen() {
            Database::Sqlite => None,
            Database::Postgres => Some(Schema::new().await),
        };
        let url = schema.as_ref().map_or_else(|| "sqlite::memory:".into(), Schema::url);
        Self::opened(url, schema, lease).await
    }

    /// A device on the database at `url`, in place of the scenario's own.
    pub(crate) async fn at(url: String) -> Self {
        Self::opened(url, None, Duration::ZERO).await
    }

    async fn opened(url: String, schema: Option<Schema>, lease: Duration) -> Self {
        let fakes = Fakes::default();
        let options = StoreOptions {
            url,
            node_id: "node".parse().expect("a node id"),
            lease_clock: Some(fakes.clock.clone()),
        };
        let database = Arc::new(SqlStore::open(options).await.expect("a database"));
        let store: Arc<dyn Store> = database.clone();
        let app = boot(1, &store, &fakes, lease);
        Self { app, store, ledger: database, fakes, boots: 1, _schema: schema }
    }

    /// The same device after a restart: another epoch, another worker.
    pub(crate) fn reboot(&mut self) {
        self.boots += 1;
        self.app = boot(self.boots, &self.store, &self.fakes, Duration::ZERO);
    }

    /// A device that runs remote connectors too.
    pub(crate) async fn with_remote() -> Self {
        let mut world = Self::new().await;
        world.runs_remote.store(true, Ordering::SeqCst);
        world.reboot();
        world
    }

    /// Another daemon on the same database.
    pub(crate) fn beside(&self) -> Arc<Application> {
        boot(self.boots + 100, &self.store, &self.fakes, Duration::ZERO)
    }

    /// What the device is made of.
    pub(crate) fn config(&self) -> ApplicationConfig {
        config(self.boots, &self.store, &self.fakes, Duration::ZERO)
    }

    /// The same device with something between the market and its database.
    pub(crate) fn through(&self, store: Arc<dyn Store>) -> Arc<Application> {
        boot(self.boots, &store, &self.fakes, Duration::ZERO)
    }

    pub(crate) async fn state(&self) -> State {
        let snapshot = self.store.snapshot().await.expect("a snapshot");
        let hers = self.store.scoped_snapshot(&ada()).await.expect("a snapshot");
        State {
            revision: snapshot.revision,
            catalog_state: snapshot.catalog_state,
            source_revision: snapshot.source_revision,
            connectors: snapshot.connectors,
            operations: snapshot.operations,
            convergences: hers.convergences,
            projections: hers.projections,
            events: self.events().await,
            hints: self.scheduler.count(),
        }
    }

    /// Expects a refusal that changes nothing at all.
    pub(crate) async fn refused<T: std::fmt::Debug>(
        &self,
        attempt: impl Future<Output = Result<T, Error>>,
        code: ErrorCode,
        retryable: bool,
    ) -> Error {
        let before = self.state().await;
        let error = attempt.await.expect_err("a refusal");
        assert_eq!((error.code, error.retryable), (code, retryable), "{error}");
        assert_eq!(self.state().await, before, "the refusal {error} changed something");
        error
    }

    pub(crate) async fn events(&self) -> Vec<OutboxEvent> {
        self.store.pending_events(500).await.expect("events")
    }

    pub(crate) async fn revision(&self) -> Revision {
        self.store.snapshot().await.expect("a snapshot").revision
    }

    pub(crate) async fn stored(&self, key: &str) -> Connector {
        self.store.connector(&self::key(key)).await.expect("a reading").expect("a connector")
    }

    pub(crate) async fn operation(&self, accepted: &Accepted) -> Operation {
        let id = &accepted.operation.operation_id;
        self.store.operation(id).await.expect("a reading").expect("an operation")
    }

    pub(crate) async fn row(&self, key: &str) -> Convergence {
        self.store.convergence(&ada(), &self::key(key)).await.expect("a reading").expect("a convergence")
    }

    /// Writes what no command would, in one transaction.
    pub(crate) async fn write(&self, write: impl AsyncFnOnce(&mut dyn Tx) -> Result<(), Error>) {
        let mut tx = self.store.begin().await.expect("a transaction");
        tx.advance_revision();
        write(&mut *tx).await.expect("a write");
        tx.commit().await.expect("a commit");
    }

    /// What an account holds from now on, whoever said so.
    pub(crate) async fn hold(&self, projection: AuthorizationProjection) {
        self.write(async |tx| tx.save_authorization_projection(&projection).await).await;
    }

    pub(crate) async fn save(&self, connector: Connector) {
        self.write(async |tx| {
            let revision = tx.revision();
            tx.save_connector(&Connector { revision, ..connector }).await
        })
        .await;
    }

    /// The command of ada's at the current revision.
    pub(crate) async fn command(&self, request: &str, key: &str) -> ConnectorMutation {
        ConnectorMutation {
            mutation: self.mutation(request).await,
            connector_key: self::key(key),
            expected_connector_revision: None,
        }
    }

    pub(crate) async fn mutation(&self, request: &str) -> Mutation {
        Mutation {
            client_request_id: request_id(request),
            expected_revision: self.revision().await,
            scope: ada(),
        }
    }

    /// Makes the catalog offer exactly these, by a refresh that is executed.
    pub(crate) async fn offer(&self, releases: &[Release]) -> Accepted {
        *self.catalog.contents.lock() = releases.to_vec();
        let request = format!("refresh-{}", self.revision().await);
        let accepted = self.app.refresh_catalog(self.mutation(&request).await).await.expect("accepted");
        self.app.execute(&accepted.operation.operation_id).await.expect("refreshed");
        accepted
    }

    pub(crate) async fn accept_install(&self, key: &str) -> Accepted {
        let request = format!("install-{}", self.revision().await);
        self.app.install(self.command(&request, key).await).await.expect("accepted")
    }

    pub(crate) async fn accept_uninstall(&self, key: &str) -> Accepted {
        let request = format!("uninstall-{}", self.revision().await);
        self.app.uninstall(self.command(&request, key).await).await.expect("accepted")
    }

    pub(crate) async fn run(&self, accepted: &Accepted) -> Result<(), Error> {
        self.app.execute(&accepted.operation.operation_id).await
    }

    /// A world in which echo 1.0.0 is installed and runs.
    pub(crate) async fn with_echo() -> Self {
        let world = Self::new().await;
        world.offer(&[release("echo", "1.0.0")]).await;
        world.install("echo").await;
        world
    }

    pub(crate) async fn install(&self, key: &str) {
        let accepted = self.accept_install(key).await;
        self.run(&accepted).await.expect("installed");
    }

    pub(crate) fn page(&self, token: &str, next: &str, releases: &[Release]) {
        let page = page(next, releases);
        self.catalog.pages.lock().insert(token.into(), page);
    }
}

fn boot(number: u32, store: &Arc<dyn Store>, fakes: &Fakes, lease_duration: Duration) -> Arc<Application> {
    Application::new(config(number, store, fakes, lease_duration)).expect("an application")
}

fn config(number: u32, store: &Arc<dyn Store>, fakes: &Fakes, lease_duration: Duration) -> ApplicationConfig {
    ApplicationConfig {
        store: Arc::clone(store),
        catalog: fakes.catalog.clone(),
        installer: fakes.installer.clone(),
        host: fakes.host.clone(),
        authorization: fakes.authorization.clone(),
        authorization_source: Some(fakes.accounts.clone()),
        scheduler: fakes.scheduler.clone(),
        clock: fakes.clock.clone(),
        ids: fakes.ids.clone(),
        registry: if fakes.runs_remote.load(Ordering::SeqCst) {
            ImplementationRegistry::of([
                ImplementationKind::WasmComponent,
                ImplementationKind::RemoteStreamableHttp,
            ])
        } else {
            ImplementationRegistry::default()
        },
        identity: HostIdentity {
            product: "portcullis".into(),
            platform: "linux-amd64".into(),
            version: "1.2.0".parse().expect("a version"),
        },
        worker_id: format!("worker-{number}").parse().expect("a worker id"),
        boot_epoch: format!("boot-{number}").parse().expect("a boot epoch"),
        lease_duration,
    }
}

pub(crate) fn page(next: &str, releases: &[Release]) -> SourcePage {
    let entry = |release: &Release| CatalogEntry {
        category_id: "tools".into(),
        featured: false,
        release: release.clone(),
    };
    SourcePage {
        section_id: "tools".into(),
        entries: releases.iter().map(entry).collect(),
        next_page_token: next.into(),
    }
}

pub(crate) fn ada() -> OperationScope {
    OperationScope::account(AccountId::parse("ada").expect("an account"))
}

pub(crate) fn bob() -> OperationScope {
    OperationScope::account(AccountId::parse("bob").expect("an account"))
}

pub(crate) fn key(text: &str) -> ConnectorKey {
    text.parse().expect("a key")
}

pub(crate) fn request_id(text: &str) -> ClientRequestId {
    text.parse().expect("a request id")
}

pub(crate) fn release(key: &str, version: &str) -> Release {
    altered(key, version, |_| {})
}

/// A release whose manifest differs in something.
pub(crate) fn altered(key: &str, version: &str, alter: impl FnOnce(&mut Value)) -> Release {
    let mut manifest = json!({
        "schemaVersion": "1",
        "displayName": key,
        "iconUrl": "https://example.org/icon.svg",
        "permissions": [],
        "authorizationKind": "none",
        "implementation": {
            "kind": "wasm_component",
            "world": "portcullis:connector/connector@0.1.0",
            "allowedHosts": [],
        }
    });
    alter(&mut manifest);
    let manifest = Manifest::parse(manifest.to_string().as_bytes()).expect("a manifest");
    let artifact = Artifact {
        key: format!("{key}/{version}.tar.gz"),
        sha256: Sha256Digest::of(format!("{key} {version}").as_bytes()),
        size_bytes: 10,
        media_type: MEDIA_TYPE_BUNDLE.into(),
        object_version: None,
    };
    let version = version.parse().expect("a version");
    Release::assemble(self::key(key), version, manifest, artifact, Timestamp(1)).expect("a release")
}

/// A release that says something that does not hold.
pub(crate) fn broken(key: &str) -> Release {
    let mut release = release(key, "1.0.0");
    release.manifest.icon_url = "ftp://example.org/icon".into();
    release
}

pub(crate) fn installed_version(connector: &Connector) -> String {
    connector.installation.installed().expect("an installed release").identity.version.to_string()
}

pub(crate) fn state_name(connector: &Connector) -> &'static str {
    Installation::name(&connector.installation)
}
