//! Transactions that meet others: a conflict is tried again within a bound, and what
//! was asked for is done once (spec E.3; [`portcullis::ports::Tx`]).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use portcullis::{
    domain::{
        authorization::{AuthorizationProjection, AuthorizationSnapshot, AuthorizationState},
        catalog::{CatalogPageQuery, CatalogState},
        connector::Connector,
        convergence::Convergence,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        event::{ChangedEvent, OutboxEvent},
        id::{AccountId, BootEpoch, ClientRequestId, ConnectorKey, OperationId, WorkerId},
        operation::{Operation, OperationScope, OperationState},
        release::Release,
        revision::Revision,
        snapshot::{ScopedSnapshot, Snapshot},
    },
    market::Application,
    ports::{
        CleanupRequest, CleanupResult, Clock as _, ConvergenceLease, OperationLease, PhysicalState, Store, Tx,
    },
};

use super::{
    provider::{account, held, installed, local, remote},
    world::{World, ada, installed_version, key, release},
};

/// How often a transaction is begun before its conflict reaches the caller.
const ATTEMPTS: u32 = 8;

/// Where a transaction meets another one.
#[derive(Clone, Copy, Debug)]
enum Meeting {
    Begin,
    Commit,
    /// At its first commit, and no more.
    EachFirstCommit,
}

/// The next transactions meet others there, so many of them.
struct Contended {
    inner: Arc<dyn Store>,
    at: Meeting,
    left: Arc<AtomicU32>,
}

impl Contended {
    fn over(world: &World, at: Meeting) -> (Arc<Application>, Arc<AtomicU32>) {
        let left = Arc::new(AtomicU32::new(0));
        if matches!(at, Meeting::EachFirstCommit) {
            left.store(1, Ordering::SeqCst);
        }
        let store = Self { inner: Arc::clone(&world.store), at, left: Arc::clone(&left) };
        (world.through(Arc::new(store)), left)
    }
}

struct ContendedTx {
    inner: Box<dyn Tx>,
    at: Meeting,
    left: Arc<AtomicU32>,
}

fn meet(left: &AtomicU32) -> Result<(), Error> {
    let met = left.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    met.map_or(Ok(()), |_| {
        Err(Error::new(ErrorCode::SerializationConflict, "two transactions met; try again"))
    })
}

/// Implements a port by what is within, but for what stands before it.
macro_rules! passes_on {
    ($port:ident for $wrapper:ident { $($own:item)* } {
        $( $name:ident($($arg:ident: $type:ty),*) -> $answer:ty; )*
    } $(mut { $( $mut_name:ident($($mut_arg:ident: $mut_type:ty),*) -> $mut_answer:ty; )* })?) => {
        #[async_trait]
        impl $port for $wrapper {
            $($own)*
            $( async fn $name(&self, $($arg: $type),*) -> Result<$answer, Error> {
                self.inner.$name($($arg),*).await
            } )*
            $($( async fn $mut_name(&mut self, $($mut_arg: $mut_type),*) -> Result<$mut_answer, Error> {
                self.inner.$mut_name($($mut_arg),*).await
            } )*)?
        }
    };
}

passes_on! { Store for Contended {
    async fn begin(&self) -> Result<Box<dyn Tx>, Error> {
        if matches!(self.at, Meeting::Begin) {
            meet(&self.left)?;
        }
        let inner = self.inner.begin().await?;
        Ok(Box::new(ContendedTx { inner, at: self.at, left: Arc::clone(&self.left) }))
    }

    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.changes()
    }
} {
    snapshot() -> Snapshot;
    scoped_snapshot(scope: &OperationScope) -> ScopedSnapshot;
    connector(key: &ConnectorKey) -> Option<Connector>;
    authorization_projection(account: &AccountId, key: &ConnectorKey) -> Option<AuthorizationProjection>;
    open_authorizations(scope: &OperationScope) -> Vec<Operation>;
    operation(id: &OperationId) -> Option<Operation>;
    recoverable_operations() -> Vec<Operation>;
    installed_release(key: &ConnectorKey, digest: &Sha256Digest) -> Option<Release>;
    convergence(scope: &OperationScope, key: &ConnectorKey) -> Option<Convergence>;
    convergences(scope: &OperationScope) -> Vec<Convergence>;
    due_convergences(scope: &OperationScope, epoch: &BootEpoch, limit: u32) -> Vec<Convergence>;
    claim_operation(id: &OperationId, owner: &WorkerId, duration: Duration) -> Option<Operation>;
    renew_operation(lease: &OperationLease, duration: Duration) -> ();
    release_operation(lease: &OperationLease) -> ();
    claim_convergence(
        scope: &OperationScope,
        key: &ConnectorKey,
        epoch: &BootEpoch,
        owner: &WorkerId,
        duration: Duration
    ) -> Option<Convergence>;
    renew_convergence(lease: &ConvergenceLease, duration: Duration) -> ();
    release_convergence(lease: &ConvergenceLease) -> ();
    pending_events(limit: u32) -> Vec<OutboxEvent>;
    mark_published(sequence: i64) -> ();
    clean_up(request: &CleanupRequest) -> CleanupResult;
    setting(name: &str) -> Option<String>;
    set_setting(name: &str, value: &str) -> ();
} }

