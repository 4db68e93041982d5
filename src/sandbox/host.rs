//! The implementation host over wasmtime: admission, lanes, routes.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    runtime::{Handle, Runtime},
    sync::{Mutex as AsyncMutex, OwnedMutexGuard, RwLock, RwLockReadGuard, Semaphore},
    time::{Instant, timeout_at},
};

use super::{
    activate::Workshop,
    cache::Cache,
    call::Guests,
    compiler::Compiler,
    counters::{Counters, SandboxCounts},
    engine::Engine,
    ledger::HomeLedger,
    limits::Budget,
    linker::linker,
    route::ConnectorRoute,
    routes::{CLOSE_TIMEOUT, Route as _, RouteKey, RouteTable},
    settings::SandboxSettings,
};
use crate::{
    domain::{
        authorization::AuthorizationState,
        capability::{CallRequest, CallResponse, PublishedCapability},
        error::{Error, ErrorCode},
        id::{AccountId, ConnectorKey},
        manifest::{AuthorizationKind, Implementation, WasmComponent},
        runtime::{
            DeactivateRequest, InterfaceKind, InterfaceReadiness, REASON_RUNTIME_DISABLED, ReadinessState,
            ReconcileRequest, RuntimeReadiness, RuntimeReceipt,
        },
    },
    ports::{Clock, ImplementationHost, ReleaseInstaller, RouteStatus, RouteSummary, SandboxLedger},
};

/// How often a call looks for a route again when one was replaced under its feet.
const RESELECTIONS: u32 = 3;

/// Runs connectors as WebAssembly components.
pub struct SandboxHost {
    routes: RouteTable<ConnectorRoute>,
    /// Held to change routes; exclusively, to end all changes.
    admission: RwLock<()>,
    closed: AtomicBool,
    lanes: Mutex<HashMap<ConnectorKey, Arc<AsyncMutex<()>>>>,
    workshop: Workshop,
    guests: Arc<Guests>,
    counters: Arc<Counters>,
    runtime: Option<Runtime>,
}

impl SandboxHost {
    /// Starts the engine and the threads that guests run on. Must be called on the
    /// daemon's runtime, where the ledger's work stays.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidRequest`] for a setting out of range;
    /// [`ErrorCode::Unavailable`] when this machine lacks what the settings ask for.
    pub fn new(
        settings: SandboxSettings,
        installer: Arc<dyn ReleaseInstaller>,
        ledger: Arc<dyn SandboxLedger>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, Error> {
        settings.validate()?;
        let home = Handle::try_current().map_err(|cause| {
            Error::unavailable("the sandbox must be started on a runtime").with_cause(cause)
        })?;
        let counters = Arc::<Counters>::default();
        let engine = Arc::new(Engine::new(&settings)?);
        let runtime = guest_runtime(&settings)?;
        let guests = Arc::new(Guests {
            engine: Arc::clone(&engine),
            runtime: runtime.handle().clone(),
            slots: Arc::new(Semaphore::new(usize::try_from(settings.pool_instances).unwrap_or(1))),
            waiting: AtomicUsize::new(0),
            memory: Arc::new(Budget::new(settings.memory_budget_bytes)),
            ledger: Arc::new(HomeLedger { ledger: Arc::clone(&ledger), home }),
            clock,
            counters: Arc::clone(&counters),
        });
        let linker = linker(engine.wasmtime())?;
        let compiler = settings.compiler.clone().map(Compiler::new);
        let cache = Cache::new(&settings.cache_dir, engine, compiler, ledger, Arc::clone(&counters))?;
        let workshop = Workshop::new(settings, installer, cache, linker, Arc::clone(&guests));
        Ok(Arc::new(Self {
            routes: RouteTable::default(),
            admission: RwLock::default(),
            closed: AtomicBool::new(false),
            lanes: Mutex::default(),
            workshop,
            guests,
            counters,
            runtime: Some(runtime),
        }))
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> SandboxCounts {
        self.counters.read()
    }

    async fn admit(&self) -> Result<RwLockReadGuard<'_, ()>, Error> {
        let admitted = self.admission.read().await;
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(admitted) }
    }

    async fn lane(&self, connector_key: &ConnectorKey) -> OwnedMutexGuard<()> {
        let lane = {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            lanes.retain(|key, lane| key == connector_key || Arc::strong_count(lane) > 1);
            Arc::clone(lanes.entry(connector_key.clone()).or_default())
        };
        lane.lock_owned().await
    }

