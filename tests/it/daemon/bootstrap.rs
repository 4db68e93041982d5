//! Bootstrap and fence (spec D.3, D.4; J.12, 244 to 253, 267, 271).

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use portcullis::{
    daemon::release_leases_of_earlier_boots,
    domain::{
        error::ErrorCode,
        id::ConnectionId,
        installation::{FailureCode, Installation},
        operation::{OperationKind, OperationState},
    },
    ports::Store,
};

use super::{
    fakes::{Asked, account, eventually, key, release, remote_release},
    world::{World, failures},
};

const SECOND: Duration = Duration::from_secs(1);

fn fences(asked: &[Asked]) -> usize {
    asked.iter().filter(|one| **one == Asked::FailClosed).count()
}

fn enabled(asked: &[Asked], connector: &str) -> usize {
    asked.iter().filter(|one| matches!(one, Asked::Enable(key, _) if key.as_str() == connector)).count()
}

#[tokio::test]
async fn s244_a_slow_connector_holds_up_neither_the_bootstrap_nor_the_others() {
    let world = World::new().await;
    world.installed(&release("a-slow", "1.0.0")).await;
    world.installed(&release("b-fast", "1.0.0")).await;
    world.installer.hang("a-slow");
    let market = world.boot();
    let started = tokio::time::Instant::now();
    market.bootstrap().bootstrap(&account("alice")).await.expect("bootstrapped");
    assert!(started.elapsed() < SECOND / 2, "it took {:?}", started.elapsed());
    assert!(world.host.is_published() && market.health().ready);
    world.runs("b-fast").await;
    let waiting = market.bootstrap().planned_later();
    assert_eq!(waiting.into_iter().collect::<Vec<_>>(), [key("a-slow")]);
    assert_eq!(world.host.connection(&key("a-slow")), None);
}

#[tokio::test]
async fn s245_a_runtime_is_restored_without_operations_and_catalog_and_after_a_failed_start() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    *world.catalog.unreachable.lock().expect("not poisoned") = true;
    world.host.fail_next(&key("echo"), 1);
    let market = world.boot_with_refreshes(Some(60 * SECOND));
    market.bootstrap().bootstrap(&account("alice")).await.expect("bootstrapped");
    eventually("the first start fails", || enabled(&world.host.asked(), "echo") == 1).await;
    let row = || async { world.store.convergences(&account("alice")).await.expect("readable").remove(0) };
    while row().await.attempt == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.host.connection(&key("echo")), None);
    world.clock.forward(3 * SECOND);
    world.runs("echo").await;
}

#[tokio::test]
async fn s246_a_second_bootstrap_for_the_same_scope_fences_nothing() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let market = world.up().await;
    world.runs("echo").await;
    world.host.forget();
    let revision = world.revision().await;
    market.bootstrap().bootstrap(&account("alice")).await.expect("cheap");
    assert_eq!(fences(&world.host.asked()), 0);
    assert!(market.health().ready && world.host.connection(&key("echo")).is_some());
    assert_eq!(world.revision().await, revision, "nothing was planned anew");
}

#[tokio::test]
async fn s247_an_account_switch_runs_on_the_new_accounts_connection() {
    let world = World::new().await;
    world.installed(&remote_release("remote")).await;
    let market = world.up().await;
    let remote = key("remote");
    let connection = |name: &str| Some(ConnectionId::account(account(name).account_id.as_ref(), &remote));
    eventually("alice's runs", || world.host.connection(&remote) == connection("alice")).await;
    market.bootstrap().bootstrap(&account("bob")).await.expect("switched");
    assert_eq!(market.bootstrap().scope(), account("bob"));
    eventually("bob's runs", || world.host.connection(&remote) == connection("bob")).await;
}

#[tokio::test]
async fn s248_a_repair_is_exactly_one_forced_reconcile() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let market = world.up().await;
    world.runs("echo").await;
    let before = world.host.asked();
    market.bootstrap().repair(&account("alice"), &key("echo")).await.expect("planned");
    eventually("it was enabled again", || enabled(&world.host.asked(), "echo") > 1).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    let after = world.host.asked();
    let numbers: Vec<u64> = after
        .iter()
        .filter_map(|one| match one {
            Asked::Enable(_, number) => Some(*number),
            _ => None,
        })
        .collect();
    assert_eq!(after.len(), before.len() + 1, "{after:?}");
    assert!(numbers[1] > numbers[0], "at a higher generation: {numbers:?}");
}

