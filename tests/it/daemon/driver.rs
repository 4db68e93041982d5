//! What drives the background tasks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use portcullis::{
    daemon::{
        Lifecycle, StatusCell, TaskStatus,
        driver::{Task, Wake, doubling, drive},
        tasks::recovery_delay,
    },
    domain::error::Error,
};
use tokio::runtime::Handle;

use super::fakes::{FakeClock, eventually};

/// Fails on the second, panics on the third activation, and works on all others.
struct Moody(AtomicU32);

#[async_trait]
impl Task for Moody {
    fn name(&self) -> &'static str {
        "moody"
    }

    async fn activate(&self) -> Result<u64, Error> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            1 => Err(Error::unavailable("not now")),
            2 => panic!("as this test wants"),
            _ => Ok(7),
        }
    }

    fn pause(&self, failures: u32) -> Option<Duration> {
        Some(doubling(Duration::from_secs(10), failures, Duration::from_secs(60)))
    }
}

fn moody(from: u32, wake: &Wake, lifecycle: &Lifecycle) -> StatusCell {
    drive(Arc::new(Moody(AtomicU32::new(from))), wake.clone(), lifecycle, Arc::new(FakeClock::at(5)))
}

/// The status once the task has been activated `times`.
async fn after(status: &StatusCell, times: u64) -> TaskStatus {
    let ended = || Some(status.read()).filter(|now| now.activations == times && now.running_since.is_none());
    eventually("the activation has ended", || ended().is_some()).await;
    ended().expect("it rests until it is woken")
}

#[tokio::test]
async fn a_task_that_fails_or_panics_is_driven_on_and_its_status_says_so() {
    let (lifecycle, wake) = (Lifecycle::new(Handle::current()), Wake::default());
    let status = moody(0, &wake, &lifecycle);
    let worked = after(&status, 1).await;
    assert_eq!((worked.last_done, worked.failures, worked.last_failure), (7, 0, None));

    wake.wake();
    let failed = after(&status, 2).await;
    assert_eq!((failed.failures, failed.panics), (1, 0));
    assert_eq!(failed.last_failure.expect("a failure").message, "not now");

    wake.wake();
    let panicked = after(&status, 3).await;
    assert_eq!((panicked.failures, panicked.panics), (2, 1));
    let failure = panicked.last_failure.expect("a failure");
    assert_eq!((failure.code, failure.message.as_str()), (None, "it panicked: as this test wants"));

    wake.wake();
    let recovered = after(&status, 4).await;
    assert_eq!((recovered.failures, recovered.panics, recovered.last_done), (0, 1, 7));
    assert!(recovered.last_failure.is_some(), "what happened is still told");
}

/// Rests for a moment only.
struct Hasty(AtomicU32);

#[async_trait]
impl Task for Hasty {
    fn name(&self) -> &'static str {
        "hasty"
    }

    async fn activate(&self) -> Result<u64, Error> {
        Ok(u64::from(self.0.fetch_add(1, Ordering::SeqCst)))
    }

    fn pause(&self, _failures: u32) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

#[tokio::test]
async fn a_task_that_nobody_wakes_is_activated_by_its_timer_until_the_soft_stop() {
    let lifecycle = Lifecycle::new(Handle::current());
    let task = Arc::new(Hasty(AtomicU32::new(0)));
    let status = drive(Arc::clone(&task) as _, Wake::default(), &lifecycle, Arc::new(FakeClock::at(5)));
    eventually("the timer works", || status.read().activations >= 3).await;
    lifecycle.stop_softly();
    assert!(lifecycle.wait(Duration::from_secs(20)).await);
    let activations = task.0.load(Ordering::SeqCst);
    assert_eq!(u64::from(activations), status.read().activations);
}

#[test]
fn a_pause_doubles_with_every_failure_in_a_row() {
    let minute = Duration::from_secs(60);
    let pauses: Vec<u64> = (0..=6).map(|failures| doubling(minute, failures, 8 * minute).as_secs()).collect();
    assert_eq!(pauses, [60, 60, 120, 240, 480, 480, 480]);
    assert_eq!(doubling(minute, u32::MAX, 8 * minute), 8 * minute);
}

#[test]
fn s260_an_operation_is_left_alone_longer_with_every_attempt() {
    let delays: Vec<u128> = (0..=10).map(|attempt| recovery_delay(attempt).as_millis()).collect();
    assert_eq!(delays, [0, 0, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
    assert_eq!(recovery_delay(u32::MAX), Duration::from_secs(60));
}
