//! The activation gate: what lies between the market and the host that runs
//! connectors (spec D.2).
//!
//! While the gate is closed no route can be enabled; routes can always be taken
//! down. A request that came too early is answered `blocked`, never kept and
//! replayed: the durable intent asks again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{sync::RwLock, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    domain::{
        capability::{CallRequest, CallResponse, PublishedCapability},
        error::Error,
        generation::Generation,
        id::{AccountId, ConnectionId, ConnectorKey},
        operation::OperationScope,
        runtime::{
            DeactivateRequest, REASON_PUBLICATION_GATE_CLOSED, ReconcileRequest, RuntimeReadiness,
            RuntimeReceipt,
        },
    },
    ports::{ImplementationHost, RouteSummary},
};

/// An [`ImplementationHost`] that acts for one scope, and only while it is open.
pub struct ActivationGate {
    host: Arc<dyn ImplementationHost>,
    /// Shared by whoever changes a route, exclusive for a fence: after a fence
    /// has been answered nothing that began before it can commit.
    passage: RwLock<()>,
    state: Mutex<GateState>,
}

struct GateState {
    scope: OperationScope,
    open: bool,
    failed_closed: bool,
    staged: HashMap<(ConnectionId, ConnectorKey), Generation>,
    /// Cancelled when this opening ends.
    opening: CancellationToken,
}

impl GateState {
    fn close(&mut self) {
        self.open = false;
        self.staged.clear();
        self.opening.cancel();
        self.opening = CancellationToken::new();
    }
}

impl ActivationGate {
    /// A closed gate before `host`, for nobody yet.
    pub fn new(host: Arc<dyn ImplementationHost>) -> Self {
        Self {
            host,
            passage: RwLock::new(()),
            state: Mutex::new(GateState {
                scope: OperationScope::default(),
                open: false,
                failed_closed: false,
                staged: HashMap::new(),
                opening: CancellationToken::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the gate for `scope`.
    pub fn open(&self, scope: &OperationScope) {
        let mut state = self.state();
        if state.scope != *scope {
            state.close();
            state.scope = scope.clone();
        }
        state.open = true;
    }

    /// Closes the gate and hands it to `scope`. Routes that are being enabled are
    /// given up; routes that are up stay up until they are fenced.
    pub fn shut(&self, scope: &OperationScope) {
        let mut state = self.state();
        state.close();
        state.scope = scope.clone();
    }

    /// Whether routes can be enabled.
    pub fn is_open(&self) -> bool {
        self.state().open
    }

    /// Whether the gate was failed closed and nothing has recovered from it yet.
    pub fn requires_recovery(&self) -> bool {
        self.state().failed_closed
    }

    /// Notes that everything was recovered after the last fence.
    pub fn mark_recovered(&self) {
        self.state().failed_closed = false;
    }

    /// How many connections asked to be enabled while the gate was closed.
    pub fn staged(&self) -> usize {
        self.state().staged.len()
    }

    /// Takes every route down, without asking for a recovery: publication first,
    /// then whatever is under way, then the routes.
    ///
    /// # Errors
    /// What the host answers; [`crate::domain::error::ErrorCode::Unavailable`]
    /// when a change of a route did not end in time. It can be made again.
    pub async fn fence_routes(&self, deadline: Duration) -> Result<(), Error> {
        self.host.set_publication(false);
        let started = Instant::now();
        // A change that hangs must not keep the routes up: half of the time is
        // for waiting, and without the passage they are fenced all the same.
        let passage = tokio::time::timeout(deadline / 2, self.passage.write()).await;
        let fenced = self.host.fail_closed(deadline.saturating_sub(started.elapsed())).await;
        match passage {
            Ok(_) => fenced,
            Err(_) => fenced.and(Err(Error::unavailable(
                "the routes were fenced while one of them was still being changed; fence again",
            ))),
        }
    }

    fn admit(&self, scope: &OperationScope) -> Result<MutexGuard<'_, GateState>, Error> {
        let state = self.state();
        if state.scope == *scope {
            Ok(state)
        } else {
            Err(Error::unavailable("the request is for another account than the one that is active here"))
        }
    }
}

#[async_trait]
impl ImplementationHost for ActivationGate {
    async fn reconcile(&self, request: &ReconcileRequest) -> Result<RuntimeReceipt, Error> {
        let _passage = self.passage.read().await;
        let opening = {
            let mut state = self.admit(&request.scope)?;
            if request.enabled && !state.open {
                let staged = (request.connection_id.clone(), request.release.connector_key.clone());
                let newest = state.staged.get(&staged).is_none_or(|older| {
                    older.boot_epoch != request.generation.boot_epoch || older.admits(&request.generation)
                });
                if newest {
                    state.staged.insert(staged, request.generation.clone());
                }
                return Ok(blocked(request));
            }
            state.opening.clone()
        };
        if !request.enabled {
            return self.host.reconcile(request).await;
        }
        tokio::select! {
            biased;
            () = opening.cancelled() => {
                Err(Error::unavailable("the publication gate closed while the route was being enabled"))
            }
            receipt = self.host.reconcile(request) => receipt,
        }
    }

    async fn deactivate(&self, request: &DeactivateRequest, deadline: Duration) -> Result<(), Error> {
        let _passage = self.passage.read().await;
        drop(self.admit(&request.scope)?);
        self.host.deactivate(request, deadline).await
    }

    async fn fail_closed(&self, deadline: Duration) -> Result<(), Error> {
        {
            let mut state = self.state();
            state.failed_closed = true;
            state.close();
        }
        self.fence_routes(deadline).await
    }

    /// A closed gate publishes nothing, whoever asks.
    fn set_publication(&self, enabled: bool) {
        let state = self.state();
        self.host.set_publication(enabled && state.open);
    }

    fn capabilities(&self, account: Option<&AccountId>) -> Vec<PublishedCapability> {
        self.host.capabilities(account)
    }

    async fn call(&self, request: CallRequest) -> Result<CallResponse, Error> {
        self.host.call(request).await
    }

    fn routes(&self) -> Vec<RouteSummary> {
        self.host.routes()
    }

    async fn close(&self, deadline: Duration) -> Result<(), Error> {
        {
            let mut state = self.state();
            state.failed_closed = true;
            state.close();
        }
        self.host.close(deadline).await
    }
}

fn blocked(request: &ReconcileRequest) -> RuntimeReceipt {
    RuntimeReceipt {
        operation_id: request.operation_id.clone(),
        connection_id: request.connection_id.clone(),
        connector_key: request.release.connector_key.clone(),
        release_digest: request.release.release_digest,
        generation: request.generation.clone(),
        readiness: RuntimeReadiness::blocked(REASON_PUBLICATION_GATE_CLOSED),
        summary: None,
    }
}
