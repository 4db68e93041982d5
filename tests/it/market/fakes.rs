//! The world around the market, scripted: a catalog, an installer, a host, a
//! scheduler and a clock. The store is the real one.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use portcullis::{
    domain::{
        capability::{CallRequest, CallResponse, PublishedCapability},
        catalog::{CatalogCategory, CatalogContents, SourcePage, SourcePageQuery},
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        id::{AccountId, ConnectorKey, OperationId},
        release::Release,
        runtime::{
            ConnectorSummary, DeactivateRequest, InterfaceKind, InterfaceReadiness, REASON_RUNTIME_DISABLED,
            ReadinessState, ReconcileRequest, ReleaseReceipt, RuntimeReadiness, RuntimeReceipt,
        },
        timestamp::Timestamp,
    },
    ports::{
        CatalogSource, Clock, IdSource, ImplementationHost, InstallRequest, OperationScheduler,
        PhysicalState, PreparedRelease, ReleaseInstaller, ReleaseObservation, RouteSummary, UninstallRequest,
    },
};
use tokio::sync::Semaphore;

use super::provider::{FakeAccounts, FakeAuthorization};

/// A value that the test and the market look at in turn.
#[derive(Debug, Default)]
pub(crate) struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("nobody panicked while looking at it")
    }
}

/// An error to answer with.
#[derive(Clone, Debug)]
pub(crate) struct Fault(pub(crate) ErrorCode, pub(crate) bool, pub(crate) String);

impl Fault {
    pub(crate) fn of(code: ErrorCode) -> Self {
        Self(code, code.retryable(), format!("scripted: {code}"))
    }

    fn error(&self) -> Error {
        Error::new(self.0, self.2.clone()).with_retryable(self.1)
    }
}

/// Faults for the next calls, in order; calls after them succeed.
#[derive(Debug, Default)]
pub(crate) struct Script(Shared<VecDeque<Fault>>);

impl Script {
    pub(crate) fn push(&self, fault: Fault) {
        self.0.lock().push_back(fault);
    }

    pub(crate) fn next(&self) -> Result<(), Error> {
        self.0.lock().pop_front().map_or(Ok(()), |fault| Err(fault.error()))
    }
}

/// A place where a call waits until the test lets it go on.
#[derive(Debug)]
pub(crate) struct Gate {
    closed: AtomicBool,
    arrived: Semaphore,
    passes: Semaphore,
}

impl Default for Gate {
    fn default() -> Self {
        Self { closed: AtomicBool::new(false), arrived: Semaphore::new(0), passes: Semaphore::new(0) }
    }
}

impl Gate {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Waits until a call has come to the gate.
    pub(crate) async fn arrival(&self) {
        self.arrived.acquire().await.expect("an open semaphore").forget();
    }

    /// Lets everyone pass from now on.
    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        self.passes.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    pub(crate) async fn pass(&self) {
        if self.closed.load(Ordering::SeqCst) {
            self.arrived.add_permits(1);
            self.passes.acquire().await.expect("an open semaphore").forget();
        }
    }
}

#[derive(Default)]
pub(crate) struct FakeCatalog {
    pub(crate) categories: Shared<Vec<CatalogCategory>>,
    pub(crate) pages: Shared<HashMap<String, SourcePage>>,
    pub(crate) contents: Shared<Vec<Release>>,
    pub(crate) faults: Script,
    /// Holds the next page after its content was decided.
    pub(crate) page_gate: Gate,
    pub(crate) contents_gate: Gate,
    pub(crate) asked: Shared<Vec<SourcePageQuery>>,
}

#[async_trait]
impl CatalogSource for FakeCatalog {
    async fn categories(&self) -> Result<Vec<CatalogCategory>, Error> {
        self.faults.next()?;
        Ok(self.categories.lock().clone())
    }

    async fn page(&self, query: &SourcePageQuery) -> Result<SourcePage, Error> {
        self.faults.next()?;
        self.asked.lock().push(query.clone());
        let page = self.pages.lock().get(&query.page_token).cloned();
        self.page_gate.pass().await;
        page.ok_or_else(|| Error::invalid_request("no such page"))
    }

