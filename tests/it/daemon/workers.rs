//! The background tasks (spec D.6; J.12, 257 to 266).

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use portcullis::{
    daemon::{
        Events, MarketHost,
        driver::Task,
        tasks::{Cleanup, CleanupPolicy, Outbox},
    },
    domain::{
        error::Error,
        event::{ChangedEvent, OutboxEvent},
        operation::{OperationKind, OperationState},
    },
    ports::{CleanupRequest, CleanupResult, Clock, EventSink, Store},
    store::SqlStore,
};

use super::{
    fakes::{Asked, eventually, key, release},
    world::World,
};
use crate::store::postgres::Schema;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Waits until a task has begun and ended two activations from now on.
async fn two_rounds(market: &MarketHost, name: &str) {
    let activations = || {
        let tasks = market.health().tasks;
        tasks.iter().find(|task| task.name == name).map_or(0, |task| task.activations)
    };
    let before = activations();
    eventually("two more rounds", || activations() > before + 2).await;
}

#[tokio::test]
async fn s257_a_connector_that_is_still_being_planned_is_not_converged() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let first = world.up().await;
    world.runs("echo").await;
    first.close(20 * SECOND).await.expect("closed");
    world.host.forget();
    // The row of the last boot is due, but what it asks for may be gone.
    world.installer.hang("echo");
    let second = world.up().await;
    two_rounds(&second, "convergence").await;
    assert!(
        !world.host.asked().iter().any(|one| matches!(one, Asked::Enable(..))),
        "{:?}",
        world.host.asked()
    );
    assert_eq!(second.health().connectors_planned_later, 1);
}

#[tokio::test]
async fn s258_an_operation_whose_wake_up_was_lost_is_taken_up() {
    let world = World::new().await;
    let _market = world.up().await;
    world.save_operation(&world.accepted("refresh", OperationKind::RefreshCatalog, None)).await;
    eventually("the catalog is read", || world.catalog.reads.load(Ordering::SeqCst) == 1).await;
    while world.operation("refresh").await.is_active() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(world.operation("refresh").await.state, OperationState::Completed);
}

#[tokio::test]
async fn s259_an_authorization_start_is_never_taken_up_by_the_recovery() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let market = world.up().await;
    let connector = world.connector("echo").await;
    let operation = world.accepted("start", OperationKind::StartAuthorization, Some(&connector));
    world.save_operation(&operation).await;
    two_rounds(&market, "operation_recovery").await;
    let stored = world.operation("start").await;
    assert_eq!((stored.state, stored.attempt), (OperationState::Accepted, 0));
}

