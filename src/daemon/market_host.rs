//! The market with everything that drives it, from ports alone: what an embedder
//! brings its own store or host to, and what [`super::Daemon`] is made around.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use super::{
    bootstrap::Bootstrap,
    driver::{Task, Wake, drive},
    gate::ActivationGate,
    lifecycle::Lifecycle,
    scheduler::LocalScheduler,
    status::{Health, StatusCell},
    tasks::{
        BootstrapRetry, CatalogRefresh, Cleanup, CleanupPolicy, Convergence, OperationRecovery, Outbox,
        RuntimePlanning,
    },
    wakes::Wakes,
};
use crate::{
    domain::{
        error::Error,
        id::{BootEpoch, WorkerId},
        operation::OperationScope,
    },
    market::{Application, ApplicationConfig, HostIdentity, ImplementationRegistry},
    ports::{
        AuthorizationProvider, AuthorizationSource, CatalogSource, Clock, EventSink, IdSource,
        ImplementationHost, ReleaseInstaller, Store,
    },
};

/// The least time between two wake-ups by what was committed: a busy database must
/// not keep every daemon on it busy.
const CHANGES_APART: Duration = Duration::from_millis(20);

/// What a [`MarketHost`] is made of.
pub struct MarketHostConfig {
    /// The database.
    pub store: Arc<dyn Store>,
    /// Where releases are listed.
    pub catalog: Arc<dyn CatalogSource>,
    /// Who puts files in place.
    pub installer: Arc<dyn ReleaseInstaller>,
    /// Who runs connectors; the gate is put before it.
    pub host: Arc<dyn ImplementationHost>,
    /// Who authorizes connectors.
    pub authorization: Arc<dyn AuthorizationProvider>,
    /// Who keeps what accounts hold at remote connectors; without it none of those runs.
    pub authorization_source: Option<Arc<dyn AuthorizationSource>>,
    /// Where committed changes are announced.
    pub events: Arc<dyn EventSink>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Fresh ids.
    pub ids: Arc<dyn IdSource>,
    /// The implementation kinds that the host runs.
    pub registry: ImplementationRegistry,
    /// What this host is, to the requirements of a manifest.
    pub identity: HostIdentity,
    /// Who claims work here.
    pub worker_id: WorkerId,
    /// This start.
    pub boot_epoch: BootEpoch,
    /// How long a claim holds without being renewed; zero for the market's own choice.
    pub lease_duration: Duration,
    /// Who is to be active first.
    pub scope: OperationScope,
    /// The time between two catalog refreshes; none refreshes on command only.
    pub catalog_refresh_interval: Option<Duration>,
    /// How long what has ended is kept.
    pub cleanup: CleanupPolicy,
}

/// The application, the gate before the host, and the background tasks.
pub struct MarketHost {
    application: Arc<Application>,
    gate: Arc<ActivationGate>,
    bootstrap: Arc<Bootstrap>,
    scheduler: Arc<LocalScheduler>,
    lifecycle: Lifecycle,
    tasks: Vec<StatusCell>,
}