    async fn contents(&self) -> Result<CatalogContents, Error> {
        self.faults.next()?;
        let releases = self.contents.lock().clone();
        self.contents_gate.pass().await;
        Ok(CatalogContents { source_revision: format!("of {}", releases.len()), releases })
    }
}

#[derive(Default)]
pub(crate) struct FakeInstaller {
    pub(crate) installs: Shared<Vec<InstallRequest>>,
    pub(crate) commits: Shared<Vec<Sha256Digest>>,
    pub(crate) uninstalls: Shared<Vec<UninstallRequest>>,
    pub(crate) install_faults: Script,
    pub(crate) commit_faults: Script,
    pub(crate) uninstall_faults: Script,
    pub(crate) install_gate: Gate,
    pub(crate) inspect_gate: Gate,
    /// What an inspection finds; present when nothing is said.
    pub(crate) disk: Shared<HashMap<ConnectorKey, PhysicalState>>,
    /// Spoils receipts.
    pub(crate) spoil: Shared<Option<fn(&mut ReleaseReceipt)>>,
    /// Spoils observations.
    pub(crate) misread: Shared<Option<fn(&mut ReleaseObservation)>>,
}

#[async_trait]
impl ReleaseInstaller for FakeInstaller {
    async fn install(&self, request: &InstallRequest) -> Result<ReleaseReceipt, Error> {
        self.installs.lock().push(request.clone());
        self.install_gate.pass().await;
        self.install_faults.next()?;
        let release = &request.release;
        let mut receipt = ReleaseReceipt {
            operation_id: request.operation_id.clone(),
            connector_key: release.connector_key.clone(),
            version: release.version.clone(),
            release_digest: release.release_digest,
            artifact_sha256: release.artifact.sha256,
            inventory_digest: Sha256Digest::of(b"inventory"),
        };
        if let Some(spoil) = *self.spoil.lock() {
            spoil(&mut receipt);
        }
        Ok(receipt)
    }

    async fn commit(&self, _: &InstallRequest, receipt: &ReleaseReceipt) -> Result<(), Error> {
        self.commit_faults.next()?;
        self.commits.lock().push(receipt.release_digest);
        Ok(())
    }

    async fn inspect(&self, release: &Release) -> Result<ReleaseObservation, Error> {
        let state = self.disk.lock().get(&release.connector_key).copied();
        self.inspect_gate.pass().await;
        let mut seen = ReleaseObservation {
            connector_key: release.connector_key.clone(),
            release_digest: release.release_digest,
            state: state.unwrap_or(PhysicalState::Present),
            reason: None,
        };
        if let Some(misread) = *self.misread.lock() {
            misread(&mut seen);
        }
        Ok(seen)
    }

    async fn open(&self, _: &Release) -> Result<PreparedRelease, Error> {
        Err(Error::unavailable("the market opens nothing"))
    }

