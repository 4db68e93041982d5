//! The route table, without a sandbox (spec H, J.15).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use portcullis::{
    domain::{
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        generation::Generation,
        id::{BootEpoch, ConnectionId, ConnectorKey},
    },
    sandbox::routes::{Route, RouteKey, RouteTable},
};

type Table = RouteTable<Fake>;
type Events = Arc<Mutex<Vec<String>>>;

const NOW: Duration = Duration::from_millis(50);

struct Fake {
    name: &'static str,
    key: RouteKey,
    generation: Generation,
    digest: Sha256Digest,
    stuck: AtomicBool,
    fenced: AtomicBool,
    closed: AtomicBool,
    events: Events,
    /// Who answers at the moment of the fence.
    table: std::sync::Weak<Table>,
}

#[async_trait]
impl Route for Fake {
    fn key(&self) -> &RouteKey {
        &self.key
    }

    fn generation(&self) -> &Generation {
        &self.generation
    }

    fn release_digest(&self) -> &Sha256Digest {
        &self.digest
    }

    fn fence(&self) {
        self.fenced.store(true, Ordering::SeqCst);
    }

    async fn close(&self) -> Result<(), Error> {
        let active = self.table.upgrade().map(|table| names(&table.all().0)).unwrap_or_default();
        self.events.lock().expect("events").push(format!("close {} while {active:?} active", self.name));
        if self.stuck.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.closed.store(true, Ordering::SeqCst);
        Ok(())
    }
}

struct Bench {
    table: Arc<Table>,
    events: Events,
}

impl Bench {
    fn new() -> Self {
        Self { table: Arc::new(RouteTable::with_close_timeout(NOW)), events: Arc::default() }
    }

    fn route(&self, name: &'static str, key: &str, epoch: &str, number: u64) -> Arc<Fake> {
        let (connector, connection) = key.split_once('/').expect("connector/connection");
        Arc::new(Fake {
            name,
            key: RouteKey {
                connector_key: ConnectorKey::parse(connector).expect("a key"),
                connection_id: ConnectionId::parse(connection).expect("an id"),
            },
            generation: at(epoch, number),
            digest: Sha256Digest::of(name.as_bytes()),
            stuck: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            events: Arc::clone(&self.events),
            table: Arc::downgrade(&self.table),
        })
    }

    async fn committed(&self, name: &'static str, key: &str, number: u64) -> Arc<Fake> {
        let route = self.route(name, key, "boot", number);
        self.table.commit(Arc::clone(&route)).await.expect("a commit");
        route
    }
}

fn at(epoch: &str, number: u64) -> Generation {
    Generation { boot_epoch: BootEpoch::parse(epoch).expect("an epoch"), number }
}

fn names(routes: &[Arc<Fake>]) -> Vec<&'static str> {
    routes.iter().map(|route| route.name).collect()
}

fn state(table: &Table) -> (Vec<&'static str>, Vec<&'static str>) {
    let (active, retiring) = table.all();
    (names(&active), names(&retiring))
}

fn code(outcome: Result<(), Error>) -> ErrorCode {
    outcome.expect_err("a refusal").code
}

#[tokio::test]
async fn a_route_that_does_not_close_is_kept_and_a_retry_closes_it() {
    let bench = Bench::new();
    let route = bench.committed("a", "k/c", 1).await;
    route.stuck.store(true, Ordering::SeqCst);
    let removed = bench.table.remove(&route.key, &at("boot", 1), None, NOW).await;
    assert_eq!(code(removed), ErrorCode::Unavailable);
    assert!(route.fenced.load(Ordering::SeqCst));
    assert_eq!(state(&bench.table), (vec![], vec!["a"]));
    route.stuck.store(false, Ordering::SeqCst);
    bench.table.remove(&route.key, &at("boot", 1), None, NOW).await.expect("a retry");
    assert!(route.closed.load(Ordering::SeqCst));
    assert_eq!(state(&bench.table), (vec![], vec![]));
}