impl MarketHost {
    /// Puts it together and starts the tasks. Nothing is published before
    /// [`bootstrap`](Bootstrap::bootstrap).
    ///
    /// # Errors
    /// What the application refuses.
    pub fn start(config: MarketHostConfig, runtime: Handle) -> Result<Self, Error> {
        config.host.set_publication(false);
        let lifecycle = Lifecycle::new(runtime);
        let wakes = Wakes::default();
        let gate = Arc::new(ActivationGate::new(config.host));
        let scheduler = Arc::new(LocalScheduler::new(lifecycle.clone(), wakes.outbox.clone()));
        let application = Application::new(ApplicationConfig {
            store: Arc::clone(&config.store),
            catalog: config.catalog,
            installer: config.installer,
            host: Arc::clone(&gate) as Arc<dyn ImplementationHost>,
            authorization: config.authorization,
            authorization_source: config.authorization_source,
            scheduler: Arc::clone(&scheduler) as _,
            clock: Arc::clone(&config.clock),
            ids: Arc::clone(&config.ids),
            registry: config.registry,
            identity: config.identity,
            worker_id: config.worker_id,
            boot_epoch: config.boot_epoch,
            lease_duration: config.lease_duration,
        })?;
        // Weak: the application holds the scheduler.
        let executor = Arc::downgrade(&application);
        scheduler.bind(Box::new(move |id| {
            let application = executor.upgrade();
            Box::pin(async move {
                match application {
                    Some(application) => application.execute(&id).await,
                    None => Err(Error::unavailable("the daemon is stopping")),
                }
            })
        }));
        let bootstrap = Arc::new(Bootstrap::new(
            Arc::clone(&application),
            Arc::clone(&gate),
            lifecycle.clone(),
            wakes.clone(),
            Arc::clone(&config.clock),
            config.scope,
        ));
        let mut tasks: Vec<(Arc<dyn Task>, &Wake)> = vec![
            (Arc::new(Outbox::new(Arc::clone(&config.store), config.events)), &wakes.outbox),
            (Arc::new(BootstrapRetry::new(Arc::clone(&bootstrap))), &wakes.bootstrap),
            (
                Arc::new(OperationRecovery::new(
                    Arc::clone(&config.store),
                    Arc::clone(&scheduler),
                    Arc::clone(&bootstrap),
                    Arc::clone(&config.clock),
                )),
                &wakes.recovery,
            ),
            (
                Arc::new(RuntimePlanning::new(
                    Arc::clone(&application),
                    Arc::clone(&bootstrap),
                    wakes.clone(),
                )),
                &wakes.planning,
            ),
            (
                Arc::new(Convergence::new(
                    Arc::clone(&application),
                    Arc::clone(&bootstrap),
                    lifecycle.clone(),
                    wakes.clone(),
                )),
                &wakes.convergence,
            ),
            (
                Arc::new(Cleanup::new(Arc::clone(&config.store), Arc::clone(&config.clock), config.cleanup)),
                &wakes.cleanup,
            ),
        ];
        if let Some(interval) = config.catalog_refresh_interval {
            let refresh = CatalogRefresh::new(
                Arc::clone(&application),
                Arc::clone(&config.store),
                Arc::clone(&bootstrap),
                Arc::clone(&config.ids),
                interval,
            );
            tasks.push((Arc::new(refresh), &wakes.catalog));
        }
        let tasks = tasks
            .into_iter()
            .map(|(task, wake)| drive(task, wake.clone(), &lifecycle, Arc::clone(&config.clock)))
            .collect();
        forward_intents(&application, &lifecycle, wakes.convergence.clone());
        forward_changes(&*config.store, &lifecycle, wakes);
        Ok(Self { application, gate, bootstrap, scheduler, lifecycle, tasks })
    }

    /// The market.
    #[must_use]
    pub fn application(&self) -> &Arc<Application> {
        &self.application
    }

    /// Who runs connectors, behind the gate.
    #[must_use]
    pub fn gate(&self) -> &Arc<ActivationGate> {
        &self.gate
    }

    /// Bootstrap, fence and repair.
    #[must_use]
    pub fn bootstrap(&self) -> &Arc<Bootstrap> {
        &self.bootstrap
    }

    /// Who runs operations.
    #[must_use]
    pub fn scheduler(&self) -> &Arc<LocalScheduler> {
        &self.scheduler
    }

    /// How it stops.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> Health {
        let bootstrapped = self.bootstrap.active().is_some();
        let stopping = self.lifecycle.soft().is_cancelled();
        Health {
            ready: bootstrapped && self.gate.is_open() && !stopping,
            bootstrapped,
            stopping,
            bootstrap_failure: self.bootstrap.failure(),
            connectors_planned_later: self.bootstrap.planned_later().len(),
            tasks: self.tasks.iter().map(StatusCell::read).collect(),
        }
    }

    /// Ends everything: takes the routes down, then gives up what still runs. The
    /// second call does nothing more than wait.
    ///
    /// # Errors
    /// When not every route or task was seen to be gone in time.
    pub async fn close(&self, deadline: Duration) -> Result<(), Error> {
        self.lifecycle.stop_softly();
        let closed = self.gate.close(deadline).await;
        self.lifecycle.stop_hard();
        let ended = self.lifecycle.wait(deadline).await;
        closed?;
        if ended { Ok(()) } else { Err(Error::unavailable("not every background task has ended in time")) }
    }
}

/// Has the tasks look at once at what some daemon has committed, but not after each
/// of many commits.
fn forward_changes(store: &dyn Store, lifecycle: &Lifecycle, wakes: Wakes) {
    let mut changes = store.changes();
    let soft = lifecycle.soft().clone();
    lifecycle.spawn(async move {
        let forwarding = async {
            while changes.changed().await.is_ok() {
                wakes.outbox.wake();
                wakes.convergence.wake();
                wakes.recovery.wake();
                tokio::time::sleep(CHANGES_APART).await;
            }
        };
        soft.run_until_cancelled(forwarding).await;
    });
}

/// Converges at once what was intended just now.
fn forward_intents(application: &Arc<Application>, lifecycle: &Lifecycle, convergence: Wake) {
    let application = Arc::clone(application);
    let soft = lifecycle.soft().clone();
    lifecycle.spawn(async move {
        while soft.run_until_cancelled(application.intent_saved()).await.is_some() {
            convergence.wake();
        }
    });
}
