//! The store: the contract on every database there is, that the contract can fail,
//! and what is particular to files, servers and several processes.
//!
//! The scenarios of spec J.13, and which rule of the contract (`family::rule`) or
//! which test covers them. What the store leaves to the market is tested there.
//!
//! | J line | test or rule |
//! |---|---|
//! | 273 | `a_path_survives_its_url` (beside `connect.rs`), `file::any_path_can_be_named` |
//! | 274 | does not apply: no release of this program had the legacy trust tables; a database that is not ours is refused, `file::another_programs_database_is_refused_and_left_alone` |
//! | 275 | the columns are there from the first migration, so nothing is filled in; who sees what: `operations::ownership_is_settled_on_saving` |
//! | 276 | `operations::active_operations_are_recoverable_whoever_owns_them` |
//! | 277 | `operations::a_client_request_stands_for_one_operation_an_owner`, `operations::of_requests_at_once_under_one_id_one_is_stored` |
//! | 278 | `commits::a_commit_writes_revision_rows_and_events_together` |
//! | 279 | `commits::a_failed_step_spoils_its_transaction`, `commits::a_dropped_transaction_leaves_nothing` |
//! | 280 | `scopes::a_scoped_snapshot_holds_the_callers_own_alone`, `scopes::signed_out_there_are_no_operations_or_authorizations` |
//! | 281 | `operations::a_lane_holds_one_active_operation_of_any_account`, `operations::of_operations_at_once_in_one_lane_one_is_stored` |
//! | 282 | `operations::the_catalog_has_a_lane_of_its_own` |
//! | 283 | `outbox::a_private_or_unknown_operation_has_no_owners_copy` |
//! | 284 | kept, canceling too: `authorizations::an_attempt_is_open_from_its_operations_end_to_its_own`; hidden: the API's wire types, `api::market` |
//! | 285 | `authorizations::projections_are_apart_by_account` |
//! | 286 | `scopes::a_scoped_snapshot_holds_the_callers_own_alone`, `scopes::a_scoped_snapshot_is_of_one_revision` |
//! | 287 to 291 | the market decides these (`src/market/authorize/project.rs`); the store keeps what it decided: `authorizations::a_projection_is_kept_whole`, `authorizations::the_revision_of_an_accounts_truth_is_kept` |
//! | 292 | `leases::a_held_lease_refuses_other_workers_until_it_is_over` |
//! | 293 | `leases::whoever_lost_a_lease_changes_nothing_under_it`, `leases::a_renewal_without_the_lease_is_refused`, `leases::a_save_under_a_lost_lease_is_refused`, `leases::a_late_save_and_a_claim_at_once_agree` |
//! | 294 | `leases::claims_at_once_have_one_winner`, `convergences::claims_at_once_have_one_winner`, `race` for processes, `clock` for the server's time |
//! | 295 | `leases::a_worker_does_not_enter_its_own_lease_again` |
//! | 296 | `cleanup::what_ended_by_the_cut_off_is_forgotten` |
//! | 297 | `cleanup::active_operations_and_unpublished_events_stay` |
//! | 298 | `cleanup::a_forgotten_request_id_is_free_again` |
//! | 299 | `cleanup::a_batch_has_bounds`; a missing cut-off cannot be written down: `CleanupRequest` has both |
//! | 300 | `cleanup::two_cleanups_at_once_forget_no_row_twice` |
//! | 301 | `cleanup::active_operations_and_unpublished_events_stay`, `commits::reopening_keeps_everything` |
//! | 302 | `releases::evidence_outlives_its_operation` |
//! | 303 | `releases::a_completed_removal_takes_the_evidence_away`, `authorizations::a_projection_outlives_the_removal_of_its_connector` |
//! | 304 | `releases::a_received_release_is_found_beside_the_current_one` |
//! | 305 | `releases::a_received_release_is_found_beside_the_current_one`, `file::a_release_is_found_by_the_pointer_alone` |
//! | 306 | does not apply: every row of this program has the moment and the evidence; `commits::connectors_are_kept_whole_and_listed_by_key` keeps the moment |
//! | 307 | does not apply, as 306; what no evidence is found for: `releases::a_release_that_was_not_received_is_not_evidence` |
//! | 308 | `convergences::what_this_boot_has_seen_is_not_due` |
//! | 309 | `convergences::an_outcome_for_an_older_intent_is_refused`, `convergences::an_outcome_and_a_new_intent_at_once_agree` |
//! | 310 | `operations::a_snapshot_hides_runtime_operations` |

mod changes;
mod clock;
mod contract;
mod faults;
mod faulty;
mod file;
mod migrations;
pub(crate) mod postgres;
mod race;

use std::collections::BTreeSet;

use portcullis::domain::{
    id::{ClientRequestId, ConnectorKey, OperationId},
    lease::LeaseToken,
    operation::{Execution, Operation, OperationKind, OperationScope, OperationState, Stage, Visibility},
    timestamp::Timestamp,
};
use portcullis::store::contract::RULES;

/// An accepted operation of nobody, in the lane of `connector`.
fn operation(operation_id: OperationId, connector: &str) -> Operation {
    let request = ClientRequestId::parse(format!("request-{operation_id}")).expect("a request id");
    Operation {
        operation_id,
        client_request_id: request,
        owner_account_id: None,
        visibility: Visibility::SystemPrivate,
        connector_key: Some(ConnectorKey::parse(connector).expect("a key")),
        kind: OperationKind::Install,
        scope: OperationScope::default(),
        state: OperationState::Accepted,
        stage: Stage::Accepted,
        target: None,
        generation: None,
        execution: Execution::default(),
        attempt: 0,
        interrupted: 0,
        lease: None,
        lease_token: LeaseToken(0),
        created_at: Timestamp(1_000),
        updated_at: Timestamp(1_000),
    }
}

/// The rows of the table above, each with the words in it that are code.
fn table() -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = include_str!("mod.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
    rows.skip(1)
        .filter_map(|row| row.split_once(" | "))
        .map(|(lines, rest)| (lines, rest.split('`').skip(1).step_by(2).collect()))
        .collect()
}

#[test]
fn the_table_covers_every_scenario_and_names_rules_that_exist() {
    let rules: BTreeSet<String> = RULES.iter().map(ToString::to_string).collect();
    let families: BTreeSet<&str> = RULES.iter().map(|rule| rule.family).collect();
    let mut covered = BTreeSet::new();
    for (lines, words) in table() {
        let (first, last) = lines.split_once(" to ").unwrap_or((lines, lines));
        covered.extend(first.parse::<u32>().expect("a number")..=last.parse().expect("a number"));
        assert!(!words.is_empty(), "{lines} names nothing");
        for word in words {
            let family = word.split("::").next().unwrap_or_default();
            assert!(!families.contains(family) || rules.contains(word), "{lines}: there is no rule {word}");
        }
    }
    assert_eq!(covered, (273..=310).collect());
}
