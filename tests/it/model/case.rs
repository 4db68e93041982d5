//! One case: its steps, what each must come to, and the healing at its end.

use std::{sync::Arc, time::Duration};

use portcullis::{
    domain::{
        authorization::{AuthorizationState, Resolution},
        convergence::Convergence,
        error::{Error, ErrorCode},
        id::OperationId,
        installation::Installation,
        operation::{Operation, OperationKind, OperationScope},
    },
    ports::Clock as _,
};

use super::{
    device::{Device, LINK, SECRET, Sent, key_of, scope},
    expect::{self, Answer, Ledger},
    seen::{Seen, completed, failed, keys, news},
    step::{Act, Offer, Says, Step, Verb},
    tally::Tally,
};

pub(super) struct Case {
    pub(super) device: Device,
    pub(super) ledger: Ledger,
    pub(super) seen: Seen,
    cursor: i64,
    tally: Arc<Tally>,
}

pub(crate) async fn run(url: String, two_nodes: bool, steps: &[Step], tally: &Arc<Tally>) {
    let device = Device::new(url, two_nodes).await;
    let offer = Offer { version: Some(1), other_kind: false, foreign: false };
    device.offer(&[offer; 3], false);
    let seen = Seen::read(&device).await;
    let mut case = Case { device, ledger: Ledger::default(), seen, cursor: 0, tally: tally.clone() };
    case.browse_all().await;
    for (index, step) in steps.iter().enumerate() {
        let done = tokio::time::timeout(Duration::from_secs(40), case.step(step)).await;
        assert!(done.is_ok(), "step {index} hangs: {step:?}");
    }
    case.heal().await;
}

impl Case {
    async fn browse_all(&mut self) {
        let outcome = self.device.act(0, &Act::Browse { mask: 7 }, None, &[]).await;
        outcome.expect("alive").expect("browsed");
        self.look().await;
    }

    /// Reads everything, and holds it against what was there before.
    pub(super) async fn look(&mut self) -> Seen {
        let seen = Seen::read(&self.device).await;
        let events = news(&*self.device.stores[0], &mut self.cursor).await;
        seen.check(&self.device).await;
        seen.follows(&self.seen, &events);
        self.ledger.look(&seen);
        self.tally.ends(&self.seen, &seen);
        std::mem::replace(&mut self.seen, seen)
    }

    async fn step(&mut self, step: &Step) {
        let who = step.who;
        for worker in [0, 1] {
            let restarts = worker == who && matches!(step.act, Act::Restart);
            if restarts || self.device.workers[worker].store.is_dead() {
                self.device.restart(worker);
            }
        }
        let sent = self.prepare(&step.act).await;
        let active = self.seen.active();
        let commits = self.commits(&active);
        let applied = self.applied(&step.act).await;
        if let Some(mishap) = step.mishap {
            self.device.arm(who, mishap, sent.as_ref());
        }
        let outcomes = match step.meanwhile {
            None => vec![self.device.act(who, &step.act, sent.as_ref(), &active).await],
            Some(meanwhile) => {
                let beside_sent = self.prepare(&meanwhile.act).await;
                let beside = async {
                    if meanwhile.expire {
                        self.device.clock.advance(Duration::from_secs(31));
                    }
                    self.device.act(1 - who, &meanwhile.act, beside_sent.as_ref(), &active).await
                };
                let act = self.device.act(who, &step.act, sent.as_ref(), &active);
                let (one, other) =
                    self.device.interleave(who, act, meanwhile.after, beside, meanwhile.dies).await;
                self.device.sent.lock().extend(beside_sent);
                vec![one, other]
            }
        };
        self.device.sent.lock().extend(sent.clone());
        self.tally.step(step, outcomes[0].as_ref());
        for error in outcomes.iter().flatten().filter_map(|outcome| outcome.as_ref().err()) {
            let text = format!("{error} {error:?}");
            assert!(!text.contains(SECRET) && !text.contains(LINK), "a secret in an error: {text}");
        }
        self.device.heal();
        let before = self.look().await;
        for act in std::iter::once(step.act).chain(step.meanwhile.map(|meanwhile| meanwhile.act)) {
            if let Act::CleanUp { hours } = act {
                let cutoff = self.device.clock.now().0 - i64::try_from(hours * 3_600_000).expect("hours");
                self.ledger.forget(&before, &self.seen, cutoff, step.meanwhile.is_some());
            }
        }
        self.ledger.check(&self.seen);
        self.installed_properly(&before, &commits);
        if step.meanwhile.is_none() {
            self.expired_alike(&before);
        }
        if step.mishap.is_none() && step.meanwhile.is_none() {
            let [Some(outcome)] = outcomes.as_slice() else { panic!("the worker died of nothing") };
            self.expect(who, &step.act, sent.as_ref(), &before, &active, outcome, applied).await;
        }
    }

