//! What is tested: two workers on one database, each with ports of its own, and what
//! each step does with them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use portcullis::{
    domain::{
        authorization::{
            AuthorizationObservation, AuthorizationProjection, AuthorizationSnapshot, AuthorizationState,
        },
        catalog::CatalogPageQuery,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        id::{AccountId, BootEpoch, ConnectorKey, NodeId, OperationId},
        operation::{Operation, OperationScope},
        release::Release,
        revision::Revision,
        timestamp::Timestamp,
    },
    market::{Application, ConnectorMutation, Mutation, Selection, authorize::BeginAuthorization},
    ports::{CleanupRequest, Clock as _, PhysicalState, ReplacementPolicy, Store},
    store::{SqlStore, StoreOptions},
};
use secrecy::SecretSlice;

use super::{
    boot::{Truths, boot, release},
    mortal::{Blow, Mortal},
    step::{Act, Command, Id, KEYS, Mishap, Offer, Port, Rev, Says, Verb, WORKERS},
};
use crate::market::{
    fakes::{FakeClock, Fakes, Fault, Shared},
    provider::{connected, connection},
    world::{ada, bob, key, page, request_id},
};

/// What no row, event or error may hold.
pub(crate) const SECRET: &str = "hunter2-top-secret";
/// The start of every link that the provider hands out.
pub(crate) const LINK: &str = "https://provider.example";

/// The accounts of the steps.
pub(crate) fn scope(by: usize) -> OperationScope {
    match by {
        0 => ada(),
        1 => bob(),
        _ => OperationScope::default(),
    }
}

/// One daemon.
pub(crate) struct Worker {
    pub(crate) app: Arc<Application>,
    pub(crate) store: Mortal,
    pub(crate) fakes: Fakes,
}

/// A command as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) verb: Verb,
    pub(crate) key: usize,
    pub(crate) by: usize,
    pub(crate) id: String,
    pub(crate) mutation: ConnectorMutation,
}

pub(crate) struct Device {
    pub(crate) stores: [Arc<dyn Store>; WORKERS],
    pub(crate) workers: [Worker; WORKERS],
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) truths: Arc<Truths>,
    /// What the catalog offers now.
    pub(crate) offers: Shared<Vec<Release>>,
    pub(crate) sent: Shared<Vec<Sent>>,
    pub(crate) two_nodes: bool,
    ids: AtomicU64,
    boots: u32,
    /// What the installers of earlier boots committed.
    committed_before: Vec<Sha256Digest>,
}

/// What an act came to; none when its worker died in it.
pub(crate) type Outcome = Option<Result<Option<OperationId>, Error>>;

impl Device {
    pub(crate) async fn new(url: String, two_nodes: bool) -> Self {
        let clock = Arc::<FakeClock>::default();
        let options = StoreOptions {
            url,
            node_id: NodeId::parse("node-0").expect("a node id"),
            lease_clock: Some(clock.clone()),
        };
        let database = SqlStore::open(options).await.expect("a database");
        let second = if two_nodes { "node-1" } else { "node-0" };
        let beside = database.for_node(NodeId::parse(second).expect("a node id"));
        let stores: [Arc<dyn Store>; WORKERS] = [Arc::new(database), Arc::new(beside)];
        let truths = Arc::<Truths>::default();
        let workers = [0, 1].map(|who| boot(who, 0, &stores[who], &clock, &truths));
        Self {
            stores,
            workers,
            clock,
            truths,
            offers: Shared::default(),
            sent: Shared::default(),
            two_nodes,
            ids: AtomicU64::new(0),
            boots: 0,
            committed_before: Vec::new(),
        }
    }

    /// The worker anew: another process, which knows nothing of the one before.
    pub(crate) fn restart(&mut self, who: usize) {
        self.workers[who].store.kill();
        self.boots += 1;
        self.committed_before.extend(self.workers[who].fakes.installer.commits.lock().iter().copied());
        self.workers[who] = boot(who, self.boots, &self.stores[who], &self.clock, &self.truths);
        self.publish();
    }

    fn publish(&self) {
        for worker in &self.workers {
            let offers = self.offers.lock().clone();
            worker.fakes.catalog.pages.lock().insert(String::new(), page("", &offers));
            *worker.fakes.catalog.contents.lock() = offers;
        }
    }

    /// Lists exactly these.
    pub(crate) fn offer(&self, offers: &[Offer; 3], broken: bool) {
        let mut releases: Vec<Release> =
            (0..KEYS.len()).filter_map(|key| release(key, &offers[key])).collect();
        if broken && let Some(release) = releases.first_mut() {
            release.manifest.icon_url = "ftp://example.org/icon".into();
        }
        *self.offers.lock() = releases;
        self.publish();
    }

