//! A fresh instance from the pool, with its store.

use std::time::Instant;

use super::{Bar, Row, bare::Bare, guest, percentile};

pub(crate) const NAME: &str = "fresh instance, p50, echo";

pub(crate) fn measure() -> Row {
    let bare = Bare::new(&guest::echo());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut samples = runtime.block_on(async {
        let mut samples = Vec::new();
        for _ in 0..20_000 {
            let start = Instant::now();
            let instance = bare.instance().await;
            samples.push(start.elapsed());
            drop(instance);
        }
        samples
    });
    Row {
        name: NAME,
        measured: percentile(&mut samples[1_000..], 50),
        reference: None,
        bar: Bar::Time(std::time::Duration::from_micros(50)),
        condition: Ok(()),
    }
}
