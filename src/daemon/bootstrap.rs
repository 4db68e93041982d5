//! Bootstrap and fence: when what is installed may run, and for whom (spec D.3, D.4).
//!
//! Invariant: nothing is published between the start of a bootstrap and its
//! commit, nor after a fence until a later bootstrap has committed. Whatever
//! fails in between leaves the gate closed.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{gate::ActivationGate, lifecycle::Lifecycle, status::TaskFailure, wakes::Wakes};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        id::ConnectorKey,
        operation::{Operation, OperationKind, OperationScope, OperationState, Stage},
    },
    market::Application,
    ports::{Clock, ImplementationHost},
    telemetry,
};

/// How long a fence may take.
pub const FENCE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a bootstrap may take.
pub const BOOTSTRAP_DEADLINE: Duration = Duration::from_secs(45);
/// How long a bootstrap waits for operations that an earlier boot left behind.
/// What is not done by then goes on after the gate has opened.
pub const RECOVERY_WAIT: Duration = Duration::from_secs(3);
const RECOVERY_POLL: Duration = Duration::from_millis(25);

/// Who is active, and until when.
#[derive(Clone, Debug)]
pub struct Active {
    /// For which account.
    pub scope: OperationScope,
    /// Cancelled when a fence or another bootstrap begins.
    pub until: CancellationToken,
}

/// Brings the routes of one scope up, and takes them down.
pub struct Bootstrap {
    application: Arc<Application>,
    gate: Arc<ActivationGate>,
    lifecycle: Lifecycle,
    wakes: Wakes,
    clock: Arc<dyn Clock>,
    /// Held by a bootstrap, a fence or a repair from its start to its end.
    lane: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    scope: OperationScope,
    /// Someone asked for a bootstrap, and nobody for a fence since.
    wanted: bool,
    /// Fences that were asked for and are not done: nothing may commit before them.
    fences: u32,
    bootstrapped: bool,
    until: CancellationToken,
    planning: BTreeSet<ConnectorKey>,
    failure: Option<TaskFailure>,
}

