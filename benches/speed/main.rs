//! The speed table: what is measured, what it is compared with in the same run,
//! and the bar. A row that misses its bar is `short`, and any short row makes
//! the exit code 1. Nothing here is a test; nothing here runs in CI.

mod bare;
mod call;
mod client;
mod daemon;
mod database;
mod fence;
mod guest;
mod instance;
mod market;
mod operations;
mod refresh;
mod restart;
mod snapshot;

use std::{process::ExitCode, time::Duration};

/// How a row is measured.
type Measure = fn() -> Row;

/// One line of the table.
struct Row {
    name: &'static str,
    measured: Duration,
    /// What it is compared with; none when the bar is a plain time.
    reference: Option<Duration>,
    bar: Bar,
    /// What else must hold, or why it does not.
    condition: Result<(), String>,
}

/// What a row must reach.
enum Bar {
    /// At most so many times the reference.
    Ratio(f64),
    /// At most so long.
    Time(Duration),
}

impl Row {
    fn holds(&self) -> bool {
        let fast = match (&self.bar, self.reference) {
            (Bar::Ratio(most), Some(reference)) => ratio(self.measured, reference) <= *most,
            (Bar::Ratio(_), None) => false,
            (Bar::Time(most), _) => self.measured <= *most,
        };
        fast && self.condition.is_ok()
    }

    fn print(&self) {
        let reference = self.reference.map_or("-".to_owned(), |reference| format!("{reference:.1?}"));
        let (compared, bar) = match &self.bar {
            Bar::Ratio(most) => {
                let compared = self.reference.map_or(f64::NAN, |reference| ratio(self.measured, reference));
                (format!("{compared:.2}x"), format!("{most:.2}x"))
            }
            Bar::Time(most) => (format!("{:.2} of bar", ratio(self.measured, *most)), format!("{most:?}")),
        };
        let verdict = if self.holds() { "ok" } else { "short" };
        let note = self.condition.as_ref().err().map(|why| format!(" ({why})")).unwrap_or_default();
        println!(
            "{:<44} {:>10} {:>10} {:>12} {:>8}  {verdict}{note}",
            self.name,
            format!("{:.1?}", self.measured),
            reference,
            compared,
            bar
        );
    }
}

fn ratio(measured: Duration, reference: Duration) -> f64 {
    measured.as_secs_f64() / reference.as_secs_f64()
}

/// The value below which `percent` of the samples lie.
fn percentile(samples: &mut [Duration], percent: usize) -> Duration {
    samples.sort_unstable();
    samples[(samples.len() - 1) * percent / 100]
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [role, component] = words.as_slice()
        && role == bare::ROLE
    {
        return bare::serve(component.as_ref());
    }
    println!("{:<44} {:>10} {:>10} {:>12} {:>8}", "name", "measured", "reference", "ratio", "bar");
    let rows: [(&str, Measure); 9] = [
        (call::NAME, call::measure),
        (instance::NAME, instance::measure),
        (fence::NAME, fence::measure),
        (restart::NAME, restart::measure),
        (snapshot::SQLITE, snapshot::sqlite),
        (snapshot::POSTGRES, snapshot::postgres),
        (operations::SQLITE, operations::sqlite),
        (operations::POSTGRES, operations::postgres),
        (refresh::NAME, refresh::measure),
    ];
    let mut short = 0;
    for (name, measure) in rows {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            let row = measure();
            row.print();
            short += usize::from(!row.holds());
        }
    }
    ExitCode::from(u8::from(short > 0))
}