passes_on! { Tx for ContendedTx {
    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn advance_revision(&mut self) -> Revision {
        self.inner.advance_revision()
    }

    async fn commit(self: Box<Self>) -> Result<(), Error> {
        if !matches!(self.at, Meeting::Begin) {
            meet(&self.left)?;
        }
        self.inner.commit().await?;
        if matches!(self.at, Meeting::EachFirstCommit) {
            self.left.store(1, Ordering::SeqCst);
        }
        Ok(())
    }
} {} mut {
    connectors() -> Vec<Connector>;
    connector(key: &ConnectorKey) -> Option<Connector>;
    save_connector(connector: &Connector) -> ();
    delete_connector(key: &ConnectorKey) -> ();
    operation(id: &OperationId) -> Option<Operation>;
    operation_by_client_request(owner: Option<&AccountId>, id: &ClientRequestId) -> Option<Operation>;
    active_operation_in_lane(lane: Option<&ConnectorKey>) -> Option<Operation>;
    save_operation(operation: &Operation) -> ();
    open_authorizations(scope: &OperationScope) -> Vec<Operation>;
    authorization_projection(account: &AccountId, key: &ConnectorKey) -> Option<AuthorizationProjection>;
    authorization_projections(account: &AccountId) -> Vec<AuthorizationProjection>;
    save_authorization_projection(projection: &AuthorizationProjection) -> ();
    authorization_revision(account: &AccountId) -> Option<u64>;
    save_authorization_revision(account: &AccountId, revision: u64) -> ();
    save_source_revision(source_revision: &str) -> ();
    set_catalog_state(state: CatalogState) -> ();
    convergence(scope: &OperationScope, key: &ConnectorKey) -> Option<Convergence>;
    save_convergence(convergence: &Convergence) -> ();
    save_convergence_leased(convergence: &Convergence, lease: &ConvergenceLease) -> ();
    delete_convergence(scope: &OperationScope, key: &ConnectorKey) -> ();
    delete_connector_state(key: &ConnectorKey) -> ();
    enqueue_changed(event: &ChangedEvent) -> ();
} }

/// What is one transaction.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Install,
    Uninstall,
    Disconnect,
    Reconcile,
    Ensure,
    Refresh,
    Switch,
    Browse,
    Calibrate,
    Truth,
    Converge,
}

const DEEDS: [Deed; 11] = [
    Deed::Install,
    Deed::Uninstall,
    Deed::Disconnect,
    Deed::Reconcile,
    Deed::Ensure,
    Deed::Refresh,
    Deed::Switch,
    Deed::Browse,
    Deed::Calibrate,
    Deed::Truth,
    Deed::Converge,
];

impl Deed {
    /// A world in which the deed has something to do.
    async fn world(self) -> World {
        let world = installed().await;
        world.page("", "", &[release("seen", "1.0.0")]);
        world.installer.disk.lock().insert(key("mail"), PhysicalState::Absent);
        if matches!(self, Self::Converge) {
            world.app.set_runtime_enabled(world.command("off", "mail").await, false).await.expect("off");
        }
        world
    }

    async fn on(self, world: &World, app: &Application) -> Result<(), Error> {
        let (scope, mail) = (ada(), key("mail"));
        let command = world.command("one", "mail").await;
        match self {
            Self::Install => app.install(command).await.map(drop),
            Self::Uninstall => app.uninstall(command).await.map(drop),
            Self::Disconnect => app.disconnect_authorization(command).await.map(drop),
            Self::Reconcile => app.accept_reconcile(command).await.map(drop),
            Self::Ensure => app.ensure_reconcile(&scope, &mail).await.map(drop),
            Self::Refresh => app.refresh_catalog(command.mutation).await.map(drop),
            Self::Switch => app.set_runtime_enabled(command, false).await.map(drop),
            Self::Browse => {
                let query = CatalogPageQuery::parse("tools", 5, "", "").expect("a query");
                app.catalog_page(&scope, &query).await.map(drop)
            }
            Self::Calibrate => app.calibrate(&mail).await.map(drop),
            Self::Truth => {
                let projections = vec![held("cloud", AuthorizationState::Connected, Some("one"))];
                let truth = AuthorizationSnapshot { revision: 5, projections };
                app.apply_authorizations(&account(), &truth).await.map(drop)
            }
            Self::Converge => app.converge(&scope, &mail).await,
        }
    }
}

