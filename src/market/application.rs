//! What the market is made of, and what its verbs share.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    authorize::{Readiness, Requests},
    catalog::CatalogFence,
    compatibility::{HostIdentity, ImplementationRegistry},
    flight::Flights,
    snapshot::Verdicts,
};
use crate::{
    domain::{
        compatibility::Compatibility,
        error::Error,
        generation::Generation,
        id::{BootEpoch, WorkerId},
        manifest::Manifest,
        revision::Revision,
        timestamp::Timestamp,
    },
    ports::{
        AuthorizationProvider, AuthorizationSource, CatalogSource, Clock, IdSource, ImplementationHost,
        OperationScheduler, ReleaseInstaller, Store,
    },
};

/// The lease of a worker, where the configuration names none.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// Below this a lease cannot be renewed in time.
const SHORTEST_LEASE: Duration = Duration::from_millis(30);

/// What an [`Application`] is made of.
#[derive(Clone)]
pub struct ApplicationConfig {
    /// The database.
    pub store: Arc<dyn Store>,
    /// Where releases are listed.
    pub catalog: Arc<dyn CatalogSource>,
    /// Who puts files in place.
    pub installer: Arc<dyn ReleaseInstaller>,
    /// Who runs connectors.
    pub host: Arc<dyn ImplementationHost>,
    /// Who authorizes connectors.
    pub authorization: Arc<dyn AuthorizationProvider>,
    /// Who keeps what accounts hold at remote connectors; without it none of those runs.
    pub authorization_source: Option<Arc<dyn AuthorizationSource>>,
    /// Who is told that an operation wants to run.
    pub scheduler: Arc<dyn OperationScheduler>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Fresh ids.
    pub ids: Arc<dyn IdSource>,
    /// The implementation kinds that this host runs.
    pub registry: ImplementationRegistry,
    /// What this host is.
    pub identity: HostIdentity,
    /// Who claims operations here.
    pub worker_id: WorkerId,
    /// This start of this daemon.
    pub boot_epoch: BootEpoch,
    /// How long a claim holds without being renewed; 30 s when zero. After a
    /// crash, interrupted work waits for as long as this.
    pub lease_duration: Duration,
}

/// The market: every command and every reading of it.
///
/// Its futures may be dropped at any point: the transaction in flight is undone,
/// a held lease is given back, and the operation is taken up again from its row.
pub struct Application {
    pub(super) config: ApplicationConfig,
    pub(super) flights: Flights,
    pub(super) catalog_fence: CatalogFence,
    pub(super) verdicts: Verdicts,
    pub(super) authorizations: Requests,
    pub(super) readiness: Readiness,
    /// Wakes whoever waits for a route; the table decides.
    pub(super) runtime_changed: Notify,
    /// Wakes whoever converges; the table decides.
    pub(super) intent_saved: Notify,
    pub(super) tasks: TaskTracker,
    pub(super) stopped: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl Application {
    /// Puts an application together.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::InvalidRequest`] for a lease that is too
    /// short to be renewed, or a host without a product or platform.
    pub fn new(mut config: ApplicationConfig) -> Result<Arc<Self>, Error> {
        if config.lease_duration.is_zero() {
            config.lease_duration = DEFAULT_LEASE;
        }
        if config.lease_duration < SHORTEST_LEASE {
            return Err(Error::invalid_request("the lease duration must be at least 30 ms, or 0 for 30 s"));
        }
        if config.identity.product.trim().is_empty() || config.identity.platform.trim().is_empty() {
            return Err(Error::invalid_request("the host's product and platform must be named"));
        }
        let stopped = CancellationToken::new();
        Ok(Arc::new(Self {
            config,
            flights: Flights::default(),
            catalog_fence: CatalogFence::default(),
            verdicts: Verdicts::default(),
            authorizations: Requests::default(),
            readiness: Readiness::default(),
            runtime_changed: Notify::new(),
            intent_saved: Notify::new(),
            tasks: TaskTracker::new(),
            _stop_on_drop: stopped.clone().drop_guard(),
            stopped,
        }))
    }

    /// The database.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.config.store
    }

    /// This start of this daemon.
    #[must_use]
    pub fn boot_epoch(&self) -> &BootEpoch {
        &self.config.boot_epoch
    }

    /// Returns once an intent was saved since the last return: a hint that
    /// [`due_convergences`](Self::due_convergences) has something to say.
    pub async fn intent_saved(&self) {
        self.intent_saved.notified().await;
    }

    pub(super) fn now(&self) -> Timestamp {
        self.config.clock.now()
    }

    pub(super) fn generation(&self, number: u64) -> Generation {
        Generation { boot_epoch: self.config.boot_epoch.clone(), number }
    }

    /// The generation that stands for a revision; a route's is at least 1.
    pub(super) fn generation_at(&self, revision: Revision) -> Generation {
        self.generation(revision.0.max(1))
    }

    pub(super) fn compatibility(&self, manifest: &Manifest) -> Compatibility {
        self.config.identity.evaluate(&self.config.registry, manifest)
    }
}

impl std::fmt::Debug for Application {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Application")
            .field("worker_id", &self.config.worker_id)
            .field("boot_epoch", &self.config.boot_epoch)
            .finish_non_exhaustive()
    }
}
