//! Who runs operations (J.12, 261).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use portcullis::{
    daemon::{Lifecycle, LocalScheduler, driver::Wake},
    domain::{
        error::{Error, ErrorCode},
        id::OperationId,
    },
    ports::OperationScheduler,
};
use tokio::{runtime::Handle, sync::Semaphore};

use super::fakes::eventually;

fn id(text: &str) -> OperationId {
    text.parse().expect("an operation id")
}

struct Fixture {
    scheduler: LocalScheduler,
    lifecycle: Lifecycle,
    begun: Arc<AtomicU32>,
    ends: Arc<Semaphore>,
}

/// A scheduler whose operations run until `ends` has a permit for them.
fn fixture() -> Fixture {
    let lifecycle = Lifecycle::new(Handle::current());
    let scheduler = LocalScheduler::new(lifecycle.clone(), Wake::default());
    let (begun, ends) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
    let (counter, permits) = (Arc::clone(&begun), Arc::clone(&ends));
    scheduler.bind(Box::new(move |id| {
        let (counter, permits) = (Arc::clone(&counter), Arc::clone(&permits));
        Box::pin(async move {
            counter.fetch_add(1, Ordering::SeqCst);
            permits.acquire().await.expect("open").forget();
            match id.as_str() {
                "panics" => panic!("as this test wants"),
                "fails" => Err(Error::unavailable("as this test wants")),
                _ => Ok(()),
            }
        })
    }));
    Fixture { scheduler, lifecycle, begun, ends }
}

impl Fixture {
    fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    async fn settle(&self, operation: &OperationId) {
        self.ends.add_permits(1);
        eventually("it has ended", || !self.scheduler.is_running(operation)).await;
    }
}

#[tokio::test]
async fn s261_the_same_operation_scheduled_twice_runs_once_at_a_time() {
    let fixture = fixture();
    let operation = id("one");
    fixture.scheduler.schedule(&operation).expect("scheduled");
    fixture.scheduler.schedule(&operation).expect("joined");
    fixture.scheduler.schedule(&id("other")).expect("scheduled");
    eventually("both have begun", || fixture.begun() == 2).await;
    fixture.ends.add_permits(2);
    let (one, other) = (&operation, &id("other"));
    eventually("both have ended", || {
        !fixture.scheduler.is_running(one) && !fixture.scheduler.is_running(other)
    })
    .await;
    assert_eq!(fixture.begun(), 2, "one run of each");
    fixture.scheduler.schedule(&operation).expect("it can run again once it has ended");
    eventually("it has begun", || fixture.begun() == 3).await;
}

#[tokio::test]
async fn an_operation_that_fails_or_panics_can_be_scheduled_again() {
    let fixture = fixture();
    for name in ["fails", "panics"] {
        let operation = id(name);
        let before = fixture.begun();
        fixture.scheduler.schedule(&operation).expect("scheduled");
        fixture.settle(&operation).await;
        fixture.scheduler.schedule(&operation).expect("again");
        fixture.settle(&operation).await;
        assert_eq!(fixture.begun(), before + 2, "{name}");
    }
}

#[tokio::test]
async fn nothing_is_scheduled_before_the_daemon_has_started_or_once_it_stops() {
    let lifecycle = Lifecycle::new(Handle::current());
    let unbound = LocalScheduler::new(lifecycle, Wake::default());
    let early = unbound.schedule(&id("one")).expect_err("not bound");
    assert_eq!((early.code, early.retryable), (ErrorCode::Unavailable, true));
    assert!(!unbound.is_running(&id("one")));

    let fixture = fixture();
    fixture.lifecycle.stop_softly();
    let late = fixture.scheduler.schedule(&id("one")).expect_err("stopping");
    assert_eq!((late.code, late.retryable), (ErrorCode::Unavailable, true));
    assert_eq!(fixture.begun(), 0);
}

#[tokio::test]
async fn a_hard_stop_gives_up_what_runs() {
    let fixture = fixture();
    fixture.scheduler.schedule(&id("endless")).expect("scheduled");
    fixture.lifecycle.stop_softly();
    assert!(!fixture.lifecycle.wait(Duration::from_millis(20)).await, "a soft stop lets it run");
    fixture.lifecycle.stop_hard();
    assert!(fixture.lifecycle.wait(Duration::from_secs(20)).await);
    assert!(!fixture.scheduler.is_running(&id("endless")));
}