#[tokio::test]
async fn s249_a_catalog_that_always_fails_disturbs_nobody_else() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    *world.catalog.unreachable.lock().expect("not poisoned") = true;
    let market = world.boot_with_refreshes(Some(Duration::from_millis(5)));
    market.bootstrap().bootstrap(&account("alice")).await.expect("bootstrapped");
    eventually("it was tried more than once", || world.catalog.reads.load(Ordering::SeqCst) > 1).await;
    world.runs("echo").await;
    eventually("the failure shows", || {
        market.health().tasks.iter().any(|task| task.name == "catalog_refresh" && task.failures > 0)
    })
    .await;
    let health = market.health();
    assert!(health.ready, "a catalog is not needed to answer calls");
    let failing: Vec<_> =
        health.tasks.iter().filter(|task| task.failures > 0).map(|task| task.name).collect();
    assert_eq!(failing, ["catalog_refresh"]);
}

#[tokio::test]
async fn s250_s251_a_fence_closes_publication_and_leaves_nothing_to_repair() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let market = world.up().await;
    world.runs("echo").await;
    world.host.forget();
    market.bootstrap().fence(&account("alice")).await.expect("fenced");
    assert_eq!(world.host.asked(), [Asked::FailClosed]);
    assert!(!world.host.is_published() && !market.health().ready && !market.health().bootstrapped);
    let installation = world.connector("echo").await.installation;
    assert!(matches!(installation, Installation::Installed { .. }), "it stays installed");

    let revision = world.revision().await;
    market.bootstrap().repair(&account("alice"), &key("echo")).await.expect("nothing to do");
    assert_eq!(world.host.asked(), [Asked::FailClosed]);
    assert_eq!(world.revision().await, revision);
}

#[tokio::test]
async fn a_fence_stays_until_someone_asks_for_a_bootstrap() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let market = world.up().await;
    market.bootstrap().fence(&account("alice")).await.expect("fenced");
    let retries = || {
        let tasks = market.health().tasks;
        tasks.iter().find(|task| task.name == "bootstrap_retry").map_or(0, |task| task.activations)
    };
    let before = retries();
    eventually("the retry looked again", || retries() > before).await;
    assert!(!market.health().bootstrapped && !world.host.is_published());
}

#[tokio::test]
async fn s252_the_same_account_is_bootstrapped_fully_after_a_fence() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let market = world.up().await;
    world.runs("echo").await;
    market.bootstrap().fence(&account("alice")).await.expect("fenced");
    world.host.forget();
    market.bootstrap().bootstrap(&account("alice")).await.expect("bootstrapped");
    assert_eq!(fences(&world.host.asked()), 1);
    world.runs("echo").await;
    assert!(market.health().ready);
}

#[tokio::test]
async fn s253_an_installation_without_files_is_failed_and_not_started() {
    let world = World::new().await;
    world.installed(&release("gone", "1.0.0")).await;
    world.installed(&release("here", "1.0.0")).await;
    world.installer.lose("gone");
    let market = world.up().await;
    world.runs("here").await;
    eventually("everything is planned", || market.bootstrap().planned_later().is_empty()).await;
    assert_eq!(failures(&world).await["gone"], FailureCode::PHYSICALLY_ABSENT);
    assert_eq!(enabled(&world.host.asked(), "gone"), 0);
}

#[tokio::test]
async fn s267_a_bootstrap_that_fails_leaves_the_gate_closed_and_is_tried_again() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    world.host.break_fences(1);
    let market = world.boot();
    let error = market.bootstrap().bootstrap(&account("alice")).await.expect_err("the fence fails");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
    let asked = world.host.asked();
    assert_eq!(fences(&asked), 2, "once to begin with, once to roll back");
    assert!(asked.contains(&Asked::Deactivate(key("echo"))), "the roll back fences each connector too");
    assert!(!world.host.is_published() && !market.gate().is_open());
    let health = market.health();
    assert!(!health.ready && !health.bootstrapped);
    assert!(health.waiting_for().expect("it says why").contains(&error.message));

    eventually("it is tried again by itself", || market.health().ready).await;
    assert_eq!(market.health().bootstrap_failure, None);
    world.runs("echo").await;
}

#[tokio::test]
async fn s271_closing_twice_is_closing_once() {
    let world = World::new().await;
    let market = world.up().await;
    market.close(20 * SECOND).await.expect("closed");
    market.close(20 * SECOND).await.expect("closed already");
    assert!(!market.health().ready && market.health().stopping);
    let error = market.bootstrap().bootstrap(&account("alice")).await.expect_err("it has stopped");
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(!world.host.is_published());
}