#[tokio::test]
async fn a_generation_at_or_behind_the_fence_is_refused() {
    let bench = Bench::new();
    let key = bench.route("x", "k/c", "boot", 1).key.clone();
    bench.table.remove(&key, &at("boot", 5), None, NOW).await.expect("only the fence moves");
    for number in [1, 4, 5] {
        let late = bench.table.commit(bench.route("late", "k/c", "boot", number)).await;
        assert_eq!(code(late), ErrorCode::RevisionConflict, "{number}");
    }
    assert_eq!(state(&bench.table), (vec![], vec![]));
    bench.committed("next", "k/c", 6).await;
}

#[tokio::test]
async fn a_newer_route_is_published_before_the_older_one_is_closed() {
    let bench = Bench::new();
    let old = bench.committed("old", "k/c", 1).await;
    bench.committed("new", "k/c", 2).await;
    assert!(old.fenced.load(Ordering::SeqCst) && old.closed.load(Ordering::SeqCst));
    assert_eq!(*bench.events.lock().expect("events"), ["close old while [\"new\"] active"]);
    assert_eq!(state(&bench.table), (vec!["new"], vec![]));
}

#[tokio::test]
async fn removing_what_matches_closes_all_of_it_and_nothing_else() {
    let bench = Bench::new();
    let (first, second) = (bench.committed("a", "k/c1", 1).await, bench.committed("b", "k/c2", 2).await);
    let other = bench.committed("o", "other/c", 1).await;
    let selects = |route: &Fake| route.key.connector_key.as_str() == "k";
    bench.table.remove_matching(selects, &at("boot", 2), NOW).await.expect("all go");
    assert!(first.closed.load(Ordering::SeqCst) && second.closed.load(Ordering::SeqCst));
    assert!(!other.fenced.load(Ordering::SeqCst));
    assert_eq!(state(&bench.table), (vec!["o"], vec![]));
}

#[tokio::test]
async fn a_route_of_another_boot_makes_a_commit_stale() {
    let bench = Bench::new();
    bench.committed("a", "k/c", 1).await;
    let other = bench.table.commit(bench.route("b", "k/c", "later", 9)).await;
    assert_eq!(code(other), ErrorCode::RevisionConflict);
    assert_eq!(state(&bench.table).0, ["a"]);
}

#[tokio::test]
async fn a_fence_of_another_boot_blocks_nothing() {
    let bench = Bench::new();
    let key = bench.route("x", "k/c", "boot", 1).key.clone();
    bench.table.remove(&key, &at("earlier", 100), None, NOW).await.expect("the fence");
    bench.committed("a", "k/c", 1).await;
}

#[tokio::test]
async fn an_equal_generation_replaces_the_route_and_an_older_one_does_not() {
    let bench = Bench::new();
    let first = bench.committed("a", "k/c", 3).await;
    bench.committed("b", "k/c", 3).await;
    assert!(first.closed.load(Ordering::SeqCst));
    assert_eq!(
        code(bench.table.commit(bench.route("c", "k/c", "boot", 2)).await),
        ErrorCode::RevisionConflict
    );
    assert_eq!(state(&bench.table).0, ["b"]);
}

#[tokio::test]
async fn a_closed_table_refuses() {
    let bench = Bench::new();
    let route = bench.committed("a", "k/c", 1).await;
    bench.table.close(NOW).await.expect("closed");
    assert!(route.closed.load(Ordering::SeqCst) && bench.table.published().is_empty());
    assert_eq!(code(bench.table.commit(bench.route("b", "k/c", "boot", 9)).await), ErrorCode::Unavailable);
}

#[tokio::test]
async fn a_removal_older_than_the_route_succeeds_without_effect() {
    let bench = Bench::new();
    let route = bench.committed("a", "k/c", 4).await;
    bench.table.remove(&route.key, &at("boot", 3), None, NOW).await.expect("nothing to do");
    assert!(!route.fenced.load(Ordering::SeqCst));
    assert_eq!(state(&bench.table).0, ["a"]);
}

#[tokio::test]
async fn after_fencing_all_only_a_greater_generation_comes() {
    let bench = Bench::new();
    bench.committed("a", "k/c", 4).await;
    bench.table.fence_all(NOW).await.expect("all go");
    assert_eq!(
        code(bench.table.commit(bench.route("b", "k/c", "boot", 4)).await),
        ErrorCode::RevisionConflict
    );
    bench.committed("c", "k/c", 5).await;
}