    pub(crate) fn arm(&self, who: usize, mishap: Mishap, sent: Option<&Sent>) {
        let fakes = &self.workers[who].fakes;
        let (port, permanent) = match mishap {
            Mishap::Blow(writes, blow) => return self.workers[who].store.arm(writes, blow),
            Mishap::Fault(port, permanent) => (port, permanent),
        };
        let code = if permanent { ErrorCode::InstallFailed } else { ErrorCode::Unavailable };
        let fault = Fault::of(code);
        match port {
            Port::Catalog => fakes.catalog.faults.push(fault),
            Port::Install => fakes.installer.install_faults.push(fault),
            Port::Commit => fakes.installer.commit_faults.push(fault),
            Port::Uninstall => fakes.installer.uninstall_faults.push(fault),
            Port::Host => fakes.host.faults.push(fault),
            Port::HostAuthorization => fakes.host.faults.push(Fault::of(ErrorCode::AuthorizationFailed)),
            Port::HostGeneration => fakes.host.faults.push(Fault::of(ErrorCode::RevisionConflict)),
            Port::Deactivate => fakes.host.deactivate_faults.push(fault),
            Port::Begin => {
                let told = matches!(sent.map(|sent| sent.verb), Some(Verb::Begin { with_secret: true, .. }));
                // A provider may repeat what it was handed.
                let said = if told { SECRET } else { "" };
                let fault = Fault(code, !permanent, format!("the key {said} is no good"));
                fakes.authorization.begin_faults.push(fault);
            }
            Port::Cancel => fakes.authorization.cancel_faults.push(fault),
            Port::Disconnect => fakes.authorization.disconnect_faults.push(fault),
            Port::Observe => fakes.authorization.observe_faults.push(fault),
            Port::Accounts => self.truths.faults.push(fault),
            Port::Scheduler => fakes.scheduler.faults.push(fault),
            Port::Ids => fakes.ids.faults.push(fault),
        }
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal(&self) {
        for worker in &self.workers {
            worker.store.disarm();
            let fakes = &worker.fakes;
            for script in [
                &fakes.catalog.faults,
                &fakes.installer.install_faults,
                &fakes.installer.commit_faults,
                &fakes.installer.uninstall_faults,
                &fakes.host.faults,
                &fakes.host.deactivate_faults,
                &fakes.authorization.begin_faults,
                &fakes.authorization.cancel_faults,
                &fakes.authorization.disconnect_faults,
                &fakes.authorization.observe_faults,
                &fakes.scheduler.faults,
                &fakes.ids.faults,
                &self.truths.faults,
            ] {
                while script.next().is_err() {}
            }
            fakes.authorization.progress.lock().clear();
            *fakes.authorization.says.lock() = None;
        }
    }

    /// The command as it will be sent now.
    pub(crate) async fn prepare(&self, command: &Command) -> Sent {
        let snapshot = self.stores[0].snapshot().await.expect("a snapshot");
        let earlier = |index: usize| {
            let sent = self.sent.lock();
            sent.get(index % sent.len().max(1)).cloned()
        };
        let id = match command.id {
            Id::Again(index) => match earlier(index) {
                Some(mut sent) => {
                    // The cursor of an attempt is not part of what identifies it.
                    if let (Verb::Begin { after_step, .. }, Verb::Begin { after_step: next, .. }) =
                        (&mut sent.verb, command.verb)
                    {
                        *after_step = next;
                    }
                    return sent;
                }
                None => self.fresh_id(),
            },
            Id::Stolen(index) => earlier(index).map_or_else(|| self.fresh_id(), |sent| sent.id),
            Id::Fresh => self.fresh_id(),
        };
        let connector_key = key(KEYS[command.key]);
        let stored = snapshot.connectors.iter().find(|connector| connector.key == connector_key);
        let older = |revision: Revision| Revision(revision.0.saturating_sub(1));
        let (expected_revision, expected_connector_revision) = match command.rev {
            Rev::Global => (snapshot.revision, None),
            Rev::Stale => (older(snapshot.revision), None),
            Rev::Connector => (Revision(0), Some(stored.map_or(Revision(0), |stored| stored.revision))),
        };
        let mutation =
            Mutation { client_request_id: request_id(&id), expected_revision, scope: scope(command.by) };
        let mutation = ConnectorMutation { mutation, connector_key, expected_connector_revision };
        Sent { verb: command.verb, key: command.key, by: command.by, id, mutation }
    }

    fn fresh_id(&self) -> String {
        format!("request-{}", self.ids.fetch_add(1, Ordering::SeqCst))
    }

    /// Does it, unless the worker dies.
    pub(crate) async fn act(
        &self,
        who: usize,
        act: &Act,
        sent: Option<&Sent>,
        active: &[Operation],
    ) -> Outcome {
        let store = &self.workers[who].store;
        tokio::select! {
            biased;
            () = store.death() => None,
            outcome = self.attempt(who, act, sent, active) => Some(outcome),
        }
    }

    async fn attempt(
        &self,
        who: usize,
        act: &Act,
        sent: Option<&Sent>,
        active: &[Operation],
    ) -> Result<Option<OperationId>, Error> {
        let Worker { app, store, fakes } = &self.workers[who];
        match *act {
            Act::Command(_) => return self.send(who, sent.expect("a prepared command")).await,
            Act::Catalog { ref offers, broken } => self.offer(offers, broken),
            Act::Browse { mask } => {
                let offers = self.offers.lock().clone();
                let seen: Vec<Release> = offers
                    .into_iter()
                    .filter(|release| {
                        KEYS.iter()
                            .position(|key| release.connector_key.as_str() == *key)
                            .is_some_and(|index| mask & (1 << index) != 0)
                    })
                    .collect();
                fakes.catalog.pages.lock().insert(String::new(), page("", &seen));
                let query = CatalogPageQuery::parse("tools", 10, "", "").expect("a query");
                app.catalog_page(&ada(), &query).await?;
            }
            Act::Cancel { by, key: index } => app.cancel_authorization(&scope(by), &key(KEYS[index])).await?,
            Act::Settle { by, says, resolve } => {
                *fakes.authorization.says.lock() = Some(match says {
                    Says::Pending => AuthorizationObservation::Pending,
                    Says::Connected => {
                        AuthorizationObservation::Connected { connection_id: connection("observed") }
                    }
                    Says::Failed => AuthorizationObservation::Failed { failure_code: Some("denied".into()) },
                    Says::Superseded => {
                        AuthorizationObservation::Failed { failure_code: Some("attempt_superseded".into()) }
                    }
                });
                let round = app.reconcile_authorizations(&scope(by)).await?;
                for intent in round.intents.iter().filter(|_| resolve) {
                    app.reconcile_runtime(&scope(by), &intent.connector_key).await?;
                    app.resolve_authorization(intent).await?;
                }
                if let Some((_, failure)) = round.failures.into_iter().next() {
                    return Err(failure);
                }
            }
            Act::Truth { by, connected, newer, follow } => {
                let Some(account) = scope(by).account_id else { return Ok(None) };
                let told = self.tell(&account, connected, newer);
                app.apply_authorizations(&account, &told).await?;
                if follow {
                    app.set_authorization_ready(&account, true);
                    let failed = app.reconcile_installed(&scope(by), Selection::RemoteAuthorized).await?;
                    if let Some((_, failure)) = failed.into_iter().next() {
                        return Err(failure);
                    }
                }
            }
            Act::Calibrate { key: index, drift } => {
                let key = key(KEYS[index]);
                let state = match drift {
                    0 => PhysicalState::Absent,
                    1 => PhysicalState::Invalid,
                    2 => PhysicalState::Indeterminate,
                    _ => PhysicalState::Present,
                };
                fakes.installer.disk.lock().insert(key.clone(), state);
                app.calibrate(&key).await?;
            }
            Act::Execute { pick } => {
                if let Some(operation) = active.get(pick % active.len().max(1)) {
                    app.execute(&operation.operation_id).await?;
                }
            }
            Act::Converge { by } => self.converge(app, &scope(by)).await?,
            Act::Recover => app.recover().await?,
            Act::Ensure { by, key: index } => {
                let (operation, _) = app.ensure_reconcile(&scope(by), &key(KEYS[index])).await?;
                app.execute(&operation.operation_id).await?;
            }
            Act::Bootstrap { by } => {
                app.fence_installed(&scope(by)).await?;
                app.recover().await?;
                if let Some((_, failure)) =
                    app.reconcile_installed(&scope(by), Selection::All).await?.into_iter().next()
                {
                    return Err(failure);
                }
            }
            Act::CleanUp { hours } => {
                let cutoff = Timestamp(self.clock.now().0 - i64::try_from(hours * 3_600_000).expect("hours"));
                let request =
                    CleanupRequest { operations_ended_by: cutoff, events_published_by: cutoff, batch: 500 };
                store.clean_up(&request).await?;
            }
            Act::Pass { seconds } => self.clock.advance(Duration::from_secs(seconds)),
            Act::Restart => {}
        }
        Ok(None)
    }

    async fn converge(&self, app: &Application, scope: &OperationScope) -> Result<(), Error> {
        let mut first = Ok(());
        // A changed binding is planned anew, and so is due once more.
        for _ in 0..4 {
            for key in app.due_convergences(scope, 100).await? {
                if let Err(error) = app.converge(scope, &key).await {
                    first = first.and(Err(error));
                }
            }
        }
        first
    }

    /// Makes a truth of an account: the next one, or one from before.
    fn tell(&self, account: &AccountId, connected: bool, newer: bool) -> AuthorizationSnapshot {
        let mut told = self.truths.told.lock();
        let revision = told.get(account).map_or(0, |truth| truth.revision);
        let revision = if newer { revision + 1 } else { revision };
        let state = if connected { AuthorizationState::Connected } else { AuthorizationState::Disconnected };
        let mut projection =
            AuthorizationProjection::local(account.clone(), key("remote"), state, self.clock.now());
        projection.connection_id = connected.then(|| connection("elsewhere"));
        projection.connection_version = revision;
        // Sometimes it is not listed any more.
        let listed = connected || revision % 2 == 0;
        let projections = if listed { vec![projection] } else { Vec::new() };
        let truth = AuthorizationSnapshot { revision, projections };
        if newer {
            told.insert(account.clone(), truth.clone());
        }
        truth
    }

    async fn send(&self, who: usize, sent: &Sent) -> Result<Option<OperationId>, Error> {
        let Worker { app, fakes, .. } = &self.workers[who];
        let command = sent.mutation.clone();
        let accepted = match sent.verb {
            Verb::Refresh => app.refresh_catalog(command.mutation).await?,
            Verb::Install => app.install(command).await?,
            Verb::Uninstall => app.uninstall(command).await?,
            Verb::Disconnect => app.disconnect_authorization(command).await?,
            Verb::Enable(on) => {
                app.set_runtime_enabled(command, on).await?;
                return Ok(None);
            }
            Verb::Begin { replace, after_step, connects, with_secret } => {
                if connects {
                    fakes.authorization.progress.lock().push_back(connected(&format!("conn-{}", sent.id)));
                }
                let result = app
                    .begin_authorization(BeginAuthorization {
                        command,
                        replacement: if replace {
                            ReplacementPolicy::ReplaceActive
                        } else {
                            ReplacementPolicy::Keep
                        },
                        after_step,
                        secret: with_secret.then(|| SecretSlice::from(SECRET.as_bytes().to_vec())),
                    })
                    .await?;
                return Ok(Some(result.operation.operation_id));
            }
        };
        Ok(Some(accepted.operation.operation_id))
    }

    /// Does `act` while `meanwhile` happens after one of its writes.
    pub(crate) async fn interleave(
        &self,
        who: usize,
        act: impl Future<Output = Outcome>,
        after: u32,
        meanwhile: impl Future<Output = Outcome>,
        dies: bool,
    ) -> (Outcome, Outcome) {
        let store = &self.workers[who].store;
        store.arm(after, Blow::Hold);
        let done = tokio::sync::Notify::new();
        let act = async {
            let outcome = act.await;
            done.notify_one();
            outcome
        };
        let beside = async {
            let held = tokio::select! {
                () = store.holding() => true,
                () = done.notified() => false,
            };
            store.disarm();
            let mut meanwhile = std::pin::pin!(meanwhile);
            let early = tokio::select! {
                outcome = &mut meanwhile => Some(outcome),
                // It waits for the one that stands still.
                () = tokio::time::sleep(Duration::from_millis(200)), if held => None,
            };
            if held && dies {
                store.kill();
            } else if held {
                store.resume();
            }
            match early {
                Some(outcome) => outcome,
                None => meanwhile.await,
            }
        };
        tokio::join!(act, beside)
    }

    pub(crate) fn epochs(&self) -> Vec<BootEpoch> {
        self.workers.iter().map(|worker| worker.app.boot_epoch().clone()).collect()
    }

    /// How often an installer made this release the current one.
    pub(crate) fn commits(&self, digest: &Sha256Digest) -> usize {
        let count = |all: &[Sha256Digest]| all.iter().filter(|one| *one == digest).count();
        let here = |worker: &Worker| count(worker.fakes.installer.commits.lock().as_slice());
        count(&self.committed_before) + self.workers.iter().map(here).sum::<usize>()
    }
}

/// A connector key of the steps.
pub(crate) fn key_of(index: usize) -> ConnectorKey {
    key(KEYS[index])
}