    async fn prepare(&self, act: &Act) -> Option<Sent> {
        match act {
            Act::Command(command) => Some(self.device.prepare(command).await),
            _ => None,
        }
    }

    /// How often the release of each operation was committed so far.
    fn commits(&self, active: &[Operation]) -> Vec<(OperationId, usize)> {
        let count = |operation: &Operation| {
            operation.target.as_ref().map_or(0, |target| self.device.commits(&target.identity.release_digest))
        };
        active.iter().map(|operation| (operation.operation_id.clone(), count(operation))).collect()
    }

    /// The revision of the account's truth that was applied last.
    async fn applied(&self, act: &Act) -> Option<u64> {
        let Act::Truth { by, .. } = act else { return None };
        let account = scope(*by).account_id?;
        let mut tx = self.device.stores[0].begin().await.expect("a transaction");
        tx.authorization_revision(&account).await.expect("a reading")
    }

    /// What became installed was committed in the attempt that says so, and seen to
    /// answer in a boot that lives.
    fn installed_properly(&self, before: &Seen, commits: &[(OperationId, usize)]) {
        for operation in self.seen.operations.values() {
            let id = &operation.operation_id;
            let new = !before.operations.get(id).is_some_and(completed);
            if operation.kind != OperationKind::Install || !completed(operation) || !new {
                continue;
            }
            let target = operation.target.as_ref().expect("a target");
            let digest = &target.identity.release_digest;
            let earlier = commits.iter().find(|(known, _)| known == id).map_or(0, |(_, count)| *count);
            assert!(self.device.commits(digest) > earlier, "{id} completed without a commit");
            let answered = self.seen.convergences.values().any(|row| {
                row.desired.scope == operation.scope
                    && row.observed.as_ref().is_some_and(|observed| {
                        observed.release_digest == *digest
                            && self.device.epochs().contains(&observed.boot_epoch)
                    })
            });
            assert!(answered, "{id} completed without an answer of its runtime");
        }
    }

    /// A route that stopped for an expired authorization says so in its account too.
    fn expired_alike(&self, before: &Seen) {
        let expired = |row: &Convergence| row.desired.authorization_state == AuthorizationState::Expired;
        for (place, row) in self.seen.convergences.iter().filter(|(_, row)| expired(row)) {
            let (_, account, key) = place;
            if before.convergences.get(place).is_some_and(expired) {
                continue;
            }
            if let Some(held) =
                account.clone().and_then(|account| self.seen.projections.get(&(account, key.clone())))
            {
                assert_eq!(held.state, AuthorizationState::Expired, "{row:?}");
            }
        }
    }

