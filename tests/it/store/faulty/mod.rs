//! The contract can fail: a store with a fault breaks the rules about that, and no
//! others.

mod wrapper;

use std::{sync::Arc, time::Duration};

use portcullis::{
    domain::error::{Error, ErrorCode},
    store::contract::{RULES, Report, SqlDatabases, StoreFactory, Suite},
};

use wrapper::{Fault, FaultyDatabase};

async fn check(suite: Suite, fault: Fault) -> Report {
    let databases = SqlDatabases::beside("sqlite::memory:").expect("a place for databases");
    let create = async || {
        let database = databases.create().await?;
        Ok(Arc::new(FaultyDatabase(database, fault)) as Arc<dyn StoreFactory>)
    };
    let mut seen = Vec::new();
    let report = suite.run(create, |verdict| seen.push(verdict.rule.to_string())).await;
    let report = report.expect("the databases are made");
    let judged: Vec<String> = report.verdicts.iter().map(|verdict| verdict.rule.to_string()).collect();
    assert_eq!(seen, judged, "every verdict is told once, in order");
    report
}

/// Checks every rule; those that are named must break, and no others.
async fn breaks(fault: Fault, expected: &[&str]) {
    let report = check(Suite::default(), fault).await;
    let broken: Vec<String> = report.failures().map(|verdict| verdict.rule.to_string()).collect();
    assert_eq!(broken, expected, "{report}");
    assert_eq!((report.passed(), report.failed()), (RULES.len() - expected.len(), expected.len()));
    let text = report.to_string();
    let last = format!("{} passed, {} failed", report.passed(), report.failed());
    assert_eq!(text.lines().last(), Some(last.as_str()));
    for (failure, rule) in report.failures().zip(expected) {
        let message = failure.outcome.as_ref().expect_err("it is a failure");
        assert!(text.contains(&format!("{rule} does not hold: {message}")), "{text}");
    }
}

#[tokio::test]
async fn a_store_that_commits_what_is_dropped() {
    breaks(Fault::CommitsWhatIsDropped, &[]).await;
}

#[tokio::test]
async fn a_store_that_claims_what_is_held() {
    breaks(Fault::ClaimsWhatIsHeld, &[]).await;
}

#[tokio::test]
async fn a_store_that_loses_events() {
    breaks(Fault::LosesEvents, &[]).await;
}

#[tokio::test]
async fn a_store_that_saves_under_any_token() {
    breaks(Fault::SavesUnderAnyToken, &[]).await;
}

#[tokio::test]
async fn a_store_that_finishes_under_any_lease() {
    breaks(Fault::FinishesUnderAnyLease, &[]).await;
}

#[tokio::test]
async fn a_store_that_shows_everybodys_operations() {
    breaks(Fault::ShowsEverybodysOperations, &[]).await;
}

#[tokio::test]
async fn a_store_that_cleans_without_bounds() {
    breaks(Fault::CleansWithoutBounds, &[]).await;
}

#[tokio::test]
async fn a_store_that_takes_none_for_zero() {
    breaks(Fault::TakesNoneForZero, &[]).await;
}

#[tokio::test]
async fn a_store_that_hangs_fails_a_rule_and_not_the_run() {
    let suite = Suite::default().matching("commits::").with_time_limit(Duration::from_secs(5));
    let report = check(suite, Fault::Hangs).await;
    let broken: Vec<String> = report.failures().map(ToString::to_string).collect();
    let late = "does not hold: it has not ended after 5 s";
    let expected = ["commits::settings_are_kept", "commits::reopening_keeps_everything"];
    assert_eq!(broken, expected.map(|rule| format!("{rule} {late}")));
    assert!(report.passed() > 5, "{report}");
}

#[tokio::test]
async fn a_database_that_stays_behind_fails_its_rule() {
    let report = check(Suite::default().matching("compiled::"), Fault::StaysBehind).await;
    assert_eq!((report.passed(), report.failed()), (0, 2));
    assert!(report.to_string().contains("it is still there"), "{report}");
}

#[tokio::test]
async fn a_database_that_cannot_be_made_ends_the_run() {
    let create = async || Err(Error::unavailable("no database today"));
    let error = Suite::default().run(create, |verdict| panic!("{verdict}")).await.expect_err("there is none");
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::Unavailable, "no database today"));
}