async fn what_meets_others_a_few_times_is_done_once() {
    for deed in DEEDS {
        // The first deed goes to the bound, at either end of its transaction.
        let meetings = match deed {
            Deed::Install => vec![(Meeting::Begin, ATTEMPTS - 1), (Meeting::Commit, ATTEMPTS - 1)],
            _ => vec![(Meeting::Commit, 2)],
        };
        for (at, meetings) in meetings {
            let world = deed.world().await;
            let (app, left) = Contended::over(&world, at);
            let (revision, events) = (world.revision().await, world.events().await.len());
            let operations = world.store.recoverable_operations().await.expect("operations").len();
            left.store(meetings, Ordering::SeqCst);
            deed.on(&world, &app).await.unwrap_or_else(|error| panic!("{deed:?} at {at:?}: {error}"));
            assert_eq!(left.load(Ordering::SeqCst), 0, "{deed:?} at {at:?}: every conflict was met");
            assert_eq!(world.revision().await, Revision(revision.0 + 1), "{deed:?} at {at:?}");
            assert!(world.events().await.len() <= events + 2, "{deed:?} at {at:?}");
            let made = world.store.recoverable_operations().await.expect("operations").len() - operations;
            let makes = matches!(
                deed,
                Deed::Install
                    | Deed::Uninstall
                    | Deed::Disconnect
                    | Deed::Reconcile
                    | Deed::Ensure
                    | Deed::Refresh
            );
            assert_eq!(made, usize::from(makes), "{deed:?} at {at:?}");
        }
    }
}

async fn what_always_meets_others_is_told_and_changes_nothing() {
    for deed in DEEDS {
        // An attempt to converge claims its row first; it has a test of its own.
        if matches!(deed, Deed::Converge) {
            continue;
        }
        let world = deed.world().await;
        let (app, left) = Contended::over(&world, Meeting::Commit);
        left.store(u32::MAX, Ordering::SeqCst);
        world.refused(deed.on(&world, &app), ErrorCode::SerializationConflict, true).await;
        assert_eq!(u32::MAX - left.load(Ordering::SeqCst), ATTEMPTS, "{deed:?} has its bound");
    }
}

async fn an_install_goes_through_though_every_transaction_meets_another_first() {
    let world = World::with_echo().await;
    world.offer(&[release("echo", "2.0.0")]).await;
    let accepted = world.accept_install("echo").await;
    let (app, _) = Contended::over(&world, Meeting::EachFirstCommit);
    app.execute(&accepted.operation.operation_id).await.expect("installed");
    assert_eq!(installed_version(&world.stored("echo").await), "2.0.0");
    assert_eq!(world.installer.installs.lock().len(), 2, "one for each release");
    assert_eq!((world.operation(&accepted).await.attempt, world.host.count()), (1, 2));
}

async fn an_install_that_cannot_write_at_all_is_left_for_the_next_attempt() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0")]).await;
    let accepted = world.accept_install("echo").await;
    let (app, left) = Contended::over(&world, Meeting::Begin);
    left.store(u32::MAX, Ordering::SeqCst);
    let before = world.operation(&accepted).await;
    let error = app.execute(&accepted.operation.operation_id).await.expect_err("a conflict");
    assert_eq!((error.code, error.retryable), (ErrorCode::SerializationConflict, true));
    let after = world.operation(&accepted).await;
    assert_eq!((after.state, after.stage, after.lease), (OperationState::Accepted, before.stage, None));
    assert!(world.installer.installs.lock().is_empty());
    left.store(0, Ordering::SeqCst);
    app.execute(&accepted.operation.operation_id).await.expect("installed");
    assert_eq!(installed_version(&world.stored("echo").await), "1.0.0");
}

async fn an_observation_that_cannot_be_noted_is_made_again() {
    let world = Deed::Converge.world().await;
    let (app, left) = Contended::over(&world, Meeting::Commit);
    let before = world.row("mail").await;
    left.store(u32::MAX, Ordering::SeqCst);
    let error = app.converge(&ada(), &key("mail")).await.expect_err("a conflict");
    assert_eq!((error.code, error.retryable), (ErrorCode::SerializationConflict, true));
    let after = world.row("mail").await;
    assert_eq!((&after.desired, &after.observed, after.attempt), (&before.desired, &before.observed, 0));
    left.store(0, Ordering::SeqCst);
    world.clock.advance(Duration::from_secs(60));
    app.converge(&ada(), &key("mail")).await.expect("converged");
    let row = world.row("mail").await;
    assert!(row.is_converged(app.boot_epoch()));
    assert_eq!(row.observed.expect("an observation").observed_at, world.clock.now());
}

async fn an_authorization_that_meets_others_begins_once() {
    let world = installed().await;
    world.offer(&[local("mail", "1.0.0"), remote("cloud", "1.0.0")]).await;
    let (app, left) = Contended::over(&world, Meeting::Commit);
    left.store(ATTEMPTS - 1, Ordering::SeqCst);
    let begin = world.begin("one", "mail").await;
    app.begin_authorization(begin).await.expect("an attempt");
    assert_eq!(world.authorization.begun.lock().len(), 1);
    assert_eq!(world.open(&ada()).await.len(), 1);
}

on_every_store! {
    what_meets_others_a_few_times_is_done_once,
    what_always_meets_others_is_told_and_changes_nothing,
    an_install_goes_through_though_every_transaction_meets_another_first,
    an_install_that_cannot_write_at_all_is_left_for_the_next_attempt,
    an_observation_that_cannot_be_noted_is_made_again,
    an_authorization_that_meets_others_begins_once,
}