    /// What must come of an act where nothing goes wrong.
    #[expect(clippy::too_many_arguments, reason = "what an act was, and everything around it")]
    async fn expect(
        &self,
        who: usize,
        act: &Act,
        sent: Option<&Sent>,
        before: &Seen,
        active: &[Operation],
        outcome: &Result<Option<OperationId>, Error>,
        applied: Option<u64>,
    ) {
        let now = &self.seen;
        let code = outcome.as_ref().err().map(|error| error.code);
        let same = || assert_eq!(now.public(), before.public(), "{act:?} changed something: {outcome:?}");
        match *act {
            Act::Command(_) => self.expect_answer(who, sent.expect("a command"), before, outcome),
            Act::Catalog { .. } | Act::Pass { .. } | Act::Restart => same(),
            Act::Execute { pick } => {
                if let Some(operation) = active.get(pick % active.len().max(1)) {
                    self.expect_execution(who, operation, before, outcome);
                }
            }
            Act::Cancel { by, key } => {
                let connector = now.connector(key);
                assert_eq!(code, connector.is_none().then_some(ErrorCode::NotFound), "{outcome:?}");
                if let Some(connector) = connector {
                    let account = scope(by).account_id;
                    assert_eq!(expect::open_attempts(now, account.as_ref(), &connector.key), 0);
                    assert_ne!(connector.authorization.state, AuthorizationState::Pending);
                }
            }
            Act::Settle { by, says: Says::Connected, resolve: true } => {
                self.expect_settled(by, before, outcome);
            }
            Act::Truth { by, connected, .. } => {
                let Some(account) = scope(by).account_id else { return same() };
                let told = self.device.truths.told.lock().get(&account).map_or(0, |truth| truth.revision);
                let place = (account, key_of(2));
                let (earlier, later) = (before.projections.get(&place), now.projections.get(&place));
                if applied.is_some_and(|applied| told <= applied) {
                    // The runtime may have refused it meanwhile, which is the account's news.
                    assert_eq!(earlier, later, "a truth that is not newer was applied");
                } else if connected {
                    let held = later.expect("an authorization");
                    assert_eq!(
                        (held.state, held.server_synchronized, held.server_revision),
                        (AuthorizationState::Connected, true, told)
                    );
                } else {
                    let held = later.map_or(AuthorizationState::Disconnected, |held| held.state);
                    assert_eq!(held, AuthorizationState::Disconnected);
                }
            }
            Act::Calibrate { key, drift } => {
                let Some(connector) = before.connector(key) else {
                    assert_eq!(code, Some(ErrorCode::NotFound));
                    return same();
                };
                let found = &now.connector(key).expect("a connector").installation;
                let at_rest = matches!(connector.installation, Installation::Installed { .. })
                    || connector.installation.requires_physical_repair();
                if !at_rest || drift == 2 {
                    return same();
                }
                assert_eq!(found.installed(), connector.installation.installed(), "the evidence is gone");
                assert_eq!(found.requires_physical_repair(), drift < 2, "{found:?}");
            }
            Act::Converge { by } => {
                let due = self.device.workers[who]
                    .app
                    .due_convergences(&scope(by), 100)
                    .await
                    .expect("what is due");
                for key in due {
                    let at = (if self.device.two_nodes { who } else { 0 }, scope(by).account_id, key.clone());
                    let digest = &now.convergences[&at].desired.release_digest;
                    let runs = now
                        .snapshot
                        .connectors
                        .iter()
                        .any(|one| one.key == key && one.installation.targets(digest));
                    assert!(!runs, "{key} is still due: {outcome:?}");
                }
            }
            Act::Recover => {
                let scheduled = self.device.workers[who].fakes.scheduler.scheduled.lock().clone();
                for operation in active.iter().filter(|operation| !self.is_held(operation)) {
                    let id = &operation.operation_id;
                    if operation.kind == OperationKind::StartAuthorization {
                        assert!(failed(&now.operations[id]), "{}", now.describe(id));
                    } else {
                        assert!(scheduled.contains(id), "{id} was not taken up");
                    }
                }
            }
            Act::CleanUp { hours } => {
                let cutoff = self.device.clock.now().0 - i64::try_from(hours * 3_600_000).expect("hours");
                for (id, operation) in &before.operations {
                    let goes = !operation.is_active() && operation.updated_at.0 <= cutoff;
                    assert_eq!(now.operations.contains_key(id), !goes, "{id} at a cleanup");
                }
            }
            Act::Browse { .. } | Act::Settle { .. } | Act::Ensure { .. } | Act::Bootstrap { .. } => {}
        }
    }

    /// Whether another worker, dead or alive, keeps this one from an operation.
    fn is_held(&self, operation: &Operation) -> bool {
        operation.lease.as_ref().is_some_and(|lease| lease.is_live(self.device.clock.now()))
    }