#[tokio::test]
async fn s260_an_operation_that_failed_often_is_left_alone_for_a_while() {
    let world = World::new().await;
    let market = world.up().await;
    let mut operation = world.accepted("refresh", OperationKind::RefreshCatalog, None);
    for _ in 0..6 {
        operation.start(world.clock.now());
    }
    world.save_operation(&operation).await;
    two_rounds(&market, "operation_recovery").await;
    assert_eq!(world.catalog.reads.load(Ordering::SeqCst), 0, "the sixth attempt has only just ended");
    world.clock.forward(9 * SECOND);
    eventually("it is taken up", || world.catalog.reads.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn nothing_is_taken_up_while_the_daemon_is_fenced() {
    let world = World::new().await;
    let market = world.up().await;
    market.bootstrap().fence(&super::fakes::account("alice")).await.expect("fenced");
    world.save_operation(&world.accepted("refresh", OperationKind::RefreshCatalog, None)).await;
    two_rounds(&market, "operation_recovery").await;
    assert_eq!(world.catalog.reads.load(Ordering::SeqCst), 0);
    assert!(world.operation("refresh").await.is_active(), "it is not lost");
}

#[tokio::test]
async fn refreshes_follow_each_other_by_the_interval() {
    let world = World::new().await;
    let market = world.boot_with_refreshes(Some(Duration::from_millis(20)));
    two_rounds(&market, "catalog_refresh").await;
    assert_eq!(world.catalog.reads.load(Ordering::SeqCst), 0, "not before a bootstrap");
    market.bootstrap().bootstrap(&super::fakes::account("alice")).await.expect("bootstrapped");
    eventually("two refreshes", || world.catalog.reads.load(Ordering::SeqCst) >= 2).await;
    market.close(20 * SECOND).await.expect("closed");
    let operations = world.store.snapshot().await.expect("readable").operations;
    assert!(
        operations.iter().all(|operation| operation.owner_account_id.is_none()),
        "they are the machine's"
    );
}

/// Announces events until one is refused.
#[derive(Default)]
struct Sink {
    announced: Mutex<Vec<i64>>,
    refused: Mutex<Option<i64>>,
}

#[async_trait]
impl EventSink for Sink {
    async fn publish(&self, event: &OutboxEvent) -> Result<(), Error> {
        if *self.refused.lock().expect("not poisoned") == Some(event.sequence) {
            return Err(Error::unavailable("the sink is full"));
        }
        self.announced.lock().expect("not poisoned").push(event.sequence);
        Ok(())
    }
}

async fn enqueue(world: &World, events: usize) -> Vec<i64> {
    for _ in 0..events {
        commit_event(&world.store).await;
    }
    pending(world).await
}

async fn commit_event(store: &SqlStore) {
    let mut tx = store.begin().await.expect("a transaction");
    let revision = tx.advance_revision();
    tx.enqueue_changed(&ChangedEvent { revision, ..ChangedEvent::default() }).await.expect("enqueued");
    tx.commit().await.expect("committed");
}

async fn pending(world: &World) -> Vec<i64> {
    world.store.pending_events(500).await.expect("readable").iter().map(|event| event.sequence).collect()
}

#[tokio::test]
async fn s262_the_first_error_of_the_sink_stops_the_flush_and_nothing_is_lost() {
    let world = World::new().await;
    let events = enqueue(&world, 3).await;
    let sink = Arc::new(Sink::default());
    *sink.refused.lock().expect("not poisoned") = Some(events[1]);
    let outbox = Outbox::new(world.port(), Arc::clone(&sink) as _);
    outbox.activate().await.expect_err("the second is refused");
    assert_eq!(*sink.announced.lock().expect("not poisoned"), events[..1]);
    assert_eq!(pending(&world).await, events[1..], "only the first is marked");
    *sink.refused.lock().expect("not poisoned") = None;
    assert_eq!(outbox.activate().await.expect("flushed"), 2);
    assert_eq!(*sink.announced.lock().expect("not poisoned"), events, "in order, each once");
    assert!(pending(&world).await.is_empty());
}

#[tokio::test]
async fn s263_an_event_carries_its_sequence_as_its_cursor() {
    let world = World::new().await;
    let events = enqueue(&world, 250).await;
    let broadcast = Events::new(256);
    let mut listener = broadcast.subscribe();
    let outbox = Outbox::new(world.port(), Arc::new(broadcast));
    assert_eq!(outbox.activate().await.expect("flushed"), 250, "more than a page");
    for sequence in events {
        assert_eq!(listener.try_recv().expect("announced").sequence, sequence);
    }
}

/// Commits through `store` what the daemon of `world` announces, again and again: far
/// faster than its timer alone would make it look, and without keeping it busy.
async fn announced_at_once(world: &World, store: &SqlStore) {
    const ROUNDS: u32 = 16;
    let market = world.boot();
    let activations = || {
        let tasks = market.health().tasks;
        tasks.iter().find(|task| task.name == "outbox").map_or(0, |task| task.activations)
    };
    let (started, before) = (Instant::now(), activations());
    for _ in 0..ROUNDS {
        commit_event(store).await;
        while !pending(world).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let took = started.elapsed();
    assert!(took < ROUNDS * Duration::from_millis(125), "the timer alone takes 250 ms for each: {took:?}");
    let most = 2 * u64::from(ROUNDS) + u64::try_from(took.as_millis() / 20).expect("not long");
    assert!(activations() - before <= most, "{} in {took:?}", activations() - before);
}

#[tokio::test]
async fn what_is_committed_is_announced_without_waiting_for_the_timer() {
    let world = World::new().await;
    announced_at_once(&world, &world.store).await;
}

#[tokio::test]
async fn what_another_daemon_commits_is_announced_without_waiting_for_the_timer() {
    let schema = Schema::new().await;
    let world = World::on(&schema.url()).await;
    let mut listening = world.store.changes();
    listening.wait_for(|changes| *changes > 0).await.expect("it listens");
    announced_at_once(&world, &schema.open().await.expect("another daemon")).await;
}

#[tokio::test]
async fn an_event_that_nobody_listens_to_is_still_published() {
    let world = World::new().await;
    enqueue(&world, 1).await;
    let outbox = Outbox::new(world.port(), Arc::new(Events::new(1)));
    assert_eq!(outbox.activate().await.expect("flushed"), 1);
    assert!(pending(&world).await.is_empty());
}

#[tokio::test]
async fn s264_s266_what_ended_long_ago_is_forgotten_in_small_batches_and_the_rest_kept() {
    let world = World::new().await;
    for number in 0..5 {
        let mut operation = world.accepted(&format!("old-{number}"), OperationKind::RefreshCatalog, None);
        operation.complete(world.clock.now());
        world.save_operation(&operation).await;
    }
    world.save_operation(&world.accepted("active", OperationKind::RefreshCatalog, None)).await;
    let outbox = Outbox::new(world.port(), Arc::new(Events::new(1)));
    enqueue(&world, 3).await;
    outbox.activate().await.expect("flushed");
    world.clock.forward(24 * HOUR - SECOND);
    enqueue(&world, 1).await;
    outbox.activate().await.expect("flushed");
    let mut young = world.accepted("young", OperationKind::Uninstall, None);
    young.connector_key = Some(key("echo"));
    young.complete(world.clock.now());
    world.save_operation(&young).await;

    let policy = CleanupPolicy { batch: 2, ..CleanupPolicy::default() };
    let cleanup = Cleanup::new(world.port(), Arc::clone(&world.clock) as _, policy);
    assert_eq!(cleanup.activate().await.expect("cleaned"), 3, "the events alone: an hour has passed");
    world.clock.forward(SECOND);
    assert_eq!(cleanup.activate().await.expect("cleaned"), 5, "all batches of operations");
    let left: Vec<String> = world
        .store
        .snapshot()
        .await
        .expect("readable")
        .operations
        .iter()
        .map(|operation| operation.operation_id.to_string())
        .collect();
    assert_eq!(left, ["active", "young"]);
}

#[tokio::test]
async fn s264_the_cut_offs_are_a_day_and_an_hour() {
    let world = World::new().await;
    let now = world.clock.now();
    let policy = CleanupPolicy::default();
    assert_eq!((policy.operations, policy.events, policy.batch), (24 * HOUR, HOUR, 500));
    let request = CleanupRequest { operations_ended_by: now, events_published_by: now, batch: policy.batch };
    assert_eq!(world.store.clean_up(&request).await.expect("a valid batch"), CleanupResult::default());
}

#[tokio::test]
async fn s265_the_cleanup_runs_at_the_start() {
    let world = World::new().await;
    let mut operation = world.accepted("old", OperationKind::RefreshCatalog, None);
    operation.complete(world.clock.now());
    world.save_operation(&operation).await;
    world.clock.forward(25 * HOUR);
    let market = world.boot();
    eventually("it has run", || {
        market.health().tasks.iter().any(|task| task.name == "cleanup" && task.last_done == 1)
    })
    .await;
    assert!(world.store.snapshot().await.expect("readable").operations.is_empty());
}

#[tokio::test]
async fn a_store_that_cannot_note_a_failure_is_not_asked_again_at_once() {
    let schema = Schema::new().await;
    let world = World::on(&schema.url()).await;
    world.installed(&release("echo", "1.0.0")).await;
    let market = world.up().await;
    world.runs("echo").await;
    let began = Instant::now();
    // What a sequence counts stays counted, whatever becomes of the statement.
    schema
        .run(
            "UPDATE convergences SET observed_epoch = 'an older boot'; CREATE SEQUENCE tries; \
             CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS \
             $$BEGIN PERFORM nextval('tries'); RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END$$; \
             CREATE TRIGGER full_disk BEFORE UPDATE ON convergences FOR EACH ROW EXECUTE FUNCTION full_disk()",
        )
        .await;
    let mut conn = schema.connect().await;
    let fourth = async {
        loop {
            let row =
                sqlx::query("SELECT last_value FROM tries").fetch_one(&mut conn).await.expect("a count");
            if sqlx::Row::get::<i64, _>(&row, 0) >= 4 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(30 * SECOND, fourth).await.expect("it is tried again");
    assert!(began.elapsed() >= SECOND, "four tries in {:?}", began.elapsed());
    schema.run("DROP FUNCTION full_disk CASCADE").await;
    world.runs("echo").await;
    market.close(20 * SECOND).await.expect("closed");
}