#[tokio::test]
async fn a_restart_starts_every_route_at_a_generation_of_its_own_boot() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let first = world.up().await;
    world.runs("echo").await;
    first.close(20 * SECOND).await.expect("closed");
    assert_eq!(world.host.connection(&key("echo")), None);
    world.host.forget();
    let _second = world.up().await;
    world.runs("echo").await;
    assert_eq!(enabled(&world.host.asked(), "echo"), 1);
}

#[tokio::test]
async fn an_installation_that_a_restart_interrupted_is_finished_after_the_gate_has_opened() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let mut connector = world.connector("echo").await;
    connector.installation = Installation::NotInstalled.begin_install().expect("installing");
    let mut tx = world.store.begin().await.expect("a transaction");
    tx.save_connector(&connector).await.expect("saved");
    tx.commit().await.expect("committed");
    let mut operation = world.accepted("install", OperationKind::Install, Some(&connector));
    operation.start(operation.created_at);
    world.save_operation(&operation).await;

    let market = world.up().await;
    assert!(market.health().ready);
    let ended = async {
        while world.operation("install").await.is_active() {
            // What failed while the gate was closed backs off by the clock.
            world.clock.forward(SECOND);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(20 * SECOND, ended).await.expect("it ends");
    assert_eq!(world.operation("install").await.state, OperationState::Completed);
    assert!(matches!(world.connector("echo").await.installation, Installation::Installed { .. }));
    assert!(world.host.connection(&key("echo")).is_some());
}

#[tokio::test]
async fn a_bootstrap_goes_on_when_its_caller_goes_away() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let market = world.boot();
    let alice = account("alice");
    let mut caller = Box::pin(market.bootstrap().bootstrap(&alice));
    assert!(futures::poll!(&mut caller).is_pending(), "it has begun and is not done");
    drop(caller);
    eventually("it is done all the same", || market.health().ready).await;
}

#[tokio::test]
async fn a_fence_ends_a_bootstrap_that_is_under_way_and_those_that_wait() {
    let world = World::new().await;
    world.installed(&release("echo", "1.0.0")).await;
    let connector = world.connector("echo").await;
    let mut uninstalling = connector.clone();
    uninstalling.installation = connector.installation.clone().begin_uninstall().expect("uninstalling");
    let mut tx = world.store.begin().await.expect("a transaction");
    tx.save_connector(&uninstalling).await.expect("saved");
    tx.commit().await.expect("committed");
    world.save_operation(&world.accepted("uninstall", OperationKind::Uninstall, Some(&connector))).await;
    // The bootstrap waits for the removal, which never ends.
    world.installer.hang("echo");
    let market = world.boot();
    let ask = |name: &'static str| {
        let bootstrap = Arc::clone(market.bootstrap());
        tokio::spawn(async move { bootstrap.bootstrap(&account(name)).await })
    };
    let first = ask("alice");
    eventually("it removes", || market.scheduler().is_running(&"uninstall".parse().expect("an id"))).await;
    let waiting = ask("bob");
    tokio::task::yield_now().await;
    let started = tokio::time::Instant::now();
    market.bootstrap().fence(&account("alice")).await.expect("fenced");
    // Less than the removal would have been waited for.
    assert!(started.elapsed() < 2 * SECOND, "it took {:?}", started.elapsed());
    for bootstrap in [first, waiting] {
        let error = bootstrap.await.expect("no panic").expect_err("fenced");
        assert_eq!((error.code, error.message.contains("fence")), (ErrorCode::Unavailable, true));
    }
    assert!(!market.health().bootstrapped && !world.host.is_published());
    assert_eq!(market.bootstrap().owed(), None, "and it is not tried again by itself");
    assert_eq!(market.bootstrap().scope(), account("alice"));
}

#[tokio::test]
async fn leases_of_an_earlier_boot_are_given_back_and_those_of_other_nodes_kept() {
    let world = World::new().await;
    for (id, owner) in [("own-old", "node/boot-0"), ("own-new", "node/boot-1"), ("other", "node2/boot-0")] {
        world.installed(&release(id, "1.0.0")).await;
        let connector = world.connector(id).await;
        world.save_operation(&world.accepted(id, OperationKind::Uninstall, Some(&connector))).await;
        let (id, owner) = (id.parse().expect("an id"), owner.parse().expect("a worker"));
        world.store.claim_operation(&id, &owner, 30 * SECOND).await.expect("claimed").expect("free");
    }
    let own = "node/boot-1".parse().expect("a worker");
    let released = release_leases_of_earlier_boots(&world.store, &world.node, &own, &account("alice")).await;
    assert_eq!(released.expect("readable"), 1);
    assert_eq!(world.operation("own-old").await.lease, None);
    assert!(world.operation("own-new").await.lease.is_some());
    assert!(world.operation("other").await.lease.is_some());
}
