//! The boot order: the one place that knows every piece.
//!
//! Directory and lock, identity, token, database, installer, sandbox, catalogs,
//! market. Whatever fails says what and stops; nothing is published yet.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use secrecy::{ExposeSecret as _, SecretString};
use tokio::{runtime::Handle, sync::broadcast};
use tokio_util::sync::CancellationToken;

use super::{
    authorization::NoAuthorization,
    data_dir::DataDir,
    events::Events,
    leases::{release_leases_of_earlier_boots, worker_id},
    lifecycle::Lifecycle,
    market_host::{MarketHost, MarketHostConfig},
    status::Health,
    tasks::CleanupPolicy,
};
use crate::{
    artifacts::{
        LocalInstaller,
        catalog::{CombinedCatalog, StaticCatalog},
    },
    config::ServeSettings,
    domain::{
        error::Error, event::OutboxEvent, id::BootEpoch, operation::OperationScope, revision::Revision,
    },
    market::{Application, HostIdentity, ImplementationRegistry},
    ports::{Clock, IdSource, ImplementationHost, Store},
    sandbox::{DevelopmentHost, SandboxHost, SandboxSettings},
    store::{HeldAlone, SqlStore, StoreOptions, hold_alone, sqlite_url},
};

/// Events that a slow listener may fall behind before it misses some.
const EVENTS_KEPT: usize = 1024;
/// How long a claim holds that nobody renews. A daemon that was killed gives its
/// own claims back when it starts again; others wait for as long as this.
const LEASE: Duration = Duration::from_secs(30);

/// A running daemon, for whoever serves it.
pub struct Daemon {
    /// The market.
    pub application: Arc<Application>,
    /// Who runs connectors, behind the activation gate.
    pub host: Arc<dyn ImplementationHost>,
    /// What it runs with.
    pub settings: ServeSettings,
    /// What every caller must show.
    pub token: SecretString,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Fresh ids.
    pub ids: Arc<dyn IdSource>,
    market: MarketHost,
    events: Events,
    store: SqlStore,
    closed: AtomicBool,
    /// Last of what uses the database.
    _alone: Option<HeldAlone>,
    pub(super) data_dir: DataDir,
}

impl Daemon {
    /// Puts the daemon together and starts its background tasks. Nothing is
    /// published before [`bootstrap`](Self::bootstrap).
    ///
    /// # Errors
    /// What could not be opened, with what to do.
    pub async fn boot(
        settings: ServeSettings,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, Error> {
        let data_dir = DataDir::open(&settings.data_dir)?;
        Self::boot_in(data_dir, settings, clock, ids).await
    }

    /// As [`boot`](Self::boot), on a directory that is held already.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn boot_in(
        data_dir: DataDir,
        settings: ServeSettings,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, Error> {
        let node_id = data_dir.node_id(&*ids)?;
        let token = data_dir.token()?;
        let boot_epoch = BootEpoch::parse(ids.fresh()?)?;
        let worker_id = worker_id(&node_id, &boot_epoch)?;

        // Daemons that share a server must not judge leases by clocks that differ.
        let (url, lease_clock) = match &settings.database_url {
            Some(url) => (url.expose_secret().to_owned(), None),
            None => (sqlite_url(&data_dir.database()), Some(Arc::clone(&clock))),
        };
        let taken = CancellationToken::new();
        let taken_over = taken.clone();
        let alone = hold_alone(&url, move || taken_over.cancel()).await?;
        let options = StoreOptions { url, node_id: node_id.clone(), lease_clock };
        let sql_store = SqlStore::open(options).await?;
        let store: Arc<dyn Store> = Arc::new(sql_store.clone());
        if store.snapshot().await?.revision == Revision(0) && data_dir.holds_artifacts() {
            tracing::warn!(
                data_dir = %data_dir.path().display(),
                "the database is new, but the data directory holds files of installed connectors: if the database \
                 was lost, stop, and restore it together with its -wal file"
            );
        }
        let released =
            release_leases_of_earlier_boots(&*store, &node_id, &worker_id, &settings.scope).await?;
        if released > 0 {
            tracing::info!(released, "work of an earlier start is taken up again");
        }

        let catalog = Arc::new(open_catalogs(&settings)?);
        let installer = Arc::new(LocalInstaller::new(data_dir.artifacts(), Arc::clone(&catalog) as _)?);
        installer.recover().await?;
        let host = SandboxHost::new(
            sandbox_settings(&settings, &data_dir),
            Arc::clone(&installer) as _,
            Arc::new(sql_store.clone()),
            Arc::clone(&clock),
        )?;

        let events = Events::new(EVENTS_KEPT);
        let config = MarketHostConfig {
            store,
            catalog,
            installer,
            host,
            authorization: Arc::new(NoAuthorization),
            authorization_source: None,
            events: Arc::new(events.clone()),
            clock: Arc::clone(&clock),
            ids: Arc::clone(&ids),
            registry: ImplementationRegistry::default(),
            identity: identity()?,
            worker_id,
            boot_epoch: boot_epoch.clone(),
            lease_duration: LEASE,
            scope: settings.scope.clone(),
            catalog_refresh_interval: settings.catalog_refresh_interval,
            cleanup: CleanupPolicy::default(),
        };
        let market = MarketHost::start(config, Handle::current())?;
        let lifecycle = market.lifecycle().clone();
        market.lifecycle().spawn(async move {
            tokio::select! {
                () = lifecycle.soft().cancelled() => {}
                () = taken.cancelled() => {
                    tracing::error!("another daemon has taken the database over; this one stops");
                    lifecycle.stop_hard();
                }
            }
        });
        tracing::info!(
            node.id = %node_id,
            boot.epoch = %boot_epoch,
            data_dir = %data_dir.path().display(),
            database = if settings.database_url.is_some() { "PostgreSQL" } else { "SQLite" },
            catalogs = settings.catalogs.len(),
            "booted"
        );
        Ok(Self {
            application: Arc::clone(market.application()),
            host: Arc::clone(market.gate()) as _,
            settings,
            token,
            clock,
            ids,
            market,
            events,
            store: sql_store,
            closed: AtomicBool::new(false),
            _alone: alone,
            data_dir,
        })
    }

    /// For which account the daemon acts.
    #[must_use]
    pub fn scope(&self) -> OperationScope {
        self.market.bootstrap().scope()
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> Health {
        self.market.health()
    }

    /// When it stops.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        self.market.lifecycle()
    }

    /// Listens to committed changes, from now on.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<OutboxEvent> {
        self.events.subscribe()
    }