    async fn uninstall(&self, request: &UninstallRequest) -> Result<(), Error> {
        self.uninstall_faults.next()?;
        self.uninstalls.lock().push(request.clone());
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct FakeHost {
    pub(crate) reconciled: Shared<Vec<ReconcileRequest>>,
    pub(crate) deactivated: Shared<Vec<DeactivateRequest>>,
    pub(crate) faults: Script,
    pub(crate) deactivate_faults: Script,
    pub(crate) gate: Gate,
    /// Spoils receipts.
    pub(crate) spoil: Shared<Option<fn(&mut RuntimeReceipt)>>,
    /// Refuses this release, whenever it is asked to run it.
    pub(crate) refuses: Shared<HashMap<Sha256Digest, Fault>>,
}

impl FakeHost {
    pub(crate) fn last(&self) -> ReconcileRequest {
        self.reconciled.lock().last().cloned().expect("the host was asked")
    }

    pub(crate) fn count(&self) -> usize {
        self.reconciled.lock().len()
    }
}

#[async_trait]
impl ImplementationHost for FakeHost {
    async fn reconcile(&self, request: &ReconcileRequest) -> Result<RuntimeReceipt, Error> {
        self.reconciled.lock().push(request.clone());
        self.gate.pass().await;
        self.faults.next()?;
        if let Some(fault) = self.refuses.lock().get(&request.release.release_digest)
            && request.enabled
        {
            return Err(fault.error());
        }
        let release = &request.release;
        let summary = request.enabled.then(|| ConnectorSummary {
            key: release.connector_key.clone(),
            version: release.version.clone(),
            name: release.manifest.display_name.clone(),
            description: String::new(),
            skills: Vec::new(),
            interfaces: vec![InterfaceKind::Mcp],
        });
        let readiness = if request.enabled {
            RuntimeReadiness {
                state: ReadinessState::Ready,
                reason_code: None,
                interfaces: vec![InterfaceReadiness {
                    kind: InterfaceKind::Mcp,
                    state: ReadinessState::Ready,
                }],
            }
        } else {
            RuntimeReadiness::blocked(REASON_RUNTIME_DISABLED)
        };
        let mut receipt = RuntimeReceipt {
            operation_id: request.operation_id.clone(),
            connection_id: request.connection_id.clone(),
            connector_key: release.connector_key.clone(),
            release_digest: release.release_digest,
            generation: request.generation.clone(),
            readiness,
            summary,
        };
        if let Some(spoil) = *self.spoil.lock() {
            spoil(&mut receipt);
        }
        Ok(receipt)
    }

    async fn deactivate(&self, request: &DeactivateRequest, _: Duration) -> Result<(), Error> {
        self.deactivated.lock().push(request.clone());
        self.deactivate_faults.next()
    }

    async fn fail_closed(&self, _: Duration) -> Result<(), Error> {
        Ok(())
    }

    fn set_publication(&self, _: bool) {}

    fn capabilities(&self, _: Option<&AccountId>) -> Vec<PublishedCapability> {
        Vec::new()
    }

    async fn call(&self, _: CallRequest) -> Result<CallResponse, Error> {
        Err(Error::unavailable("the market calls nothing"))
    }

    fn routes(&self) -> Vec<RouteSummary> {
        Vec::new()
    }

    async fn close(&self, _: Duration) -> Result<(), Error> {
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(crate) struct FakeScheduler {
    pub(crate) scheduled: Shared<Vec<OperationId>>,
    pub(crate) faults: Script,
}

impl FakeScheduler {
    pub(crate) fn count(&self) -> usize {
        self.scheduled.lock().len()
    }
}

impl OperationScheduler for FakeScheduler {
    fn schedule(&self, id: &OperationId) -> Result<(), Error> {
        self.faults.next()?;
        self.scheduled.lock().push(id.clone());
        Ok(())
    }
}

/// A clock that moves when it is told to.
#[derive(Debug)]
pub(crate) struct FakeClock(AtomicI64);

impl Default for FakeClock {
    fn default() -> Self {
        Self(AtomicI64::new(1_800_000_000_000))
    }
}

impl FakeClock {
    pub(crate) fn advance(&self, duration: Duration) {
        self.0.fetch_add(i64::try_from(duration.as_millis()).expect("a short time"), Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// Ids in order, or none.
#[derive(Debug, Default)]
pub(crate) struct FakeIds {
    next: AtomicU64,
    pub(crate) faults: Script,
}

impl IdSource for FakeIds {
    fn fresh(&self) -> Result<String, Error> {
        self.faults.next()?;
        Ok(format!("{:032x}", self.next.fetch_add(1, Ordering::SeqCst) + 1))
    }
}

/// Everything that is faked, shared by the boots of one test.
#[derive(Clone, Default)]
pub(crate) struct Fakes {
    pub(crate) catalog: Arc<FakeCatalog>,
    pub(crate) installer: Arc<FakeInstaller>,
    pub(crate) host: Arc<FakeHost>,
    pub(crate) authorization: Arc<FakeAuthorization>,
    pub(crate) accounts: Arc<FakeAccounts>,
    pub(crate) scheduler: Arc<FakeScheduler>,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) ids: Arc<FakeIds>,
    /// Whether the host runs remote connectors, from the next boot on.
    pub(crate) runs_remote: Arc<AtomicBool>,
}