    async fn take_down(&self, request: &DeactivateRequest, deadline: Duration) -> Result<(), Error> {
        match &request.connection_id {
            Some(connection_id) => {
                let key = RouteKey {
                    connector_key: request.connector_key.clone(),
                    connection_id: connection_id.clone(),
                };
                self.routes.remove(&key, &request.generation, request.release_digest.as_ref(), deadline).await
            }
            None => {
                let digest = request.release_digest;
                let selects = |route: &ConnectorRoute| {
                    route.key.connector_key == request.connector_key
                        && digest.is_none_or(|digest| digest == route.release_digest)
                };
                self.routes.remove_matching(selects, &request.generation, deadline).await
            }
        }
    }

    async fn disable(&self, request: &ReconcileRequest) -> Result<RuntimeReceipt, Error> {
        // Connection ids rotate: whatever the connector runs goes.
        let connector_key = &request.release.connector_key;
        let selects = |route: &ConnectorRoute| route.key.connector_key == *connector_key;
        self.routes.remove_matching(selects, &request.generation, CLOSE_TIMEOUT).await?;
        Ok(receipt(request, RuntimeReadiness::blocked(REASON_RUNTIME_DISABLED)))
    }

    async fn enable(&self, request: &ReconcileRequest) -> Result<RuntimeReceipt, Error> {
        let component = runnable(request)?;
        let prepared = self.workshop.open(&request.release).await?;
        let (route, summary) = self.workshop.build(request, component, &prepared).await?;
        let route = Arc::new(route);
        let committed = self.routes.commit(Arc::clone(&route)).await;
        // A commit may fail after the new route became active: then that one stays,
        // and only the old one still has to go.
        if committed.is_err() && !self.routes.is_active(&route) {
            route.fence();
        }
        committed?;
        let interfaces = vec![InterfaceReadiness { kind: InterfaceKind::Mcp, state: ReadinessState::Ready }];
        let readiness = RuntimeReadiness { state: ReadinessState::Ready, reason_code: None, interfaces };
        Ok(RuntimeReceipt { summary: Some(summary), ..receipt(request, readiness) })
    }

    /// The one route of a connector that `account` may call.
    fn select(
        &self,
        connector_key: &ConnectorKey,
        account: Option<&AccountId>,
    ) -> Result<Arc<ConnectorRoute>, Error> {
        if !self.routes.is_published() {
            return Err(Error::unavailable("the host publishes no capabilities at the moment"));
        }
        self.routes.with_published(connector_key, |routes| {
            let mut serving = routes.iter().filter(|route| route.serves(account));
            match (serving.next(), serving.next()) {
                (Some(route), None) => Ok(Arc::clone(route)),
                (Some(_), Some(_)) => Err(Error::new(
                    ErrorCode::CapabilityBusy,
                    format!("two connections of {connector_key} answer at the moment; try again when the change is complete"),
                )),
                (None, _) => Err(Error::new(
                    ErrorCode::CapabilityNotFound,
                    format!("{connector_key} is not active for this account"),
                )),
            }
        })
    }
}

#[async_trait]
impl ImplementationHost for SandboxHost {
    async fn reconcile(&self, request: &ReconcileRequest) -> Result<RuntimeReceipt, Error> {
        if request.generation.number == 0 {
            return Err(Error::invalid_request("the generation of a route is at least 1"));
        }
        let _admitted = self.admit().await?;
        let _lane = self.lane(&request.release.connector_key).await;
        if request.enabled { self.enable(request).await } else { self.disable(request).await }
    }

    async fn deactivate(&self, request: &DeactivateRequest, deadline: Duration) -> Result<(), Error> {
        let until = Instant::now() + deadline;
        let _admitted = timeout_at(until, self.admit()).await.map_err(|_| busy())??;
        // What runs is fenced at once; a reconcile that is under way is waited for, so
        // that it cannot put a route in place afterwards.
        let first = self.take_down(request, deadline).await;
        let _lane = timeout_at(until, self.lane(&request.connector_key)).await.map_err(|_| busy())?;
        first?;
        self.take_down(request, until.saturating_duration_since(Instant::now())).await
    }

    async fn fail_closed(&self, deadline: Duration) -> Result<(), Error> {
        let until = Instant::now() + deadline;
        self.routes.set_published(false);
        let first = self.routes.fence_all(deadline).await;
        let _exclusive = timeout_at(until, self.admission.write()).await.map_err(|_| busy())?;
        first?;
        self.routes.fence_all(until.saturating_duration_since(Instant::now())).await
    }

