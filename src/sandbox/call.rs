//! One call: check the input, find a place, run a fresh instance, check the answer.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot},
    time::{Instant, timeout_at},
};
use wasmtime::Store;

use super::{
    answer,
    bindings::exported,
    counters::Counters,
    egress::Egress,
    engine::SharedEngine,
    flight::Passage,
    imports::{CallLog, ProgressReports, STATE_QUOTA_BYTES, StateBuffer},
    instance::InstanceState,
    limits::{Budget, Limiter},
    meter::{Meter, deadline_error, fenced_error},
    program::Callable,
    route::ConnectorRoute,
};
use crate::{
    domain::{
        capability::{CallRequest, CallResponse, CallResult},
        error::{Error, ErrorCode},
        timestamp::Timestamp,
    },
    ports::{Clock, SandboxLedger, StateScope},
};

/// The longest wait for a place.
const QUEUE: Duration = Duration::from_secs(5);
/// Calls that wait for an instance, over all routes.
const POOL_QUEUE: usize = 4_096;
/// How long storing state may take beyond the call's deadline.
const STORE: Duration = Duration::from_secs(5);

/// Where guests run.
pub(crate) struct Guests {
    /// The engine.
    pub(crate) engine: SharedEngine,
    /// Threads of their own: a guest that computes holds up no one else.
    pub(crate) runtime: Handle,
    /// Instances that may still be made.
    pub(crate) slots: Arc<Semaphore>,
    /// Calls that wait for one.
    pub(crate) waiting: AtomicUsize,
    /// Memory that guests may still take.
    pub(crate) memory: Arc<Budget>,
    /// State of connectors.
    pub(crate) ledger: Arc<dyn SandboxLedger>,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Counters.
    pub(crate) counters: Arc<Counters>,
}

impl Guests {
    /// Checks a request and takes a place for it inside `route`. Nothing of the guest
    /// runs; a fence that came first is answered as such. The request is as it was
    /// afterwards, unless the check of its input was cut off.
    ///
    /// # Errors
    /// The `capability_*` codes.
    pub(crate) async fn admit(
        &self,
        route: Arc<ConnectorRoute>,
        request: &mut CallRequest,
    ) -> Result<Admission, Error> {
        let quick = find(&route, request)?.input.is_quick(&request.input);
        if quick {
            matches(find(&route, request)?, &request.input)?;
        }
        let now = self.clock.now();
        let asked = request.deadline.map_or(Duration::MAX, |deadline| deadline.since(now));
        let wall = route.limits.wall().min(asked);
        if wall.is_zero() {
            return Err(deadline_error());
        }
        let deadline = Instant::now() + wall;
        let places = self.places(&route, deadline).await?;
        // With a place: no more of these at once than calls.
        if !quick {
            self.check_large_input(&route, request, deadline).await?;
        }
        let passage = route.flight.enter().ok_or_else(fenced_error)?;
        Ok(Admission { route, deadline, deadline_at: now.plus(wall), passage, places })
    }

    /// Checks an input that takes a while, where nobody is held up by that.
    async fn check_large_input(
        &self,
        route: &Arc<ConnectorRoute>,
        request: &mut CallRequest,
        deadline: Instant,
    ) -> Result<(), Error> {
        let input = std::mem::take(&mut request.input);
        let (route, name) = (Arc::clone(route), request.capability.name.clone());
        let checked = self.runtime.spawn_blocking(move || {
            let callable = route.program.capabilities.get(name.as_str());
            let outcome = callable.map_or(Ok(()), |callable| matches(callable, &input));
            (input, outcome)
        });
        let (input, outcome) =
            timeout_at(deadline, checked).await.map_err(|_| deadline_error())?.map_err(|cause| {
                Error::unavailable("the host failed while it checked the input").with_cause(cause)
            })?;
        request.input = input;
        outcome
    }

    /// Plays an admitted call in a fresh instance.
    ///
    /// # Errors
    /// The `capability_*` and `connector_*` codes.
    pub(crate) async fn call(
        self: &Arc<Self>,
        admission: Admission,
        request: CallRequest,
    ) -> Result<CallResponse, Error> {
        let route = Arc::clone(&admission.route);
        let (answer, answered) = oneshot::channel();
        let guests = Arc::clone(self);
        let mut playing = Box::pin(async move { guests.play(admission, request, answer).await });
        let ended = route.pace.is_short() && self.first_poll(&mut playing).await;
        if !ended {
            // Whoever drops this call drops the receiver, and the task ends by that.
            self.runtime.spawn(playing);
        }
        let result = answered.await.map_err(|_| {
            Error::new(ErrorCode::CapabilityTrapped, "the host failed while it ran the connector")
        })??;
        Ok(CallResponse {
            result,
            connection_id: route.key.connection_id.clone(),
            version: route.version.clone(),
            release_digest: route.release_digest,
            generation: route.generation.clone(),
        })
    }

