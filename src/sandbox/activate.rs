//! From the files of a release to a route that can answer.

use std::sync::{Arc, atomic::AtomicUsize};

use tokio::sync::Semaphore;
use wasmtime::component::Linker;

use super::{
    cache::Cache, call::Guests, describe::describe, egress::Gate, flight::Flight, grant::Grant, guest_text,
    inspect, instance::InstanceState, pace::Pace, program::Program, route::ConnectorRoute, routes::RouteKey,
    settings::SandboxSettings, skills, transport::Transport,
};
use crate::{
    domain::{
        error::Error,
        id::ConnectionId,
        manifest::{EffectiveLimits, WasmComponent},
        release::Release,
        runtime::{ConnectorSummary, InterfaceKind, ReconcileRequest},
    },
    ports::{PreparedRelease, ReleaseInstaller},
};

const NAME_BYTES: usize = 256;
const DESCRIPTION_BYTES: usize = 16 << 10;

/// Makes routes.
pub(crate) struct Workshop {
    settings: SandboxSettings,
    installer: Arc<dyn ReleaseInstaller>,
    cache: Cache,
    linker: Linker<InstanceState>,
    transport: Arc<Transport>,
    guests: Arc<Guests>,
}

impl Workshop {
    /// A workshop over the parts of one host.
    pub(crate) fn new(
        settings: SandboxSettings,
        installer: Arc<dyn ReleaseInstaller>,
        cache: Cache,
        linker: Linker<InstanceState>,
        guests: Arc<Guests>,
    ) -> Self {
        Self { settings, installer, cache, linker, transport: Arc::default(), guests }
    }

    /// The verified files of a release.
    pub(crate) async fn open(&self, release: &Release) -> Result<PreparedRelease, Error> {
        self.installer.open(release).await
    }

    /// Compiles, links and describes a component. The route that comes of it is not
    /// yet in any table.
    ///
    /// # Errors
    /// The `component_*` codes.
    pub(crate) async fn build(
        &self,
        request: &ReconcileRequest,
        component: &WasmComponent,
        prepared: &PreparedRelease,
    ) -> Result<(ConnectorRoute, ConnectorSummary), Error> {
        let release = &request.release;
        let loaded = self.cache.load(prepared).await?;
        inspect::check(&loaded.0, &component.world)?;
        let pre = inspect::link(&self.linker, &loaded.0, &component.world)?;
        let limits =
            EffectiveLimits::decide(&component.limits, &self.settings.defaults, &self.settings.ceilings);
        let connector: Arc<str> = release.connector_key.as_str().into();
        let capabilities = describe(&self.guests, pre.clone(), &limits, Arc::clone(&connector)).await?;
        let counters = &self.guests.counters;
        let gate = Gate {
            grant: Grant::new(component, &self.settings.development_hosts),
            transport: Arc::clone(&self.transport),
            counters: Arc::clone(counters),
            connector,
        };
        let key = RouteKey {
            connector_key: release.connector_key.clone(),
            connection_id: request.connection_id.clone(),
        };
        let of_device = key.connection_id == ConnectionId::device(&key.connector_key);
        let calls = usize::try_from(limits.concurrent_calls).unwrap_or(Semaphore::MAX_PERMITS);
        let route = ConnectorRoute {
            account: request.scope.account_id.clone().filter(|_| !of_device),
            key,
            generation: request.generation.clone(),
            release_digest: release.release_digest,
            version: release.version.to_string(),
            program: Program { pre, capabilities, _loaded: loaded },
            limits,
            gate: Arc::new(gate),
            flight: Arc::new(Flight::default()),
            pace: Pace::default(),
            calls: Arc::new(Semaphore::new(calls)),
            waiting: AtomicUsize::new(0),
            running: Arc::new(AtomicUsize::new(0)),
            counters: Arc::clone(counters),
        };
        Ok((route, summary(release, prepared).await))
    }
}

async fn summary(release: &Release, prepared: &PreparedRelease) -> ConnectorSummary {
    let root = prepared.root.clone();
    let skills = tokio::task::spawn_blocking(move || skills::read(&root)).await.unwrap_or_default();
    let description = release.manifest.description.as_deref().unwrap_or_default();
    ConnectorSummary {
        key: release.connector_key.clone(),
        version: release.version.clone(),
        name: guest_text::cut(&release.manifest.display_name, NAME_BYTES).to_owned(),
        description: guest_text::cut(description, DESCRIPTION_BYTES).to_owned(),
        skills,
        interfaces: vec![InterfaceKind::Mcp],
    }
}