    fn set_publication(&self, enabled: bool) {
        self.routes.set_published(enabled && !self.closed.load(Ordering::Acquire));
    }

    fn capabilities(&self, account: Option<&AccountId>) -> Vec<PublishedCapability> {
        let routes = self.routes.published();
        let serving = routes.iter().filter(|route| route.serves(account));
        let mut all: Vec<_> = serving.flat_map(|route| route.capabilities()).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    async fn call(&self, mut request: CallRequest) -> Result<CallResponse, Error> {
        let mut attempts = 0;
        let admission = loop {
            let route = self.select(&request.capability.connector, request.account.as_ref())?;
            match self.guests.admit(route, &mut request).await {
                // The route was replaced after it was selected. Nothing ran yet, so
                // that the one that replaced it can be asked.
                Err(error) if error.code == ErrorCode::CapabilityFenced && attempts < RESELECTIONS => {
                    attempts += 1;
                }
                admission => break admission?,
            }
        };
        self.guests.call(admission, request).await
    }

    fn routes(&self) -> Vec<RouteSummary> {
        let (active, retiring) = self.routes.all();
        let active = active.into_iter().map(|route| (route, RouteStatus::Active));
        let retiring = retiring.into_iter().map(|route| (route, RouteStatus::Retiring));
        active
            .chain(retiring)
            .map(|(route, status)| RouteSummary {
                connector_key: route.key.connector_key.clone(),
                connection_id: route.key.connection_id.clone(),
                release_digest: route.release_digest,
                version: route.version.clone(),
                generation: route.generation.clone(),
                status,
                calls_in_flight: route.running.load(Ordering::Relaxed),
            })
            .collect()
    }

    async fn close(&self, deadline: Duration) -> Result<(), Error> {
        self.closed.store(true, Ordering::Release);
        let until = Instant::now() + deadline;
        let first = self.routes.close(deadline).await;
        let _exclusive = timeout_at(until, self.admission.write()).await.map_err(|_| busy())?;
        first?;
        self.routes.close(until.saturating_duration_since(Instant::now())).await
    }
}

impl Drop for SandboxHost {
    fn drop(&mut self) {
        // A runtime must not be waited for where this may be dropped. Every guest
        // yields within a tick, so that its threads end by themselves.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Whether the request's release may run now.
fn runnable(request: &ReconcileRequest) -> Result<&WasmComponent, Error> {
    let release = &request.release;
    let Implementation::WasmComponent(component) = &release.manifest.implementation else {
        return Err(Error::new(
            ErrorCode::UnsupportedImplementation,
            "this host runs WebAssembly components only",
        ));
    };
    if !request.installation.targets(&release.release_digest) {
        return Err(Error::new(
            ErrorCode::InstallFailed,
            format!("{} {} is not what is installed", release.connector_key, release.version),
        ));
    }
    let needed = match release.manifest.authorization_kind {
        AuthorizationKind::None => AuthorizationState::NotRequired,
        AuthorizationKind::Oauth2 | AuthorizationKind::ApiKey => AuthorizationState::Connected,
    };
    if request.authorization != needed {
        return Err(Error::new(
            ErrorCode::AuthorizationFailed,
            format!("{} cannot run without an authorization; connect it first", release.connector_key),
        )
        .with_retryable(false));
    }
    Ok(component)
}

fn receipt(request: &ReconcileRequest, readiness: RuntimeReadiness) -> RuntimeReceipt {
    RuntimeReceipt {
        operation_id: request.operation_id.clone(),
        connection_id: request.connection_id.clone(),
        connector_key: request.release.connector_key.clone(),
        release_digest: request.release.release_digest,
        generation: request.generation.clone(),
        readiness,
        summary: None,
    }
}

/// Threads of their own. Time and sockets are looked after every few polls: guests
/// that compute make polls long.
fn guest_runtime(settings: &SandboxSettings) -> Result<Runtime, Error> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.guest_threads.unwrap_or(cores))
        .thread_name("guest")
        .global_queue_interval(3)
        .event_interval(11)
        .max_blocking_threads(64)
        .enable_all()
        .build()
        .map_err(|cause| Error::unavailable("the sandbox cannot start its threads").with_cause(cause))
}

fn closed() -> Error {
    Error::unavailable("the host is closed").with_retryable(false)
}

fn busy() -> Error {
    Error::unavailable("another change of the host did not end in time; try again")
}
