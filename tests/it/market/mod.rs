//! The market, scenario by scenario: a number after `s` is one of section J of the
//! specification. The rest of the world is scripted, but the store is a real
//! database: every scenario is told once and runs on each kind there is.
//!
//! What follows says where each scenario is told: a module here, or a path below
//! `tests/it` or `src`. [`crate::scenarios`] sees to it that it stays true.
//!
//! # J.1 Reads and visibility
//!
//! | line | where |
//! |---|---|
//! | 1, 6 | `reads::s001_s006_a_connector_whose_release_does_not_hold_is_hidden_and_the_others_are_not` |
//! | 2 | `reads::s002_getting_that_connector_tells_what_does_not_hold` |
//! | 3 to 5 | `reads::s003_s004_s005_a_delisted_connector_is_hidden_with_its_operations_and_still_stored` |
//! | 7 | `reads::s007_an_unscoped_snapshot_has_no_operations` |
//! | 8, 9, 11 | `reads::s008_s009_s011_an_operation_is_there_for_its_owner_alone` |
//! | 10, 12 | `reads::s010_s012_a_private_operation_is_there_for_nobody` |
//! | 13 | `reads::s013_blank_keys_and_ids_are_refused_where_they_come_in` |
//! | 14, 16 to 18 | `reads::s014_s016_s017_s018_s019_the_runtime_is_told_from_the_intent_and_what_was_seen` |
//! | 15 | `reads::s015_installed_without_an_intent_is_starting` |
//! | 19 | `reads::s014_s016_s017_s018_s019_the_runtime_is_told_from_the_intent_and_what_was_seen`, `reads::s019_what_an_earlier_boot_saw_is_starting` |
//! | 20 | `reads::s020_what_is_not_installed_has_no_runtime` |
//!
//! # J.2 Acceptance and idempotency
//!
//! | line | where |
//! |---|---|
//! | 21 | `acceptance::s021_the_same_command_again_is_the_same_operation`, `contended::what_meets_others_a_few_times_is_done_once` |
//! | 22 | `acceptance::s022_a_stale_revision_is_refused`, `refusals::a_revision_that_is_not_the_current_one_is_refused_by_every_command` |
//! | 23 | `acceptance::s023_a_connectors_own_revision_stands_in_for_the_global_one` |
//! | 24 | `acceptance::s024_a_wrong_connector_revision_is_refused_whatever_the_global_one_is`, `refusals::a_revision_that_is_not_the_current_one_is_refused_by_every_command` |
//! | 25 | `acceptance::s025_a_second_operation_in_the_lane_is_refused`, `refusals::a_busy_lane_is_refused_by_every_command` |
//! | 26 | `acceptance::s026_the_lane_is_one_for_all_accounts`, `refusals::a_busy_lane_is_refused_by_every_command` |
//! | 27 | `acceptance::s027_a_request_id_belongs_to_its_account` |
//! | 28 | `acceptance::s028_a_request_id_is_not_used_for_another_command`, `refusals::a_request_id_of_another_command_is_refused_by_every_command` |
//! | 29, 30 | `acceptance::s029_s030_a_request_id_counts_as_long_as_its_operation_is_kept` |
//! | 31 | `acceptance::s031_a_blank_request_id_is_refused_where_it_comes_in` |
//! | 32 | `accounts::s032_an_authorization_begins_while_the_catalog_is_refreshed` |
//! | 33 | `acceptance::s033_the_catalogs_lane_is_its_own` |
//! | 34 | `acceptance::s034_a_second_refresh_is_refused` |
//! | 35 | `acceptance::s035_the_acceptance_is_announced_with_it` |
//! | 36 | `acceptance::s036_a_hint_that_fails_leaves_the_command_accepted`, `refusals::without_a_scheduler_every_command_is_stored_all_the_same` |
//! | 37 | `acceptance::s037_what_does_not_run_here_is_not_installed` |
//! | 38 | `acceptance::s038_an_update_without_its_operation_is_not_begun_again`, `refusals::what_is_under_way_is_begun_by_no_second_command` |
//! | 39, 40 | `acceptance::s039_s040_a_repair_forgets_the_evidence_first` |
//! | 41 | `acceptance::s041_an_update_keeps_what_is_installed` |
//! | 42 | `acceptance::s042_what_is_not_installed_is_not_uninstalled`, `refusals::what_is_not_installed_is_refused_by_what_needs_it` |
//!
//! # J.3 Catalog browsing and refresh
//!
//! | line | where |
//! |---|---|
//! | 43 | `browsing::s043_s044_what_is_seen_is_stored_once`, `browsing::s043_what_is_seen_can_be_installed_at_once` |
//! | 44 | `browsing::s043_s044_what_is_seen_is_stored_once` |
//! | 45, 46 | `browsing::s045_s046_the_sources_errors_keep_their_meaning` |
//! | 47 | `browsing::s047_the_filter_goes_on_until_it_has_enough` |
//! | 48 | `browsing::s048_a_connector_whose_files_are_gone_counts_as_not_installed` |
//! | 49 | `browsing::s049_everything_installed_is_an_empty_page` |
//! | 50 | `browsing::s050_a_slow_older_page_does_not_overwrite_a_newer_one` |
//! | 51 | `browsing::s051_a_slow_older_page_does_not_bring_back_what_was_delisted` |
//! | 52 | `browsing::s052_a_source_that_does_not_get_on_is_refused` |
//! | 53, 54 | `browsing::s053_s054_a_page_that_cannot_be_asked_for` |
//! | 55, 56 | `browsing::s055_s056_a_page_that_breaks_a_rule_is_not_stored` |
//! | 57 | `browsing::s057_a_category_that_breaks_a_rule_is_refused` |
//! | 58, 66 | `refreshing::s058_s066_one_wrong_release_and_nothing_is_applied` |
//! | 59, 60 | `refreshing::s059_s060_a_source_that_fails_leaves_the_last_known_good` |
//! | 61, 62 | `refreshing::s061_s062_what_is_delisted_goes_once_nothing_hangs_on_it` |
//! | 63 | `refreshing::s063_what_is_delisted_and_installed_stays_and_can_be_uninstalled` |
//! | 64 | `browsing::s064_a_page_that_lists_a_delisted_connector_lists_it_again` |
//! | 65 | `refreshing::s065_a_refresh_that_was_overtaken_applies_nothing_and_leaves_the_catalog_ready` |
//! | 67, 68 | `refreshing::s067_s068_authorization_follows_what_the_release_asks_for` |
//!
//! # J.4 Install and uninstall execution
//!
//! | line | where |
//! |---|---|
//! | 69, 75 | `installing::s069_s075_an_install_puts_in_place_starts_commits_and_is_observed` |
//! | 70 | `installing::s070_a_transient_error_of_the_installer_is_tried_again` |
//! | 71, 83 | `installing::s071_s083_a_permanent_error_ends_a_fresh_install_and_leaves_nothing` |
//! | 72 | `installing::s072_a_release_that_cannot_be_made_current_is_never_called_installed` |
//! | 73 | no: nothing is installed but a component, so there is no CLI and no receipt of one |
//! | 74 | `installing::s074_a_connector_that_needs_an_authorization_is_installed_and_does_not_run` |
//! | 76 | no: a receipt names digests, never a path or a reference to one |
//! | 77 | `installing::s077_a_receipt_for_something_else_ends_the_operation` |
//! | 78 | `installing::s078_what_was_accepted_is_installed_whatever_the_catalog_offers_meanwhile` |
//! | 79, 80 | `installing::s079_s080_an_update_whose_runtime_does_not_start_yet_is_promoted_when_it_does` |
//! | 81 | `projecting::s081_the_provider_is_asked_what_it_holds_for_the_candidate_before_it_starts` |
//! | 82 | `projecting::s082_an_install_completes_although_the_upstream_refuses` |
//! | 84 | `installing::s084_an_update_that_can_never_run_returns_to_the_release_before_it` |
//! | 85 | `projecting::s085_s086_an_uninstall_leaves_authorization_alone`, `uninstalling::s085_an_uninstall_takes_the_route_down_and_the_files_away_and_keeps_the_authorization` |
//! | 86 | `projecting::s085_s086_an_uninstall_leaves_authorization_alone` |
//! | 87 | `projecting::s087_s088_an_authorization_outlives_an_uninstall_and_is_used_again`, `reconciling::s087_only_what_runs_elsewhere_on_an_account_follows_its_truth` |
//! | 88 | `projecting::s087_s088_an_authorization_outlives_an_uninstall_and_is_used_again` |
//! | 89 | `uninstalling::s089_files_that_cannot_be_removed_yet_are_removed_later` |
//! | 90 | `installing::s090_a_crash_after_the_receipt_is_taken_up_where_it_was` |
//! | 91 | `installing::s091_the_same_release_is_installed_again` |
//!
//! # J.5 Execution, leases, recovery
//!
//! | line | where |
//! |---|---|
//! | 92 | `executing::s092_what_another_worker_holds_is_left_alone` |
//! | 93 | `executing::s093_two_executions_are_one` |
//! | 94 | `executing::s094_two_executions_share_a_failure_and_the_next_one_is_new` |
//! | 95 | `executing::s095_work_whose_lease_is_lost_stops_and_is_left_running` |
//! | 96 | `recovering::s096_operations_of_an_earlier_boot_are_adopted_and_scheduled` |
//! | 97, 98 | `recovering::s097_s098_an_interrupted_authorization_fails_and_the_others_are_scheduled`, `settling::s097_s098_a_command_of_an_older_boot_is_failed_and_the_others_are_scheduled` |
//! | 99 | `executing::s099_an_authorization_is_not_executed_from_its_row` |
//! | 100 | `recovering::s100_what_another_worker_holds_is_scheduled_once_its_lease_is_over` |
//! | 101, 102 | `reconciling::s101_s102_an_operation_that_does_the_same_is_joined_until_it_has_ended` |
//! | 103 | `reconciling::s103_an_operation_for_somebody_else_or_something_else_is_not_joined` |
//! | 104 | `reconciling::s104_a_runtime_that_may_not_run_is_reconciled_and_its_installation_stays` |
//! | 105 | `executing::s105_what_has_ended_is_not_executed_again` |
//!
//! # J.6 Runtime convergence
//!
//! | line | where |
//! |---|---|
//! | 106 | `converging::s106_the_same_intent_twice_is_one_generation` |
//! | 107 | `converging::s107_what_was_observed_is_stored_announced_and_no_longer_due` |
//! | 108 to 110 | `converging::s108_s109_s110_the_users_switch_is_kept` |
//! | 111, 127 | `converging::s111_s127_a_host_that_fails_is_noted_and_tried_later` |
//! | 112, 113 | `converging::s112_s113_a_host_that_asks_for_an_authorization_has_the_runtime_switched_off`, `projecting::s112_s113_an_authorization_that_the_upstream_refuses_is_expired_and_stays_off` |
//! | 114 | `projecting::s114_s136_s139_a_remote_route_is_the_accounts_whatever_connection_is_behind_it`, `projecting::s114_versions_are_forwarded` |
//! | 115 | no: no credential passes through a reconcile; the host draws one when a call needs it |
//! | 116 | `converging::s116_s117_a_plan_after_a_fence_is_above_it_every_time`, `reconciling::s116_what_is_installed_starts_above_its_revision_and_leaves_no_operation` |
//! | 117 | `converging::s116_s117_a_plan_after_a_fence_is_above_it_every_time`, `reconciling::s117_fencing_and_starting_go_up_and_up` |
//! | 118 | `converging::s118_s119_one_connector_does_not_keep_another_from_starting`, `reconciling::s118_what_is_off_and_what_is_on_are_both_reconciled` |
//! | 119 | `converging::s118_s119_one_connector_does_not_keep_another_from_starting`, `reconciling::s119_one_that_fails_is_told_and_the_others_start` |
//! | 120 | `converging::s120_what_was_installed_runs_whatever_the_catalog_offers`, `reconciling::s120_what_was_installed_is_started_whatever_the_catalog_offers` |
//! | 121 | `converging::s121_without_the_release_every_connection_is_fenced` |
//! | 122, 123 | `converging::s122_s123_only_an_exact_receipt_is_believed` |
//! | 124 | `projecting::s124_a_remote_route_looks_at_the_account_and_not_at_the_device` |
//! | 125 | `converging::s125_a_binding_that_changed_is_planned_anew_without_asking_the_host`, `projecting::s125_a_binding_that_changed_after_planning_is_planned_anew_without_asking_the_host` |
//! | 126 | `converging::s126_the_pauses_double_up_to_64_seconds` |
//! | 128 | `converging::s128_a_slow_worker_does_not_overwrite_a_newer_intent` |
//! | 129 | `converging::s129_what_an_earlier_boot_saw_is_due_again` |
//!
//! # J.7 Binding resolver
//!
//! | line | where |
//! |---|---|
//! | 130 | `binding::s130_a_connector_that_needs_one_is_inactive_on_the_accounts_connection` |
//! | 131 | `binding::s131_signed_out_it_has_a_connection_of_its_own` |
//! | 132, 134 | `projecting::s132_s134_a_local_connection_identifies_the_route` |
//! | 133 | `projecting::s133_what_an_account_no_longer_holds_does_not_run` |
//! | 135 | no: a connector brings no broker of its own, and no grant is handed over |
//! | 136, 139 | `projecting::s114_s136_s139_a_remote_route_is_the_accounts_whatever_connection_is_behind_it` |
//! | 137 | `projecting::s137_a_remote_connector_waits_until_the_accounts_truth_was_read_in_this_boot` |
//! | 138 | `projecting::s138_a_remote_connector_needs_the_accounts_own_word` |
//! | 140 | `binding::a_connector_that_needs_no_authorization_runs_on_the_devices_connection` |
//! | 141, 142 | `projecting::s141_s142_a_remote_connector_without_authorization_needs_an_account` |
//!
//! # J.8 Authorization
//!
//! | line | where |
//! |---|---|
//! | 143 | `authorizing::s143_a_remote_attempt_waits_for_its_user_and_leaves_the_device_alone` |
//! | 144, 155 | `authorizing::s144_s155_an_open_attempt_keeps_another_request_out` |
//! | 145, 146 | `authorizing::s145_s146_a_cancelled_attempt_is_superseded_and_makes_room` |
//! | 147 | `authorizing::s147_a_provider_that_refuses_fails_the_operation` |
//! | 148, 160 | `authorizing::s148_s160_a_failed_attempt_is_not_begun_again` |
//! | 149 | `authorizing::s149_of_two_begins_at_once_one_goes_on` |
//! | 150 | `authorizing::s150_a_command_that_hangs_is_replaced` |
//! | 151 | `authorizing::s151_replacing_ends_the_open_attempt_at_the_provider_first` |
//! | 152 | `authorizing::s152_what_cannot_be_ended_for_sure_is_not_replaced` |
//! | 153 | `authorizing::s153_an_attempt_that_was_not_ended_stays_marked` |
//! | 154 | `authorizing::s154_an_attempt_goes_on_by_steps_under_one_request` |
//! | 156, 157 | `authorizing::s156_s157_a_step_that_was_never_reached_is_refused` |
//! | 158 | `authorizing::s158_a_provider_that_goes_back_is_refused` |
//! | 159 | `authorizing::s159_a_resolved_attempt_is_answered_from_its_receipt` |
//! | 161 | `authorizing::s161_an_account_is_connected_at_once_and_its_runtime_follows` |
//! | 162 | `authorizing::s162_another_accounts_device_credential_stays_while_this_one_is_bound` |
//! | 163 | `authorizing::s163_a_remote_connector_needs_an_account` |
//! | 164 | `authorizing::s164_an_unknown_replacement_policy_is_refused` |
//! | 165, 166 | `disconnecting::s165_s166_a_disconnection_runs_until_the_route_is_seen_to_be_gone` |
//! | 167, 168 | `projecting::s167_s168_the_runtime_follows_what_is_observed_and_the_installation_stays` |
//! | 169 | `settling::s169_an_account_that_is_connected_needs_no_question` |
//! | 170 | `settling::s170_a_local_attempt_that_is_connected_moves_device_and_account` |
//! | 171, 177 | `settling::s171_s177_a_cancellation_that_was_interrupted_is_finished_after_a_restart` |
//! | 172 | `settling::s172_an_attempt_whose_time_is_over_has_failed_unasked` |
//! | 173 | `settling::s173_settling_schedules_nothing` |
//! | 174 | `settling::s174_a_failure_by_supersession_is_told_apart` |
//! | 175 | `settling::s175_an_attempt_that_changed_while_it_was_asked_about_is_left_for_the_next_round` |
//! | 176 | `authorizing::s176_a_secret_reaches_the_provider_and_nothing_else` |
//!
//! # J.9 Installation calibration
//!
//! | line | where |
//! |---|---|
//! | 178, 179, 181 | `calibrating::s178_s179_s181_drift_is_noted_with_its_evidence_and_believed_to_be_gone` |
//! | 180 | `calibrating::s180_what_cannot_be_told_changes_nothing` |
//! | 182 | `calibrating::s182_an_observation_of_something_else_is_refused` |
//! | 183 | `calibrating::s183_a_row_that_changed_meanwhile_is_not_overwritten` |
//!
//! # J.10 Manifest and state transitions
//!
//! | line | where |
//! |---|---|
//! | 184, 186 | `domain::manifest::s184_s186_a_manifest_of_each_kind_is_accepted` |
//! | 185 | `domain::manifest::s185_each_bad_icon_is_rejected` |
//! | 187 | `refusals::a_kind_that_is_not_run_here_any_more_is_not_put_in_place` |
//! | 188 | `domain::manifest::s188_an_unknown_kind_is_rejected` |
//! | 189 to 193 | `domain::manifest::s189_to_s193_aliases` |
//! | 194 | no: a remote manifest names its endpoint, not a binding |
//! | 195, 196 | `domain::manifest::s195_s196_a_remote_manifest_breaks_a_rule` |
//! | 197 | no: an interaction is part of the manifest and parsed with it |
//! | 198 | `domain::manifest::s198_an_interaction_above_64_kib_is_rejected` |
//! | 199, 200, 203 | no: no broker |
//! | 201, 215 | `domain::manifest::s201_s215_a_component_path_that_leaves_the_bundle_is_rejected` |
//! | 202 | `domain::manifest::s202_an_allowed_host_is_an_exact_name` |
//! | 204 to 206 | `domain::manifest::s204_to_s206_permissions` |
//! | 207 | `refusals::a_frozen_release_that_does_not_hold_is_not_put_in_place` |
//! | 208 to 213 | no: no CLI, no Node package and no process |
//! | 214 | `domain::manifest::s214_a_limit_outside_its_range_names_itself` |
//! | 216 to 219 | no: no commands of a CLI |
//! | 220 | `domain::installation::s220_not_installed_cannot_be_promoted` |
//! | 221 | `domain::installation::s221_installing_becomes_installed_with_its_candidate` |
//! | 222, 223 | `domain::installation::s222_s223_authorization_moves_as_the_table_says` |
//!
//! # J.13 Store
//!
//! | line | where |
//! |---|---|
//! | 273 | `store::connect::a_path_survives_its_url` |
//! | 274 to 276, 306 | no: there are no databases of an earlier revision |
//! | 277 | `store::contract::operations::a_client_request_stands_for_one_operation_an_owner`, `acceptance::s027_a_request_id_belongs_to_its_account` |
//! | 278 | `store::contract::commits::a_commit_writes_revision_rows_and_events_together` |
//! | 279 | `store::contract::commits::a_dropped_transaction_leaves_nothing`, `store::contract::commits::a_failed_step_spoils_its_transaction` |
//! | 280 | `accounts::s280_each_account_sees_its_own_operations_and_the_same_connectors` |
//! | 281 | `store::contract::operations::a_lane_holds_one_active_operation_of_any_account` |
//! | 282 | `store::contract::operations::the_catalog_has_a_lane_of_its_own` |
//! | 283 | `store::contract::outbox::a_private_or_unknown_operation_has_no_owners_copy` |
//! | 284 | `accounts::s284_an_attempt_is_stored_without_what_opens_it` |
//! | 285 | `projecting::s285_projections_are_apart_by_account` |
//! | 286, 287 | `projecting::s286_s287_readers_are_told_of_what_they_would_see_and_of_nothing_else` |
//! | 288, 289 | `projecting::s288_s289_what_the_account_says_gives_way_to_a_newer_saying_only` |
//! | 290 | `projecting::s290_what_a_newer_truth_does_not_list_is_disconnected` |
//! | 291 | `projecting::s291_a_truth_that_is_not_newer_changes_nothing_and_still_tells_open_attempts` |
//! | 292 | `store::contract::leases::a_held_lease_refuses_other_workers_until_it_is_over` |
//! | 293 | `store::contract::leases::a_renewal_without_the_lease_is_refused`, `store::contract::leases::a_save_under_a_lost_lease_is_refused` |
//! | 294 | `store::contract::leases::claims_at_once_have_one_winner` |
//! | 295 | `store::contract::leases::a_worker_does_not_enter_its_own_lease_again` |
//! | 296 | `store::contract::cleanup::what_ended_by_the_cut_off_is_forgotten` |
//! | 297, 301 | `store::contract::cleanup::active_operations_and_unpublished_events_stay` |
//! | 298 | `store::contract::cleanup::a_forgotten_request_id_is_free_again` |
//! | 299 | `store::contract::cleanup::a_batch_has_bounds` |
//! | 300 | `store::contract::cleanup::two_cleanups_at_once_forget_no_row_twice` |
//! | 302 | `store::contract::releases::evidence_outlives_its_operation` |
//! | 303 | `store::contract::releases::a_completed_removal_takes_the_evidence_away` |
//! | 304 | `store::contract::releases::a_received_release_is_found_beside_the_current_one` |
//! | 305 | `store::file::a_release_is_found_by_the_pointer_alone` |
//! | 307 | `reconciling::a_release_that_is_not_known_any_more_is_told_and_the_others_start` |
//! | 308 | `converging::s129_what_an_earlier_boot_saw_is_due_again` |
//! | 309 | `store::contract::convergences::an_outcome_for_an_older_intent_is_refused` |
//! | 310 | `reads::s010_s012_a_private_operation_is_there_for_nobody` |
//!
//! # Elsewhere
//!
//! | line | where |
//! |---|---|
//! | 224 to 239 | a catalog is a document here, not a service: `artifacts::catalog` and `authoring::catalog` tell its rules; the service's envelopes do not apply |
//! | 240 to 272 | the daemon, by the number in the name: `daemon::gate`, `daemon::bootstrap`, `daemon::workers`, `daemon::scheduler`; 272 does not apply, as there is no mode without a runtime |
//! | 311 to 338 | by the number in the name: `artifacts::install`, `artifacts::refusals`, `artifacts::crash`, `artifacts::remote`; CLI installs and execution snapshots do not apply |
//! | 339 to 361 | routes and fences: `sandbox::table`, `sandbox::fences`, `sandbox::activation`; processes and command shims do not apply |
//! | 362 to 374 | not built: the credential broker |
//! | 375 to 387 | not built: the control plane and what it pushes |
//! | 388 to 406 | the HTTP interface: `api::market`, `api::bodies`, `api::errors`, `api::access`, `binary::http` |

/// Makes the named `async fn`s of a module tests, on SQLite and on PostgreSQL.
/// [`World`](world::World) opens the database that the test is for.
macro_rules! on_every_store {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $name() {
                    $crate::market::world::Database::Sqlite.during(super::$name()).await;
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test]
                async fn $name() {
                    $crate::market::world::Database::Postgres.during(super::$name()).await;
                }
            )+
        }
    };
}

mod acceptance;
mod accounts;
mod authorizing;
mod backlog;
mod binding;
mod browsing;
mod calibrating;
mod contended;
mod converging;
mod disconnecting;
mod executing;
pub(crate) mod fakes;
mod installing;
mod projecting;
pub(crate) mod provider;
mod reads;
mod reconciling;
mod recovering;
mod refreshing;
mod refusals;
mod settling;
mod uninstalling;
pub(crate) mod world;