impl Bootstrap {
    /// Nobody is active yet; `scope` is who [`scope`](Self::scope) names until then.
    pub fn new(
        application: Arc<Application>,
        gate: Arc<ActivationGate>,
        lifecycle: Lifecycle,
        wakes: Wakes,
        clock: Arc<dyn Clock>,
        scope: OperationScope,
    ) -> Self {
        let state = State {
            scope,
            wanted: false,
            fences: 0,
            bootstrapped: false,
            until: CancellationToken::new(),
            planning: BTreeSet::new(),
            failure: None,
        };
        Self {
            application,
            gate,
            lifecycle,
            wakes,
            clock,
            lane: tokio::sync::Mutex::new(()),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scope that is or was last to be active.
    pub fn scope(&self) -> OperationScope {
        self.state().scope.clone()
    }

    /// Who is active; none before a bootstrap has committed and after a fence.
    pub fn active(&self) -> Option<Active> {
        let state = self.state();
        (state.bootstrapped && !self.gate.requires_recovery())
            .then(|| Active { scope: state.scope.clone(), until: state.until.clone() })
    }

    /// The scope of a bootstrap that was asked for and has not succeeded.
    pub fn owed(&self) -> Option<OperationScope> {
        let state = self.state();
        (state.wanted && !state.bootstrapped).then(|| state.scope.clone())
    }

    /// Why the last bootstrap failed; none once one has succeeded.
    pub fn failure(&self) -> Option<TaskFailure> {
        self.state().failure.clone()
    }

    /// The connectors whose start has to be planned before it is tried.
    pub fn planned_later(&self) -> BTreeSet<ConnectorKey> {
        self.state().planning.clone()
    }

    /// Notes that a start was planned, unless the scope has changed meanwhile.
    pub fn planned(&self, active: &Active, key: &ConnectorKey) {
        let mut state = self.state();
        if !active.until.is_cancelled() {
            state.planning.remove(key);
        }
    }

    /// Restores what is installed for `scope`. Cheap when that scope is active.
    /// Reads no catalog and starts no connector: that follows, each by itself.
    /// Goes on when the caller goes away.
    ///
    /// # Errors
    /// What kept it from being restored. Then nothing is published, and the
    /// daemon tries again by itself.
    pub async fn bootstrap(self: &Arc<Self>, scope: &OperationScope) -> Result<(), Error> {
        let (this, scope) = (Arc::clone(self), scope.clone());
        self.detached(async move { this.bootstrap_here(&scope).await }).await
    }

    /// Ends the authority of whoever is active, and hands the daemon to `scope`
    /// without restoring anything. What is installed stays installed. The next
    /// bootstrap is a full one, for the same scope too. Goes on when the caller
    /// goes away.
    ///
    /// # Errors
    /// When not every route was seen to be gone. Publication is off even then,
    /// and the fence can be repeated.
    pub async fn fence(self: &Arc<Self>, scope: &OperationScope) -> Result<(), Error> {
        let (this, scope) = (Arc::clone(self), scope.clone());
        self.detached(async move { this.fence_here(&scope).await }).await
    }

    async fn detached<F>(&self, work: F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        match self.lifecycle.spawn(work).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(Error::unavailable("the daemon is stopping")),
            Err(panic) => Err(Error::unavailable("the daemon failed inside; see its log").with_cause(panic)),
        }
    }

    async fn bootstrap_here(&self, scope: &OperationScope) -> Result<(), Error> {
        let _lane = self.lane.lock().await;
        if self.active().is_some_and(|active| active.scope == *scope) {
            self.wakes.planning.wake();
            self.wakes.convergence.wake();
            return Ok(());
        }
        let started = Instant::now();
        // A fence that waits for the lane came after whoever waited here before it.
        let until = self.begin(scope, true).ok_or_else(fenced)?;
        self.gate.shut(scope);
        self.gate.set_publication(false);
        let restored = async {
            let restored = until.run_until_cancelled(self.restore(scope));
            match tokio::time::timeout(BOOTSTRAP_DEADLINE, restored).await {
                Ok(Some(restored)) => restored,
                Ok(None) => Err(fenced()),
                Err(_) => Err(Error::unavailable("the bootstrap did not end in time")),
            }
        };
        let outcome = match restored.await {
            Ok(candidates) => self.commit(scope, &until, candidates),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(connectors) => {
                self.wakes.planning.wake();
                self.wakes.convergence.wake();
                self.wakes.recovery.wake();
                self.wakes.catalog.wake();
                tracing::info!(
                    account.hash = telemetry::account_hash(scope),
                    connectors,
                    duration_ms = started.elapsed().as_millis(),
                    "bootstrap committed"
                );
                Ok(())
            }
            Err(error) => {
                self.roll_back(scope).await;
                self.state().failure = Some(TaskFailure {
                    code: Some(error.code),
                    message: error.message.clone(),
                    at: self.clock.now(),
                });
                Err(error)
            }
        }
    }

    /// Takes authority from whoever has it, and notes who is next. None for a
    /// bootstrap when a fence was asked for: under one lock, so that the fence either
    /// stops it here or finds its token to cancel.
    fn begin(&self, scope: &OperationScope, wanted: bool) -> Option<CancellationToken> {
        let mut state = self.state();
        if wanted && state.fences > 0 {
            return None;
        }
        state.until.cancel();
        state.until = CancellationToken::new();
        state.scope = scope.clone();
        state.wanted = wanted;
        state.bootstrapped = false;
        state.planning.clear();
        if !wanted {
            state.failure = None;
        }
        Some(state.until.clone())
    }

    /// Fences what an earlier authority may have left, ends what it left undone,
    /// and tells which connectors have to be looked at.
    async fn restore(&self, scope: &OperationScope) -> Result<Vec<ConnectorKey>, Error> {
        self.gate.fence_routes(FENCE_DEADLINE).await?;
        self.application.fence_installed(scope).await?;
        self.recover().await?;
        self.application.calibration_candidates().await
    }

    async fn recover(&self) -> Result<(), Error> {
        let left: BTreeSet<_> = self
            .application
            .store()
            .recoverable_operations()
            .await?
            .into_iter()
            .filter(|operation| operation.kind.touches_implementation_host())
            .map(|operation| operation.operation_id)
            .collect();
        self.application.recover().await?;
        let deadline = Instant::now() + RECOVERY_WAIT;
        while !left.is_empty() {
            let active = self.application.store().recoverable_operations().await?;
            let waits = active
                .iter()
                .filter(|operation| left.contains(&operation.operation_id))
                .find(|one| !is_settled(one));
            let Some(operation) = waits else { break };
            if Instant::now() >= deadline {
                tracing::warn!(
                    operation.id = %operation.operation_id,
                    "operation {} is still under way; the bootstrap goes on without it", operation.operation_id
                );
                break;
            }
            tokio::time::sleep(RECOVERY_POLL).await;
        }
        Ok(())
    }

    /// Opens the gate, unless a fence has begun. No await: it is done or it is not.
    fn commit(
        &self,
        scope: &OperationScope,
        until: &CancellationToken,
        candidates: Vec<ConnectorKey>,
    ) -> Result<usize, Error> {
        let mut state = self.state();
        if until.is_cancelled() || state.fences > 0 {
            return Err(fenced());
        }
        state.planning.extend(candidates);
        self.gate.open(scope);
        self.gate.set_publication(true);
        self.gate.mark_recovered();
        state.bootstrapped = true;
        state.failure = None;
        Ok(state.planning.len())
    }

    async fn roll_back(&self, scope: &OperationScope) {
        self.gate.shut(scope);
        self.gate.set_publication(false);
        let fenced = self.gate.fence_routes(FENCE_DEADLINE).await;
        let deactivated = tokio::time::timeout(FENCE_DEADLINE, self.application.fence_installed(scope)).await;
        let deactivated =
            deactivated.unwrap_or_else(|_| Err(Error::unavailable("the routes were not taken down in time")));
        for error in [fenced.err(), deactivated.err()].into_iter().flatten() {
            tracing::error!(code = %error.code, "a failed bootstrap left routes to be fenced: {error}");
        }
    }

    async fn fence_here(&self, scope: &OperationScope) -> Result<(), Error> {
        // Before the lane is free: no bootstrap that is under way, or that waits
        // for the lane already, may commit.
        {
            let mut state = self.state();
            state.fences += 1;
            state.until.cancel();
        }
        let _pending = PendingFence(self);
        self.gate.set_publication(false);
        let _lane = self.lane.lock().await;
        self.begin(scope, false);
        self.gate.shut(scope);
        let fenced = self.gate.fail_closed(FENCE_DEADLINE).await;
        tracing::info!(account.hash = telemetry::account_hash(scope), ok = fenced.is_ok(), "fenced");
        fenced
    }

    /// Plans a route anew that was seen broken. Does nothing, successfully, while
    /// a bootstrap or a fence is under way, when `scope` is not active, or when
    /// the connector is not installed.
    ///
    /// # Errors
    /// What kept the route from being planned.
    pub async fn repair(&self, scope: &OperationScope, key: &ConnectorKey) -> Result<(), Error> {
        let Ok(_lane) = self.lane.try_lock() else { return Ok(()) };
        if self.active().is_none_or(|active| active.scope != *scope) {
            return Ok(());
        }
        match self.application.prepare_runtime(scope, key).await {
            Ok(_) => {
                self.wakes.convergence.wake();
                Ok(())
            }
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::OperationInProgress) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// A fence that is not done, however it ends.
struct PendingFence<'a>(&'a Bootstrap);

impl Drop for PendingFence<'_> {
    fn drop(&mut self) {
        self.0.state().fences -= 1;
    }
}

fn fenced() -> Error {
    Error::unavailable("a fence ended the bootstrap")
}

/// Whether a bootstrap need not wait for an operation any longer: it has ended,
/// its last attempt has failed and will be repeated, or all it lacks is a route,
/// which only an open gate can give.
fn is_settled(operation: &Operation) -> bool {
    match &operation.state {
        OperationState::Completed | OperationState::Failed { .. } => true,
        OperationState::Running { last_failure: Some(_) } => true,
        OperationState::Running { last_failure: None } | OperationState::Accepted => {
            operation.kind == OperationKind::Install && operation.stage == Stage::RuntimePending
        }
    }
}