    /// Restores what is installed for `scope`; see [`super::Bootstrap::bootstrap`].
    ///
    /// # Errors
    /// What kept it from being restored; the daemon tries again by itself.
    pub async fn bootstrap(&self, scope: &OperationScope) -> Result<(), Error> {
        self.market.bootstrap().bootstrap(scope).await
    }

    /// Takes all routes down until the next bootstrap; see [`super::Bootstrap::fence`].
    ///
    /// # Errors
    /// When not every route was seen to be gone.
    pub async fn fence(&self, scope: &OperationScope) -> Result<(), Error> {
        self.market.bootstrap().fence(scope).await
    }

    /// Takes the routes down for good, as [`close`](Self::close) does first; the
    /// calls that this ends can still be answered.
    ///
    /// # Errors
    /// When not every route was seen to be gone in time.
    pub async fn close_routes(&self, deadline: Duration) -> Result<(), Error> {
        self.market.gate().close(deadline).await
    }

    /// Takes the routes down, gives up what still runs, and closes the database.
    /// What was under way is durable, and the next start takes it up. The second
    /// call does nothing.
    ///
    /// # Errors
    /// When not everything was seen to be gone in time.
    pub async fn close(&self, deadline: Duration) -> Result<(), Error> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let retracted = self.data_dir.retract();
        self.market.close(deadline).await?;
        tokio::time::timeout(deadline, self.store.close())
            .await
            .map_err(|_| Error::unavailable("the database was not closed in time"))?;
        // Not before nothing of this daemon can write there any more.
        retracted.and(self.data_dir.release())
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("data_dir", &self.data_dir.path()).finish_non_exhaustive()
    }
}

fn open_catalogs(settings: &ServeSettings) -> Result<CombinedCatalog, Error> {
    let plain: Vec<String> =
        settings.development_hosts.iter().map(|host| host.name.as_str().to_owned()).collect();
    let open = |location: &crate::config::CatalogLocation| {
        StaticCatalog::new(&location.to_string(), &plain).map(Arc::new)
    };
    Ok(CombinedCatalog::new(settings.catalogs.iter().map(open).collect::<Result<_, _>>()?))
}

fn sandbox_settings(settings: &ServeSettings, data_dir: &DataDir) -> SandboxSettings {
    let development_hosts = settings
        .development_hosts
        .iter()
        .map(|host| DevelopmentHost { host: host.name.clone(), address: host.address })
        .collect();
    SandboxSettings {
        pool_instances: settings.pool_size,
        ceilings: settings.ceiling,
        development_hosts,
        compiler: settings.compiler.clone(),
        ..SandboxSettings::new(data_dir.compiled())
    }
}

fn identity() -> Result<HostIdentity, Error> {
    let version = semver::Version::parse(env!("CARGO_PKG_VERSION"))
        .map_err(|cause| Error::unavailable("this program's own version cannot be read").with_cause(cause))?;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = format!("{}-{architecture}", std::env::consts::OS);
    Ok(HostIdentity { product: env!("CARGO_PKG_NAME").to_owned(), platform, version })
}
