//! `portcullis store`: what a database can be asked without a daemon.

use std::{collections::BTreeMap, time::Duration};

use clap::{Args, Subcommand};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::{
    exit::{Exit, Failure},
    output::Output,
};
use crate::{
    domain::error::Error,
    store::{
        contract::{Report, SqlDatabases, Suite, Verdict},
        sqlite_url,
    },
};

/// How long a rule that hangs may keep the process once everything is said.
const THREADS_LEFT: Duration = Duration::from_secs(1);

/// What a database's keeper does.
#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Check that a database keeps what the daemon relies on, on empty databases of its own
    Check(CheckOptions),
}

#[derive(Args, Debug)]
pub(super) struct CheckOptions {
    /// `postgres://…`: the rules run in schemas `portcullis_check_*` of that database, each dropped
    /// afterwards; `sqlite:PATH`: in files of a temporary folder beside PATH, which itself is never
    /// opened; or `sqlite::memory:` [default: SQLite in a temporary folder]
    #[arg(long, env = "PORTCULLIS_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,

    /// Check only the rules with FILTER in their name, as in `leases::` or `outbox::a_sequence`
    #[arg(long, value_name = "FILTER")]
    rule: Option<String>,
}

/// Runs a `store` command. The threads are several, so that a rule which blocks one
/// can be given up.
pub(super) fn run(command: StoreCommand, output: Output) -> Result<Exit, Failure> {
    let StoreCommand::Check(options) = command;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|cause| Failure::unexpected(format!("the runtime does not start: {cause}")))?;
    let outcome = runtime.block_on(check(options, output));
    runtime.shutdown_timeout(THREADS_LEFT);
    outcome
}

async fn check(options: CheckOptions, output: Output) -> Result<Exit, Failure> {
    let suite = match &options.rule {
        Some(filter) => Suite::default().matching(filter),
        None => Suite::default(),
    };
    if suite.rules().is_empty() {
        return Err(Failure::usage("no rule has that in its name; without --rule all are checked"));
    }
    let databases = match &options.database_url {
        Some(url) => SqlDatabases::beside(url)?,
        None => SqlDatabases::beside(&sqlite_url(&std::env::temp_dir().join("portcullis.db")))?,
    };
    let chosen = if options.database_url.is_some() { "" } else { ", as no --database-url was given" };
    let place = databases.place();
    output.note(format!("checking {} rules on {place}{chosen}", suite.rules().len()));

    let mut families = Families::of(&suite);
    let checking = suite.run(async || databases.create().await, |verdict| families.note(verdict, output));
    let report = tokio::select! {
        report = checking => report,
        stopped = stop() => Err(stopped),
    };
    let removed = databases.remove().await;
    let report = report?;
    removed?;
    output.document(&document(&place, &report));
    output.line(format!("{} passed, {} failed", report.passed(), report.failed()));
    Ok(if report.failed() == 0 { Exit::Ok } else { Exit::Unexpected })
}

/// Ends when the process is told to end.
async fn stop() -> Error {
    let listen =
        |kind| signal(kind).map_err(|cause| Error::unavailable("no signal arrives").with_cause(cause));
    match (listen(SignalKind::interrupt()), listen(SignalKind::terminate())) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Error::unavailable("the check was stopped before its end; its databases are removed")
        }
        (Err(error), _) | (_, Err(error)) => error,
    }
}

/// Tells a family's count as soon as its last rule is judged.
struct Families(BTreeMap<&'static str, Family>);

#[derive(Default)]
struct Family {
    left: usize,
    passed: usize,
    failed: usize,
}

impl Families {
    fn of(suite: &Suite) -> Self {
        let mut families: BTreeMap<&'static str, Family> = BTreeMap::new();
        for rule in suite.rules() {
            families.entry(rule.family).or_default().left += 1;
        }
        Self(families)
    }

    fn note(&mut self, verdict: &Verdict, output: Output) {
        if verdict.outcome.is_err() {
            output.line(verdict.to_string());
        }
        let family = self.0.entry(verdict.rule.family).or_default();
        match verdict.outcome {
            Ok(()) => family.passed += 1,
            Err(_) => family.failed += 1,
        }
        family.left = family.left.saturating_sub(1);
        if family.left == 0 {
            let failed =
                if family.failed == 0 { String::new() } else { format!(", {} failed", family.failed) };
            output.line(format!("{:<15} {} passed{failed}", verdict.rule.family, family.passed));
        }
    }
}

fn document(place: &str, report: &Report) -> serde_json::Value {
    let rules: Vec<serde_json::Value> = report
        .verdicts
        .iter()
        .map(|verdict| {
            json!({
                "rule": verdict.rule.to_string(),
                "passed": verdict.outcome.is_ok(),
                "message": verdict.outcome.as_ref().err(),
                "milliseconds": u64::try_from(verdict.took.as_millis()).unwrap_or(u64::MAX),
            })
        })
        .collect();
    json!({"database": place, "passed": report.passed(), "failed": report.failed(), "rules": rules})
}
