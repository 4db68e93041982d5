//! The route table: which generation of which connection answers (spec H).
//!
//! The table knows no wasmtime: a [`Route`] is something with an identity that can
//! be fenced at once and closed in time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    time::{Instant, timeout_at},
};

use crate::domain::{
    digest::Sha256Digest,
    error::{Error, ErrorCode},
    generation::Generation,
    id::{ConnectionId, ConnectorKey},
};

/// How long a commit waits for a route to go.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Transition locks that are kept before unused ones are forgotten.
const TRANSITIONS: usize = 1_024;

/// What a route answers for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// The connector.
    pub connector_key: ConnectorKey,
    /// The connection.
    pub connection_id: ConnectionId,
}

/// One generation of a connection's connector.
#[async_trait]
pub trait Route: Send + Sync + 'static {
    /// What it answers for.
    fn key(&self) -> &RouteKey;

    /// Its generation.
    fn generation(&self) -> &Generation;

    /// The release that it runs.
    fn release_digest(&self) -> &Sha256Digest;

    /// From now on nothing of it acts, and what runs is cancelled. Never blocks; may
    /// be repeated.
    fn fence(&self);

    /// Waits until nothing of it is left. May be repeated after a failure, and is
    /// dropped when it takes too long.
    async fn close(&self) -> Result<(), Error>;
}

type Published<R> = HashMap<ConnectorKey, Vec<Arc<R>>>;

struct State<R> {
    active: BTreeMap<RouteKey, Arc<R>>,
    /// Fenced and not gone yet. A key can have several when deadlines were missed.
    retiring: BTreeMap<RouteKey, Vec<Arc<R>>>,
    fences: HashMap<RouteKey, Generation>,
    closed: bool,
}

/// The routes of one host.
pub struct RouteTable<R> {
    state: Mutex<State<R>>,
    /// One change of a key at a time.
    transitions: Mutex<HashMap<RouteKey, Arc<AsyncMutex<()>>>>,
    published: AtomicBool,
    close_timeout: Duration,
    /// The active routes by connector, for callers that must not wait.
    index: ArcSwap<Published<R>>,
}

impl<R: Route> Default for RouteTable<R> {
    fn default() -> Self {
        Self::with_close_timeout(CLOSE_TIMEOUT)
    }
}

impl<R: Route> RouteTable<R> {
    /// A table whose commits wait so long for a route to go.
    #[must_use]
    pub fn with_close_timeout(close_timeout: Duration) -> Self {
        Self {
            state: Mutex::new(State {
                active: BTreeMap::new(),
                retiring: BTreeMap::new(),
                fences: HashMap::new(),
                closed: false,
            }),
            transitions: Mutex::default(),
            published: AtomicBool::new(true),
            close_timeout,
            index: ArcSwap::default(),
        }
    }

    /// Makes `next` the active route of its key. The previous one answers until then
    /// and is fenced right after; it may still be retiring when this fails.
    ///
    /// # Errors
    /// [`ErrorCode::RevisionConflict`] when the generation is fenced or stale;
    /// [`ErrorCode::Unavailable`] when the table is closed or an old route does not
    /// go in time.
    pub async fn commit(&self, next: Arc<R>) -> Result<(), Error> {
        let key = next.key().clone();
        let _transition = self.transition(&key).await;
        let previous = {
            let state = self.state();
            state.admit(&*next)?;
            state.active.get(&key).cloned()
        };
        self.close_retiring(&key, Instant::now() + self.close_timeout).await?;
        {
            let mut state = self.state();
            state.admit(&*next)?;
            let unchanged = match (state.active.get(&key), &previous) {
                (Some(now), Some(before)) => Arc::ptr_eq(now, before),
                (None, None) => true,
                _ => false,
            };
            if !unchanged {
                return Err(conflict(
                    "the route changed while another generation of it was being put in place",
                ));
            }
            state.active.insert(key.clone(), next);
            if let Some(previous) = &previous {
                state.retiring.entry(key.clone()).or_default().push(Arc::clone(previous));
            }
            self.publish(&state);
        }
        if let Some(previous) = previous {
            previous.fence();
            self.close_retiring(&key, Instant::now() + self.close_timeout).await?;
        }
        Ok(())
    }