    /// Polls a call once on this thread, with timers and sockets on the guests'
    /// runtime, where it goes on. Answers whether it has ended.
    async fn first_poll(&self, playing: &mut Pin<Box<impl Future<Output = ()>>>) -> bool {
        poll_fn(|context| {
            let _entered = self.runtime.enter();
            // A panic ends the call as it would on the guests' runtime, not its caller.
            let polled = catch_unwind(AssertUnwindSafe(|| playing.as_mut().poll(context).is_ready()));
            Poll::Ready(polled.unwrap_or(true))
        })
        .await
    }

    async fn places(
        &self,
        route: &ConnectorRoute,
        deadline: Instant,
    ) -> Result<[OwnedSemaphorePermit; 2], Error> {
        let until = deadline.min(Instant::now() + QUEUE);
        let limit = usize::try_from(route.limits.concurrent_calls).unwrap_or(usize::MAX);
        let own = acquire(&route.calls, &route.waiting, limit, until, route).await?;
        let slot = acquire(&self.slots, &self.waiting, POOL_QUEUE, until, route).await?;
        Ok([own, slot])
    }

    /// Plays a call to its end. The answer goes out before the instance is taken
    /// apart; the route is left after that.
    async fn play(
        &self,
        admission: Admission,
        request: CallRequest,
        mut answer: oneshot::Sender<Result<CallResult, Error>>,
    ) {
        // Dropped in reverse: the instance first, the places last.
        let Admission { places: _places, route, deadline, deadline_at, passage } = admission;
        let _running = route.count_call();
        self.counters.instances.count();
        let scope = StateScope {
            account: request.account.clone(),
            connector_key: route.key.connector_key.clone(),
            connection_id: route.key.connection_id.clone(),
        };
        let context = exported::CallContext {
            request_id: request.request_id.as_str().to_owned(),
            account: request.account.as_ref().map(|account| account.as_str().to_owned()),
            connection: route.key.connection_id.as_str().to_owned(),
            deadline: u64::try_from(deadline_at.0).unwrap_or(0),
        };
        let log = CallLog::new(
            Arc::clone(&route.gate.connector),
            context.request_id.clone(),
            Arc::clone(&self.counters),
        );
        let state = InstanceState::new(
            Limiter::new(&route.limits, &self.memory),
            Egress::new(Arc::clone(&route.gate), Some(passage.clone()), deadline),
            log,
            ProgressReports::new(request.progress.clone(), Some(passage.clone()), Arc::clone(&self.counters)),
            StateBuffer::new(Some((Arc::clone(&self.ledger), scope))),
        );
        let mut store = state.into_store(self.engine.wasmtime());
        let meter = Meter {
            cpu: route.limits.cpu(),
            deadline,
            fenced: Some(passage.flight().fenced()),
            pace: Some(&route.pace),
        };
        let outcome = tokio::select! {
            biased;
            outcome = meter.run(invoke(&route, &mut store, &request, &context)) => outcome,
            () = answer.closed() => return,
        };
        let outcome = match outcome {
            Ok(Ok(Ok(result))) => self.accept(result, &route, &request, &mut store, &passage, deadline).await,
            Ok(Ok(Err(error))) => Err(answer::guest_error(error)),
            Ok(Err(trap)) => Err(answer::failure(&trap, &store.data().limiter)),
            Err(ended) => Err(ended),
        };
        if let Err(error) = outcome.as_ref()
            && is_fault(error.code)
        {
            tracing::warn!(
                connector.key = %route.key.connector_key,
                request.id = %request.request_id,
                code = %error.code,
                "{} failed in call {}: {error}",
                request.capability,
                request.request_id
            );
        }
        // Nobody may be left to hear it.
        let _ = answer.send(outcome);
    }

