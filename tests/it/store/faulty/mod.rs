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
    breaks(
        Fault::CommitsWhatIsDropped,
        &[
            "commits::a_dropped_transaction_leaves_nothing",
            "authorizations::the_revision_of_an_accounts_truth_is_kept",
            "state::a_connectors_state_is_forgotten_everywhere",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_store_that_claims_what_is_held() {
    breaks(
        Fault::ClaimsWhatIsHeld,
        &[
            "leases::a_held_lease_refuses_other_workers_until_it_is_over",
            "leases::a_worker_does_not_enter_its_own_lease_again",
            "leases::a_renewal_keeps_others_away_for_longer",
            "leases::whoever_lost_a_lease_changes_nothing_under_it",
            "leases::a_lease_may_last_for_ever",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_store_that_loses_events() {
    breaks(
        Fault::LosesEvents,
        &[
            "commits::a_commit_writes_revision_rows_and_events_together",
            "commits::transactions_that_meet_lose_no_revision",
            "commits::reopening_keeps_everything",
            "scopes::a_scoped_snapshot_holds_the_callers_own_alone",
            "scopes::a_scoped_snapshot_is_of_one_revision",
            "outbox::the_owners_copy_comes_before_the_machines",
            "outbox::an_announcement_is_labelled_with_its_own_operation",
            "outbox::a_private_or_unknown_operation_has_no_owners_copy",
            "outbox::the_first_note_of_publication_stands",
            "outbox::pending_events_come_in_order_and_in_portions",
            "outbox::a_sequence_is_never_used_again",
            "cleanup::what_ended_by_the_cut_off_is_forgotten",
            "cleanup::active_operations_and_unpublished_events_stay",
            "cleanup::two_cleanups_at_once_forget_no_row_twice",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_store_that_saves_under_any_token() {
    breaks(
        Fault::SavesUnderAnyToken,
        &[
            "commits::a_failed_step_spoils_its_transaction",
            "leases::a_save_under_a_lost_lease_is_refused",
            "leases::whoever_lost_a_lease_changes_nothing_under_it",
            "leases::a_late_save_and_a_claim_at_once_agree",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_store_that_finishes_under_any_lease() {
    breaks(
        Fault::FinishesUnderAnyLease,
        &[
            "convergences::an_outcome_is_stored_and_ends_the_lease",
            "convergences::an_outcome_for_an_older_intent_is_refused",
            "convergences::an_outcome_after_the_lease_is_refused",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_store_that_shows_everybodys_operations() {
    breaks(
        Fault::ShowsEverybodysOperations,
        &[
            "commits::reopening_keeps_everything",
            "scopes::a_scoped_snapshot_holds_the_callers_own_alone",
            "scopes::signed_out_there_are_no_operations_or_authorizations",
            "scopes::a_scoped_snapshot_is_of_one_revision",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_store_that_cleans_without_bounds() {
    breaks(
        Fault::CleansWithoutBounds,
        &[
            "outbox::the_first_note_of_publication_stands",
            "cleanup::the_oldest_go_first",
            "cleanup::two_cleanups_at_once_forget_no_row_twice",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_store_that_takes_none_for_zero() {
    breaks(Fault::TakesNoneForZero, &["authorizations::the_revision_of_an_accounts_truth_is_kept"]).await;
}

#[tokio::test]
async fn a_store_that_hangs_fails_a_rule_and_not_the_run() {
    let suite = Suite::default().matching("_are_kept").with_time_limit(Duration::from_secs(5));
    let report = check(suite, Fault::Hangs).await;
    let broken: Vec<String> = report.failures().map(ToString::to_string).collect();
    assert_eq!(broken, ["commits::settings_are_kept does not hold: it has not ended after 5 s"]);
    assert_eq!(report.passed(), 1, "{report}");
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