    /// Takes the route of `key` down, and keeps everything up to `generation` down. A
    /// route that does not go in time stays retiring; the same request finishes it.
    ///
    /// # Errors
    /// [`ErrorCode::RevisionConflict`] when another release runs or another boot made
    /// the route; [`ErrorCode::Unavailable`] when it does not go in time.
    pub async fn remove(
        &self,
        key: &RouteKey,
        generation: &Generation,
        release_digest: Option<&Sha256Digest>,
        deadline: Duration,
    ) -> Result<(), Error> {
        let until = Instant::now() + deadline;
        let _transition = timeout_at(until, self.transition(key)).await.map_err(|_| missed(key))?;
        {
            let mut state = self.state();
            let target = state.active.get(key).or_else(|| state.retiring.get(key)?.last()).cloned();
            let Some(target) = target else {
                state.advance(key, generation);
                return Ok(());
            };
            if release_digest.is_some_and(|digest| digest != target.release_digest()) {
                return Err(conflict("another release of the connector runs"));
            }
            if target.generation().boot_epoch != generation.boot_epoch {
                return Err(conflict("the route belongs to another boot"));
            }
            if generation.number < target.generation().number {
                return Ok(());
            }
            state.retire(key);
            state.advance(key, generation);
            self.publish(&state);
            target.fence();
        }
        self.close_retiring(key, until).await
    }

    /// Takes all routes down that `selects` names, each once.
    ///
    /// # Errors
    /// The first of what [`remove`](Self::remove) answers; all are tried.
    pub async fn remove_matching(
        &self,
        selects: impl Fn(&R) -> bool,
        generation: &Generation,
        deadline: Duration,
    ) -> Result<(), Error> {
        let selected = self.select(selects);
        let removals = selected
            .iter()
            .map(|route| self.remove(route.key(), generation, Some(route.release_digest()), deadline));
        futures::future::join_all(removals).await.into_iter().collect()
    }

    /// Takes down exactly `route`, which ended by itself. The fence stays where it is.
    ///
    /// # Errors
    /// [`ErrorCode::Unavailable`] when it does not go in time.
    pub async fn retire_exact(&self, route: &Arc<R>, deadline: Duration) -> Result<(), Error> {
        let key = route.key();
        let until = Instant::now() + deadline;
        let _transition = timeout_at(until, self.transition(key)).await.map_err(|_| missed(key))?;
        {
            let mut state = self.state();
            if state.active.get(key).is_some_and(|active| Arc::ptr_eq(active, route)) {
                state.retire(key);
                self.publish(&state);
            } else if !state
                .retiring
                .get(key)
                .is_some_and(|all| all.iter().any(|one| Arc::ptr_eq(one, route)))
            {
                return Ok(());
            }
        }
        route.fence();
        self.close_retiring(key, until).await
    }

    /// Takes everything down, each route at its own generation: in the same boot only
    /// a greater one comes after it. Nothing acts any more from the first moment on.
    ///
    /// # Errors
    /// As [`remove_matching`](Self::remove_matching).
    pub async fn fence_all(&self, deadline: Duration) -> Result<(), Error> {
        let all = self.select(|_| true);
        for route in &all {
            route.fence();
        }
        let removals = all.iter().map(|route| self.remove(route.key(), route.generation(), None, deadline));
        futures::future::join_all(removals).await.into_iter().collect()
    }

    /// Ends for good: nothing is published or committed from now on.
    ///
    /// # Errors
    /// As [`fence_all`](Self::fence_all); it may be repeated.
    pub async fn close(&self, deadline: Duration) -> Result<(), Error> {
        self.set_published(false);
        self.state().closed = true;
        self.fence_all(deadline).await
    }

    /// Switches publication.
    pub fn set_published(&self, published: bool) {
        self.published.store(published, Ordering::Release);
    }