    fn expect_answer(
        &self,
        who: usize,
        sent: &Sent,
        before: &Seen,
        outcome: &Result<Option<OperationId>, Error>,
    ) {
        let now = &self.seen;
        // The ledger has learned of this command already; the answer must not know it.
        let answer = expect::answer(before, &self.ledger.before(before), sent);
        let code = outcome.as_ref().err().map(|error| error.code);
        let same = || assert_eq!(now.public(), before.public(), "{sent:?} changed something: {outcome:?}");
        match answer {
            Answer::Refused(expected) => {
                assert_eq!(code, Some(expected), "{sent:?}: {outcome:?}");
                // A replacement ends the other attempt first, whatever comes then.
                if !matches!(sent.verb, Verb::Begin { replace: true, .. }) {
                    same();
                }
            }
            Answer::Replay(id) if matches!(sent.verb, Verb::Begin { .. }) => {
                self.expect_next_step(&before.operations[&id], sent, code, same);
            }
            Answer::Replay(id) => {
                assert_eq!(outcome.as_ref().ok(), Some(&Some(id)), "{sent:?}: {outcome:?}");
                same();
            }
            Answer::Accepted => {
                assert_eq!(code, None, "{sent:?}: {outcome:?}");
                self.expect_accepted(who, sent, before);
            }
        }
    }

    fn expect_next_step(&self, operation: &Operation, sent: &Sent, code: Option<ErrorCode>, same: impl Fn()) {
        let Verb::Begin { after_step, .. } = sent.verb else { return };
        let session = operation.execution.authorization_session.as_ref();
        if failed(operation) {
            assert_eq!(code, Some(ErrorCode::AuthorizationFailed));
            same();
        } else if operation.is_active() && self.is_held(operation) {
            assert_eq!(code, Some(ErrorCode::OperationInProgress));
            same();
        } else if session.is_some_and(|session| session.is_resolved()) {
            assert_eq!(code, None);
            same();
        } else if session.is_some_and(|session| after_step > session.step_revision) {
            assert_eq!(code, Some(ErrorCode::InvalidRequest));
            same();
        } else if session.is_some_and(|session| session.is_canceling()) {
            assert_eq!(code, Some(ErrorCode::AuthorizationFailed));
            same();
        }
    }

    fn expect_accepted(&self, who: usize, sent: &Sent, before: &Seen) {
        let now = &self.seen;
        let account = scope(sent.by).account_id;
        let (earlier, later) = (before.connector(sent.key), now.connector(sent.key));
        if let Verb::Enable(on) = sent.verb {
            let node = if self.device.two_nodes { who } else { 0 };
            let row = &now.convergences[&(node, account, key_of(sent.key))];
            assert_eq!(row.desired.activation_enabled, Some(on));
            return;
        }
        let known = self.ledger.known(sent).expect("it is known by its id");
        let operation = &now.operations[&known.operation_id];
        assert!(!before.operations.contains_key(&known.operation_id), "an old operation for a new command");
        assert_eq!(operation.scope, OperationScope { account_id: account.clone() });
        for connector in keys().filter(|key| *key != sent.key || sent.verb == Verb::Refresh) {
            assert_eq!(before.connector(connector), now.connector(connector), "another connector changed");
        }
        if let Verb::Begin { connects, .. } = sent.verb {
            let connector = later.expect("a connector");
            assert!(completed(operation), "{}", now.describe(&known.operation_id));
            let session = operation.execution.authorization_session.as_ref().expect("a receipt");
            let local = !expect::is_remote(connector);
            assert_eq!(session.resolution, (connects && local).then_some(Resolution::ProviderConnected));
            if let Some(account) = account.filter(|_| local) {
                let held = now.projections.get(&(account, key_of(sent.key))).expect("an authorization");
                let state =
                    if connects { AuthorizationState::Connected } else { AuthorizationState::Pending };
                assert_eq!(held.state, state);
            }
            return;
        }
        assert!(operation.is_active());
        assert!(self.device.workers[who].fakes.scheduler.scheduled.lock().contains(&known.operation_id));
        if let (Some(earlier), Some(later)) = (earlier, later) {
            let name = expect::accepted_installation(sent.verb, &earlier.installation);
            assert_eq!(later.installation.name(), name, "{sent:?}");
        }
    }

