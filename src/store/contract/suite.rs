//! Running the rules one after the other, each on a database of its own.

use std::{
    cell::RefCell,
    fmt,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Once},
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::{RULES, Rule, StoreFactory};
use crate::domain::error::Error;

/// How long a rule may take; the longest needs a few seconds.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How long a rule that was told to end, or a database that is removed, may take.
const GRACE: Duration = Duration::from_secs(20);

/// The rules that are to be checked, and for how long each.
#[derive(Clone)]
pub struct Suite {
    rules: Vec<&'static Rule>,
    time_limit: Duration,
}

/// Every rule, each for at most a minute.
impl Default for Suite {
    fn default() -> Self {
        Self { rules: RULES.iter().collect(), time_limit: TIME_LIMIT }
    }
}

impl Suite {
    /// Only the rules with `part` in their name, which is `family::name`.
    #[must_use]
    pub fn matching(mut self, part: &str) -> Self {
        self.rules.retain(|rule| rule.to_string().contains(part));
        self
    }

    /// Another time limit for each rule.
    #[must_use]
    pub fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// The rules, in the order they are checked in.
    #[must_use]
    pub fn rules(&self) -> &[&'static Rule] {
        &self.rules
    }

    /// Checks every rule on an empty database that `create` makes, and removes that
    /// database. `on_verdict` sees each verdict as soon as there is one.
    ///
    /// A rule runs in a task of its own: a broken expectation, an error, a time limit
    /// that is over, and a database that cannot be removed are one failed rule each,
    /// and the next one begins. What a broken expectation says is kept in its verdict
    /// and not printed: the first run puts a panic hook before the one that is there,
    /// which goes on to see every other panic.
    ///
    /// It needs a Tokio runtime, best one with several threads: a store that blocks
    /// the only one cannot be given up.
    ///
    /// # Errors
    /// When a database cannot be made.
    pub async fn run(
        &self,
        create: impl AsyncFn() -> Result<Arc<dyn StoreFactory>, Error>,
        mut on_verdict: impl FnMut(&Verdict),
    ) -> Result<Report, Error> {
        keep_broken_expectations();
        let mut report = Report::default();
        for &rule in &self.rules {
            let Ok(database) = timeout(self.time_limit, create()).await else {
                return Err(Error::unavailable("an empty database was not made in time"));
            };
            let database = database?;
            let started = Instant::now();
            let outcome = self.judge(rule, database.clone()).await;
            let took = started.elapsed();
            let removed = match timeout(GRACE, database.remove()).await {
                Ok(removed) => removed.map_err(|error| format!("its database is not removed: {error:?}")),
                Err(_) => Err("its database is not removed in time".to_owned()),
            };
            let verdict = Verdict { rule, outcome: outcome.and(removed), took };
            on_verdict(&verdict);
            report.verdicts.push(verdict);
        }
        Ok(report)
    }

    async fn judge(&self, rule: &'static Rule, database: Arc<dyn StoreFactory>) -> Result<(), String> {
        let mut task = AbortOnDropHandle::new(tokio::spawn(hold(rule, database)));
        match timeout(self.time_limit, &mut task).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(cause)) => Err(format!("its task did not end by itself: {cause}")),
            Err(_) => {
                task.abort();
                let _ = timeout(GRACE, task).await;
                Err(format!("it has not ended after {} s", self.time_limit.as_secs_f32()))
            }
        }
    }
}

tokio::task_local! {
    /// What the rule that runs here expected in vain.
    static BROKEN: RefCell<Option<String>>;
}

async fn hold(rule: &'static Rule, database: Arc<dyn StoreFactory>) -> Result<(), String> {
    let judged = async move {
        match AssertUnwindSafe((rule.run)(database)).catch_unwind().await {
            Ok(outcome) => outcome.map_err(|error| format!("{error:?}")),
            Err(_) => {
                let said = BROKEN.with(RefCell::take);
                Err(said.unwrap_or_else(|| "an expectation is broken".to_owned()))
            }
        }
    };
    BROKEN.scope(RefCell::new(None), judged).await
}

fn keep_broken_expectations() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| {
        let otherwise = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let place = panic.location().map(|at| format!(" ({}:{})", at.file(), at.line()));
            let said = panic.payload_as_str().unwrap_or("an expectation is broken");
            let said = format!("{said}{}", place.unwrap_or_default());
            if BROKEN.try_with(|broken| broken.replace(Some(said))).is_err() {
                otherwise(panic);
            }
        }));
    });
}

/// What became of one rule.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The rule.
    pub rule: &'static Rule,
    /// Why it does not hold, for people.
    pub outcome: Result<(), String>,
    /// How long it took, its database apart.
    pub took: Duration,
}

/// The rule, and what is broken.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(()) => write!(f, "{} holds", self.rule),
            Err(message) => write!(f, "{} does not hold: {message}", self.rule),
        }
    }
}

/// What became of all rules.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of checking.
    pub verdicts: Vec<Verdict>,
}

impl Report {
    /// How many rules hold.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.verdicts.len() - self.failed()
    }

    /// How many rules do not hold.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.failures().count()
    }

    /// The verdicts on the rules that do not hold.
    pub fn failures(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(|verdict| verdict.outcome.is_err())
    }
}

/// Every failure on lines of its own, and at last `N passed, N failed`.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in self.failures() {
            writeln!(f, "{failure}")?;
        }
        write!(f, "{} passed, {} failed", self.passed(), self.failed())
    }
}
