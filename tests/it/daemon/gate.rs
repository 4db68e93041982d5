//! The activation gate (spec D.2; J.12, 240 to 243).

use std::{sync::Arc, time::Duration};

use portcullis::{
    daemon::ActivationGate,
    domain::{
        error::ErrorCode,
        runtime::{REASON_PUBLICATION_GATE_CLOSED, ReadinessState},
    },
    ports::ImplementationHost,
};

use super::fakes::{Asked, FakeHost, account, deactivate, eventually, key, reconcile};

const SECOND: Duration = Duration::from_secs(1);

fn gate() -> (Arc<FakeHost>, Arc<ActivationGate>) {
    let host = Arc::new(FakeHost::default());
    let gate = Arc::new(ActivationGate::new(Arc::clone(&host) as _));
    (host, gate)
}

#[tokio::test]
async fn s240_a_closed_gate_blocks_an_enabled_reconcile_without_asking_the_host() {
    let (host, gate) = gate();
    let alice = account("alice");
    gate.shut(&alice);
    let request = reconcile(&alice, "echo", true, 3);
    let receipt = gate.reconcile(&request).await.expect("an answer");
    assert_eq!(receipt.readiness.state, ReadinessState::Blocked);
    assert_eq!(receipt.readiness.reason_code.as_deref(), Some(REASON_PUBLICATION_GATE_CLOSED));
    assert_eq!(host.asked(), []);
    assert_eq!(gate.staged(), 1);
    let error = receipt.verify(&request).expect_err("it is not ready");
    assert!(error.retryable, "an install that met a closed gate is finished later, not failed");
}

#[tokio::test]
async fn s241_an_open_gate_delegates_an_enabled_reconcile() {
    let (host, gate) = gate();
    let alice = account("alice");
    gate.open(&alice);
    let receipt = gate.reconcile(&reconcile(&alice, "echo", true, 3)).await.expect("an answer");
    assert_eq!(receipt.readiness.state, ReadinessState::Ready);
    assert_eq!(host.asked(), [Asked::Enable(key("echo"), 3)]);
}

#[tokio::test]
async fn s242_a_closed_gate_delegates_what_takes_routes_down_and_stages_nothing() {
    let (host, gate) = gate();
    let alice = account("alice");
    gate.shut(&alice);
    gate.reconcile(&reconcile(&alice, "echo", false, 3)).await.expect("an answer");
    gate.deactivate(&deactivate(&alice, "echo", 4), SECOND).await.expect("an answer");
    assert_eq!(host.asked(), [Asked::Disable(key("echo"), 3), Asked::Deactivate(key("echo"))]);
    assert_eq!(gate.staged(), 0);
}

#[tokio::test]
async fn s243_a_request_for_another_account_is_rejected_and_changes_nothing() {
    let (host, gate) = gate();
    gate.open(&account("alice"));
    let bob = account("bob");
    let up = gate.reconcile(&reconcile(&bob, "echo", true, 3)).await.expect_err("another account");
    let down = gate.reconcile(&reconcile(&bob, "echo", false, 3)).await.expect_err("another account");
    let away = gate.deactivate(&deactivate(&bob, "echo", 3), SECOND).await.expect_err("another account");
    for error in [up, down, away] {
        assert_eq!(error.code, ErrorCode::Unavailable);
        assert!(!error.message.contains("alice") && !error.message.contains("bob"), "{}", error.message);
    }
    assert_eq!(host.asked(), []);
    assert_eq!(gate.staged(), 0);
}

#[tokio::test]
async fn what_was_staged_is_never_replayed() {
    let (host, gate) = gate();
    let alice = account("alice");
    gate.shut(&alice);
    gate.reconcile(&reconcile(&alice, "echo", true, 3)).await.expect("an answer");
    gate.reconcile(&reconcile(&alice, "echo", true, 2)).await.expect("an older one is blocked as well");
    assert_eq!(gate.staged(), 1);
    gate.open(&alice);
    assert_eq!(host.asked(), []);
    gate.shut(&alice);
    assert_eq!(gate.staged(), 0, "closing forgets");
}

#[tokio::test]
async fn handing_the_gate_to_another_account_forgets_what_was_staged() {
    let (_, gate) = gate();
    gate.shut(&account("alice"));
    gate.reconcile(&reconcile(&account("alice"), "echo", true, 3)).await.expect("an answer");
    gate.open(&account("bob"));
    assert_eq!(gate.staged(), 0);
}

#[tokio::test]
async fn failing_closed_closes_until_recovery_is_noted() {
    let (host, gate) = gate();
    let alice = account("alice");
    gate.open(&alice);
    gate.set_publication(true);
    gate.fail_closed(SECOND).await.expect("fenced");
    assert!(!gate.is_open() && gate.requires_recovery() && !host.is_published());
    assert_eq!(host.asked(), [Asked::FailClosed]);
    gate.open(&alice);
    assert!(gate.requires_recovery(), "opening alone recovers nothing");
    gate.mark_recovered();
    assert!(!gate.requires_recovery());
}

#[tokio::test]
async fn a_closed_gate_cannot_be_told_to_publish() {
    let (host, gate) = gate();
    gate.shut(&account("alice"));
    gate.set_publication(true);
    assert!(!host.is_published());
    gate.open(&account("alice"));
    gate.set_publication(true);
    assert!(host.is_published());
}

#[tokio::test]
async fn a_fence_gives_up_a_route_that_is_being_enabled() {
    let (host, gate) = gate();
    let alice = account("alice");
    gate.open(&alice);
    host.hang(&key("slow"));
    let pending = tokio::spawn({
        let (gate, request) = (Arc::clone(&gate), reconcile(&alice, "slow", true, 3));
        async move { gate.reconcile(&request).await }
    });
    eventually("the host was asked", || !host.asked().is_empty()).await;
    let started = tokio::time::Instant::now();
    gate.fail_closed(60 * SECOND).await.expect("the fence does not wait for the probe");
    assert!(started.elapsed() < SECOND);
    let error = pending.await.expect("it ended").expect_err("given up");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
}

#[tokio::test]
async fn a_change_that_hangs_delays_a_fence_but_does_not_prevent_it() {
    let (host, gate) = gate();
    let alice = account("alice");
    gate.open(&alice);
    gate.set_publication(true);
    host.hang(&key("slow"));
    let pending = tokio::spawn({
        let (gate, request) = (Arc::clone(&gate), reconcile(&alice, "slow", false, 3));
        async move { gate.reconcile(&request).await }
    });
    eventually("the host was asked", || !host.asked().is_empty()).await;
    let error =
        gate.fail_closed(Duration::from_millis(20)).await.expect_err("not everything is known to be gone");
    assert!(error.retryable);
    assert_eq!(host.asked(), [Asked::Disable(key("slow"), 3), Asked::FailClosed]);
    assert!(!host.is_published() && !gate.is_open());
    pending.abort();
    let _ = pending.await;
    gate.fail_closed(SECOND).await.expect("repeated once the change is gone");
}