    fn expect_execution(
        &self,
        who: usize,
        operation: &Operation,
        before: &Seen,
        outcome: &Result<Option<OperationId>, Error>,
    ) {
        let (now, id) = (&self.seen, &operation.operation_id);
        // The clock passed while it ran, and so is not asked.
        if operation.lease.is_some() {
            return;
        }
        let offers = self.device.offers.lock().clone();
        let Some(succeeds) = expect::completes(operation, &offers) else { return };
        let Some(ended) = now.operations.get(id) else {
            // A private one is read while it is active.
            return assert_eq!(operation.kind, OperationKind::ReconcileRuntime);
        };
        assert_eq!(
            (completed(ended), failed(ended)),
            (succeeds, !succeeds),
            "{outcome:?} {}",
            now.describe(id)
        );
        let connector = operation
            .connector_key
            .as_ref()
            .and_then(|key| now.snapshot.connectors.iter().find(|connector| connector.key == *key));
        match operation.kind {
            OperationKind::RefreshCatalog if succeeds => {
                let expected = expect::refreshed(before, &offers);
                let stored = &now.snapshot.connectors;
                assert!(stored.iter().map(|connector| &connector.key).eq(expected.keys()), "{expected:?}");
                for connector in stored {
                    let release = expected[&connector.key].as_ref();
                    assert_eq!(connector.compatibility.is_removed_from_catalog(), release.is_none());
                    assert!(release.is_none_or(|release| connector.release == *release));
                }
            }
            OperationKind::RefreshCatalog => {
                assert_eq!(now.snapshot.connectors, before.snapshot.connectors, "half a catalog was taken");
            }
            OperationKind::Install => {
                let target = &operation.target.as_ref().expect("a target").identity;
                let installation = &connector.expect("a connector").installation;
                assert!(matches!(installation, Installation::Installed { .. }), "{installation:?}");
                assert_eq!(installation.installed().map(|one| &one.identity), Some(target));
                let node = if self.device.two_nodes { who } else { 0 };
                let key = operation.connector_key.clone().expect("a key");
                let row = &now.convergences[&(node, operation.scope.account_id.clone(), key)];
                assert!(row.is_converged(self.device.workers[who].app.boot_epoch()), "{row:?}");
            }
            OperationKind::Uninstall => {
                assert_eq!(connector.map(|one| &one.installation), Some(&Installation::NotInstalled));
            }
            OperationKind::DisconnectAuthorization => {
                let connector = connector.expect("a connector");
                let account = operation.scope.account_id.as_ref();
                assert_eq!(expect::open_attempts(now, account, &connector.key), 0);
                if !expect::is_remote(connector) {
                    let place = account.map(|account| (account.clone(), connector.key.clone()));
                    let held = place.and_then(|place| now.projections.get(&place));
                    assert!(held.is_none_or(
                        |held| held.state == AuthorizationState::Disconnected || held.server_synchronized
                    ));
                }
            }
            OperationKind::ReconcileRuntime | OperationKind::StartAuthorization => {}
        }
    }

    /// The one attempt of an account here, connected as the provider said.
    fn expect_settled(&self, by: usize, before: &Seen, outcome: &Result<Option<OperationId>, Error>) {
        let account = scope(by).account_id;
        let Some(connector) = before.connector(1) else { return };
        let open: Vec<&Operation> = before
            .operations
            .values()
            .filter(|one| one.open_session().is_some() && one.owner_account_id == account)
            .collect();
        let pending = connector.authorization.state == AuthorizationState::Pending;
        let [one] = open.as_slice() else { return };
        let session = one.open_session().expect("an open attempt");
        let here = one.connector_key.as_ref() == Some(&connector.key);
        if !here || !pending || session.is_canceling() || session.expires_at <= self.device.clock.now() {
            return;
        }
        let later = &self.seen.operations[&one.operation_id];
        let resolution =
            later.execution.authorization_session.as_ref().and_then(|session| session.resolution);
        assert_eq!(resolution, Some(Resolution::ProviderConnected), "{outcome:?}");
        if let Some(account) = account {
            let held =
                self.seen.projections.get(&(account, connector.key.clone())).expect("an authorization");
            assert!(held.state == AuthorizationState::Connected || held.server_synchronized, "{held:?}");
        }
    }
}