    /// Checks a result and stores what the call wrote. A fence comes before or after
    /// this as a whole: the route is not gone while the passage is held.
    async fn accept(
        &self,
        result: exported::CallResult,
        route: &Arc<ConnectorRoute>,
        request: &CallRequest,
        store: &mut Store<InstanceState>,
        passage: &Passage,
        deadline: Instant,
    ) -> Result<CallResult, Error> {
        let callable = find(route, request)?;
        let limit = route.limits.response_bytes;
        let result = if answer::is_quick(&result, callable.output.as_ref()) {
            answer::result(result, callable.output.as_ref(), limit)?
        } else {
            let (route, name) = (Arc::clone(route), request.capability.name.clone());
            let checked = self.runtime.spawn_blocking(move || {
                let callable = route.program.capabilities.get(name.as_str());
                answer::result(result, callable.and_then(|callable| callable.output.as_ref()), limit)
            });
            timeout_at(deadline, checked).await.map_err(|_| deadline_error())?.map_err(|cause| {
                Error::unavailable("the host failed while it checked the answer").with_cause(cause)
            })??
        };
        let state = std::mem::replace(&mut store.data_mut().state, StateBuffer::new(None));
        store.data_mut().progress.flush();
        if passage.flight().is_fenced() {
            return Err(fenced_error());
        }
        if let Some((scope, changes)) = state.into_changes() {
            let stored = self.ledger.apply_state(&scope, &changes, STATE_QUOTA_BYTES);
            timeout_at(deadline + STORE, stored)
                .await
                .map_err(|_| Error::unavailable("the connector's state could not be stored in time"))??;
        }
        Ok(result)
    }
}

/// A call that may begin.
pub(crate) struct Admission {
    route: Arc<ConnectorRoute>,
    deadline: Instant,
    deadline_at: Timestamp,
    passage: Passage,
    places: [OwnedSemaphorePermit; 2],
}

/// Whether a call ended by a fault of the connector, which its author should hear
/// of, rather than by an answer of it.
fn is_fault(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::CapabilityTrapped
            | ErrorCode::CapabilityStackExhausted
            | ErrorCode::CapabilityMemoryExhausted
            | ErrorCode::CapabilityCpuExhausted
            | ErrorCode::CapabilityOutputInvalid
            | ErrorCode::CapabilityOutputTooLarge
    )
}

fn find<'a>(route: &'a ConnectorRoute, request: &CallRequest) -> Result<&'a Callable, Error> {
    route.program.capabilities.get(request.capability.name.as_str()).ok_or_else(|| {
        Error::new(
            ErrorCode::CapabilityNotFound,
            format!(
                "{} {} has no capability {}",
                route.key.connector_key, route.version, request.capability.name
            ),
        )
    })
}

fn matches(callable: &Callable, input: &Value) -> Result<(), Error> {
    callable.input.check(input).map_err(|mismatch| {
        Error::new(
            ErrorCode::CapabilityInputInvalid,
            format!(
                "the input does not match the schema at {:?} ({}): {}",
                mismatch.pointer, mismatch.rule, mismatch.detail
            ),
        )
    })
}

async fn invoke(
    route: &ConnectorRoute,
    store: &mut Store<InstanceState>,
    request: &CallRequest,
    context: &exported::CallContext,
) -> wasmtime::Result<Result<exported::CallResult, exported::Error>> {
    let connector = route.program.pre.instantiate_async(&mut *store).await?;
    let input = request.input.to_string();
    connector
        .portcullis_connector_capabilities()
        .call_invoke(store, request.capability.name.as_str(), &input, context)
        .await
}

/// Takes a place, or waits in a bounded queue for one.
async fn acquire(
    places: &Arc<Semaphore>,
    waiting: &AtomicUsize,
    limit: usize,
    until: Instant,
    route: &ConnectorRoute,
) -> Result<OwnedSemaphorePermit, Error> {
    match Arc::clone(places).try_acquire_owned() {
        Ok(place) => return Ok(place),
        Err(TryAcquireError::Closed) => return Err(Error::unavailable("the sandbox is closed")),
        Err(TryAcquireError::NoPermits) => {}
    }
    let busy = || {
        Error::new(
            ErrorCode::CapabilityBusy,
            format!("too many calls of {} are running; try again", route.key.connector_key),
        )
    };
    let _queued = Queued::enter(waiting, limit).ok_or_else(busy)?;
    tokio::select! {
        biased;
        () = route.flight.fenced().cancelled() => Err(fenced_error()),
        place = timeout_at(until, Arc::clone(places).acquire_owned()) => match place {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) => Err(Error::unavailable("the sandbox is closed")),
            Err(_) => Err(busy()),
        },
    }
}

/// A seat in a queue.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn enter(waiting: &'a AtomicUsize, limit: usize) -> Option<Self> {
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let seat = Self(waiting);
        (before < limit).then_some(seat)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