#[tokio::test]
async fn a_removal_of_another_release_or_boot_keeps_the_route() {
    let bench = Bench::new();
    let route = bench.committed("a", "k/c", 1).await;
    let digest = Sha256Digest::of(b"another");
    let other = bench.table.remove(&route.key, &at("boot", 9), Some(&digest), NOW).await;
    assert_eq!(code(other), ErrorCode::RevisionConflict);
    let other = bench.table.remove(&route.key, &at("later", 9), None, NOW).await;
    assert_eq!(code(other), ErrorCode::RevisionConflict);
    assert!(!route.fenced.load(Ordering::SeqCst));
    bench.committed("b", "k/c", 2).await;
}

#[tokio::test]
async fn a_route_that_cannot_go_stops_the_next_commit_but_not_the_active_route() {
    let bench = Bench::new();
    let first = bench.committed("a", "k/c", 1).await;
    first.stuck.store(true, Ordering::SeqCst);
    let second = bench.route("b", "k/c", "boot", 2);
    assert_eq!(code(bench.table.commit(Arc::clone(&second)).await), ErrorCode::Unavailable);
    assert!(bench.table.is_active(&second), "the failure is the old route's");
    assert_eq!(state(&bench.table), (vec!["b"], vec!["a"]));
    assert_eq!(code(bench.table.commit(bench.route("c", "k/c", "boot", 3)).await), ErrorCode::Unavailable);
    assert_eq!(state(&bench.table), (vec!["b"], vec!["a"]));
    assert!(!second.fenced.load(Ordering::SeqCst));
    first.stuck.store(false, Ordering::SeqCst);
    bench.committed("d", "k/c", 3).await;
    assert_eq!(state(&bench.table), (vec!["d"], vec![]));
}

#[tokio::test]
async fn a_removal_never_forgets_what_retires_already() {
    let bench = Bench::new();
    let first = bench.committed("a", "k/c", 1).await;
    first.stuck.store(true, Ordering::SeqCst);
    let second = bench.route("b", "k/c", "boot", 2);
    bench.table.commit(Arc::clone(&second)).await.expect_err("the old one stays");
    let removed = bench.table.remove(&second.key, &at("boot", 2), None, NOW).await;
    assert_eq!(code(removed), ErrorCode::Unavailable);
    assert!(second.fenced.load(Ordering::SeqCst));
    assert_eq!(state(&bench.table), (vec![], vec!["a", "b"]));
    first.stuck.store(false, Ordering::SeqCst);
    bench.table.remove(&second.key, &at("boot", 2), None, NOW).await.expect("a retry");
    assert_eq!(state(&bench.table), (vec![], vec![]));
}

#[tokio::test]
async fn a_route_that_ended_by_itself_goes_without_a_fence() {
    let bench = Bench::new();
    let route = bench.committed("a", "k/c", 1).await;
    let stranger = bench.route("x", "k/c", "boot", 1);
    bench.table.retire_exact(&stranger, NOW).await.expect("not this one");
    assert_eq!(state(&bench.table).0, ["a"]);
    bench.table.retire_exact(&route, NOW).await.expect("gone");
    assert_eq!(state(&bench.table), (vec![], vec![]));
    bench.committed("b", "k/c", 1).await;
}

#[tokio::test]
async fn lookup_falls_back_to_what_retires_and_publication_does_not() {
    let bench = Bench::new();
    let route = bench.committed("a", "k/c", 1).await;
    let key = route.key.clone();
    let published = || bench.table.with_published(&key.connector_key, <[_]>::len);
    assert_eq!((published(), bench.table.published().len()), (1, 1));
    bench.table.set_published(false);
    assert_eq!((published(), bench.table.published().len()), (0, 0));
    bench.table.set_published(true);
    route.stuck.store(true, Ordering::SeqCst);
    bench.table.remove(&key, &at("boot", 1), None, NOW).await.expect_err("it stays");
    assert_eq!(published(), 0);
    assert_eq!(bench.table.lookup(&key).map(|route| route.name), Some("a"));
}