    /// Whether active routes are published.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.published.load(Ordering::Acquire)
    }

    /// The active routes of a connector; none while unpublished. Never waits.
    pub fn with_published<T>(&self, connector_key: &ConnectorKey, read: impl FnOnce(&[Arc<R>]) -> T) -> T {
        let index = self.index.load();
        let routes = index.get(connector_key).map_or(&[][..], Vec::as_slice);
        read(if self.is_published() { routes } else { &[] })
    }

    /// All active routes by key; none while unpublished.
    #[must_use]
    pub fn published(&self) -> Vec<Arc<R>> {
        if self.is_published() { self.state().active.values().cloned().collect() } else { Vec::new() }
    }

    /// The route of a key: the active one, or else one that is retiring.
    #[must_use]
    pub fn lookup(&self, key: &RouteKey) -> Option<Arc<R>> {
        let state = self.state();
        state.active.get(key).or_else(|| state.retiring.get(key)?.last()).cloned()
    }

    /// Whether exactly `route` is active.
    #[must_use]
    pub fn is_active(&self, route: &Arc<R>) -> bool {
        self.state().active.get(route.key()).is_some_and(|active| Arc::ptr_eq(active, route))
    }

    /// The active and the retiring routes.
    #[must_use]
    pub fn all(&self) -> (Vec<Arc<R>>, Vec<Arc<R>>) {
        let state = self.state();
        (state.active.values().cloned().collect(), state.retiring.values().flatten().cloned().collect())
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One selected route a key, the active one first.
    fn select(&self, selects: impl Fn(&R) -> bool) -> Vec<Arc<R>> {
        let state = self.state();
        let mut selected: BTreeMap<&RouteKey, &Arc<R>> = BTreeMap::new();
        let retiring = state.retiring.iter().filter_map(|(key, all)| Some((key, all.last()?)));
        for (key, route) in state.active.iter().chain(retiring) {
            if selects(route) {
                selected.entry(key).or_insert(route);
            }
        }
        selected.into_values().cloned().collect()
    }

    async fn transition(&self, key: &RouteKey) -> OwnedMutexGuard<()> {
        let lock = {
            let mut transitions = self.transitions.lock().unwrap_or_else(PoisonError::into_inner);
            if transitions.len() >= TRANSITIONS {
                transitions.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            Arc::clone(transitions.entry(key.clone()).or_default())
        };
        lock.lock_owned().await
    }

    /// Closes what retires at `key`. The transition of the key must be held.
    async fn close_retiring(&self, key: &RouteKey, until: Instant) -> Result<(), Error> {
        let retiring = self.state().retiring.get(key).cloned().unwrap_or_default();
        for route in retiring {
            match timeout_at(until, route.close()).await {
                Ok(outcome) => outcome?,
                Err(_) => return Err(missed(key)),
            }
            self.state().forget(&route);
        }
        Ok(())
    }

    fn publish(&self, state: &State<R>) {
        let mut index: Published<R> = HashMap::new();
        for (key, route) in &state.active {
            index.entry(key.connector_key.clone()).or_default().push(Arc::clone(route));
        }
        self.index.store(Arc::new(index));
    }
}

impl<R: Route> State<R> {
    /// Whether `next` may become active now.
    fn admit(&self, next: &R) -> Result<(), Error> {
        if self.closed {
            return Err(Error::unavailable("the host is closed").with_retryable(false));
        }
        let (key, generation) = (next.key(), next.generation());
        if self.fences.get(key).is_some_and(|fence| fence.fences(generation)) {
            return Err(conflict("the generation is fenced: a later change of the route came before it"));
        }
        match self.active.get(key) {
            Some(active) if !active.generation().admits(generation) => {
                Err(conflict("the generation is stale: a later one is active"))
            }
            _ => Ok(()),
        }
    }

    fn retire(&mut self, key: &RouteKey) {
        if let Some(route) = self.active.remove(key) {
            self.retiring.entry(key.clone()).or_default().push(route);
        }
    }

    fn advance(&mut self, key: &RouteKey, generation: &Generation) {
        let fence = match self.fences.remove(key) {
            Some(fence) => fence.advanced_to(generation.clone()),
            None => generation.clone(),
        };
        self.fences.insert(key.clone(), fence);
    }

    fn forget(&mut self, route: &Arc<R>) {
        if let Some(all) = self.retiring.get_mut(route.key()) {
            all.retain(|one| !Arc::ptr_eq(one, route));
            if all.is_empty() {
                self.retiring.remove(route.key());
            }
        }
    }
}

fn conflict(message: &str) -> Error {
    Error::new(ErrorCode::RevisionConflict, message)
}

fn missed(key: &RouteKey) -> Error {
    Error::unavailable(format!(
        "the route of {} is fenced but did not end in time; it is kept and the request can be repeated",
        key.connector_key
    ))
}
