//! The neighbor: whatever one connector or caller does, another one is answered.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::{Duration, Instant},
};

use serde_json::json;

use super::{Daemon, eventually};

/// Longer than this no honest call waits, busy as the machine may be.
const PROMPT: Duration = Duration::from_secs(10);

/// Does `work` while `echo` is called over and over. Each of these calls is
/// answered, and at least one of them was begun and answered before `work` ended.
#[track_caller]
pub(super) fn beside<T>(daemon: &Daemon, work: impl FnOnce() -> T) -> T {
    let (done, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let neighbor = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let asked = Instant::now();
                let (status, answer) = daemon.call("echo.echo", &json!({ "message": "next door" }));
                assert_eq!(
                    (status, &answer["structuredContent"]["message"]),
                    (200, &json!("next door")),
                    "{answer}"
                );
                assert!(asked.elapsed() < PROMPT, "the neighbor waited for {:?}", asked.elapsed());
                answered.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        // Also where `work` panics: the scope waits for the neighbor.
        let stop = Stop(&done);
        let result = work();
        eventually("the neighbor is answered", || {
            (answered.load(Ordering::SeqCst) > 0 || neighbor.is_finished()).then_some(())
        });
        drop(stop);
        neighbor.join().unwrap();
        result
    })
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
