//! The contract of [`crate::ports::Store`] and [`crate::ports::SandboxLedger`], as
//! rules that any implementation can be run against.
//!
//! A [`StoreFactory`] is one empty database of yours. [`Suite`] runs every rule on a
//! fresh one and reports:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use portcullis::{
//!     domain::{error::Error, id::NodeId},
//!     store::{SqlStore, StoreOptions, contract::{ManualClock, Opened, StoreFactory, Suite}},
//! };
//! # type MyStore = SqlStore;
//! # async fn empty(clock: Arc<ManualClock>) -> Result<SqlStore, Error> {
//! #     let (url, node_id) = ("sqlite::memory:".to_owned(), NodeId::parse("node")?);
//! #     SqlStore::open(StoreOptions { url, node_id, lease_clock: Some(clock) }).await
//! # }
//!
//! struct MyDatabase(MyStore, Arc<ManualClock>);
//!
//! #[async_trait::async_trait]
//! impl StoreFactory for MyDatabase {
//!     async fn open(&self, node: &NodeId) -> Result<Opened, Error> {
//!         Ok(Opened::of(self.0.for_node(node.clone())))
//!     }
//!     fn advance_clock(&self, by: Duration) {
//!         self.1.advance(by);
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Error> {
//! let create = async || {
//!     let clock = Arc::new(ManualClock::default());
//!     Ok(Arc::new(MyDatabase(empty(clock.clone()).await?, clock)) as Arc<dyn StoreFactory>)
//! };
//! // All of them without `matching`.
//! let rules = Suite::default().matching("outbox");
//! let report = rules.run(create, |verdict| println!("{verdict}")).await?;
//! assert_eq!(report.failed(), 0, "{report}");
//! # Ok(())
//! # }
//! ```
//!
//! Or stamp the rules into your tests: every rule becomes a module with one
//! `#[tokio::test]` a backend, on a database of its own.
//!
//! ```text
//! portcullis::store_contract! {
//!     my_database => MyDatabase::new().await,
//! }
//! ```
//!
//! `portcullis store check` runs the rules against this program's own store on a
//! database of yours ([`SqlDatabases`]).
//!
//! A rule that is written but not registered below is dead code, and the compiler
//! says so.

mod authorizations;
mod cleanup;
mod commits;
mod compiled;
mod convergences;
mod databases;
mod leases;
mod operations;
mod outbox;
mod releases;
mod samples;
mod scopes;
mod state;
mod suite;

use std::{
    fmt,
    future::Future,
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::FutureExt as _;

pub use databases::{ManualClock, SqlDatabases};
pub use suite::{Report, Suite, Verdict};

use crate::{
    domain::{error::Error, id::NodeId},
    ports::{SandboxLedger, Store},
};

/// A handle on the database under test.
#[derive(Clone)]
pub struct Opened {
    /// As the market sees it.
    pub store: Arc<dyn Store>,
    /// As the sandbox sees it.
    pub ledger: Arc<dyn SandboxLedger>,
}

impl Opened {
    /// Of a store that is both.
    #[must_use]
    pub fn of<S: Store + SandboxLedger + 'static>(store: S) -> Self {
        let store = Arc::new(store);
        Self { store: store.clone(), ledger: store }
    }
}

/// One database that is empty at first.
#[async_trait]
pub trait StoreFactory: Send + Sync {
    /// Opens the database, as `node`. A later handle finds what earlier ones stored,
    /// and works beside them.
    async fn open(&self, node: &NodeId) -> Result<Opened, Error>;

    /// Moves the clock that leases are judged by.
    fn advance_clock(&self, by: Duration);

    /// Removes the database, once its rule has ended in whatever way. Nothing by
    /// default, for what goes away by itself.
    async fn remove(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// What running a rule answers; a broken expectation panics.
pub type Outcome = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// One rule of the contract.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// What it is about.
    pub family: &'static str,
    /// What it says.
    pub name: &'static str,
    /// Runs it on an empty database.
    pub run: fn(Arc<dyn StoreFactory>) -> Outcome,
}

/// `family::name`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.family, self.name)
    }
}

/// Runs the rule `name` of `family` on a database, and removes that.
///
/// # Panics
/// When the rule does not hold.
pub async fn check(family: &str, name: &str, factory: Arc<dyn StoreFactory>) {
    let rule = RULES.iter().find(|rule| rule.family == family && rule.name == name);
    let Some(rule) = rule else { panic!("there is no rule {family}::{name}") };
    let outcome = AssertUnwindSafe((rule.run)(factory.clone())).catch_unwind().await;
    let removed = factory.remove().await;
    match outcome {
        Ok(outcome) => {
            if let Err(error) = outcome.and(removed) {
                panic!("{rule}: {error:?}");
            }
        }
        Err(broken) => panic::resume_unwind(broken),
    }
}

/// Registers every rule: in [`RULES`], and in the macro that stamps them. `$d` is a
/// dollar sign for the macro that is made here.
macro_rules! register {
    ($d:tt $( $family:ident { $( $rule:ident )+ } )+) => {
        /// Every rule.
        pub const RULES: &[Rule] = &[$($(
            Rule {
                family: stringify!($family),
                name: stringify!($rule),
                run: |factory| Box::pin($family::$rule(factory)),
            },
        )+)+];

        /// Stamps every rule of the store contract as a test, for each backend: a name
        /// and an expression that makes an [`Arc`](std::sync::Arc) of its
        /// [`StoreFactory`](crate::store::contract::StoreFactory); it may await.
        #[macro_export]
        macro_rules! store_contract {
            ($d( $d backend:ident => $d factory:expr ),+ $d(,)?) => { $(
                mod $family { $(
                    mod $rule {
                        use super::super::*;
                        $d(
                            #[tokio::test]
                            async fn $d backend() {
                                let factory = $d factory;
                                $crate::store::contract::check(
                                    stringify!($family), stringify!($rule), factory,
                                )
                                .await;
                            }
                        )+
                    }
                )+ }
            )+ };
        }
    };
}

register! { $
    commits {
        a_new_store_is_empty
        a_commit_writes_revision_rows_and_events_together
        a_dropped_transaction_leaves_nothing
        a_failed_step_spoils_its_transaction
        transactions_that_meet_lose_no_revision
        a_snapshot_is_of_one_revision
        connectors_are_kept_whole_and_listed_by_key
        many_connectors_keep_their_order
        the_catalog_remembers_its_state_and_source
        settings_are_kept
        counters_reach_their_limit_and_not_beyond
        reopening_keeps_everything
    }
    operations {
        an_operation_is_kept_whole
        ownership_is_settled_on_saving
        a_client_request_stands_for_one_operation_an_owner
        a_lane_holds_one_active_operation_of_any_account
        the_catalog_has_a_lane_of_its_own
        an_ended_operation_frees_its_lane
        active_operations_are_recoverable_whoever_owns_them
        a_snapshot_hides_runtime_operations
        what_was_found_free_is_free_for_one_operation
        of_operations_at_once_in_one_lane_one_is_stored
        of_requests_at_once_under_one_id_one_is_stored
    }
    leases {
        a_held_lease_refuses_other_workers_until_it_is_over
        a_worker_does_not_enter_its_own_lease_again
        claims_at_once_have_one_winner
        an_ended_or_missing_operation_is_not_claimed
        a_renewal_keeps_others_away_for_longer
        a_renewal_without_the_lease_is_refused
        giving_back_frees_the_operation_and_keeps_the_token
        a_save_under_a_lost_lease_is_refused
        a_save_leaves_the_lease_as_it_is
        whoever_lost_a_lease_changes_nothing_under_it
        a_late_save_and_a_claim_at_once_agree
        a_lease_may_last_for_ever
        a_claim_waits_for_whoever_decides_about_its_operation
    }
    authorizations {
        a_projection_is_kept_whole
        projections_are_apart_by_account
        a_projection_outlives_the_removal_of_its_connector
        the_revision_of_an_accounts_truth_is_kept
        an_open_attempt_is_its_owners_alone
        an_attempt_is_open_from_its_operations_end_to_its_own
        a_resolved_attempt_never_changes_again
        of_resolutions_at_once_the_first_stands
    }
    scopes {
        a_scoped_snapshot_holds_the_callers_own_alone
        signed_out_there_are_no_operations_or_authorizations
        a_scoped_snapshot_is_of_one_revision
    }
    releases {
        a_received_release_is_found_beside_the_current_one
        a_release_that_was_not_received_is_not_evidence
        evidence_outlives_its_operation
        a_completed_removal_takes_the_evidence_away
        a_failed_removal_keeps_the_evidence
        a_receipt_without_its_release_is_refused
    }
    convergences {
        a_convergence_is_kept_whole
        convergences_are_apart_by_account_and_node
        due_rows_come_in_the_order_of_their_next_attempt
        never_more_than_a_hundred_rows_are_due_at_once
        what_this_boot_has_seen_is_not_due
        a_claim_is_exclusive_until_it_is_over
        claims_at_once_have_one_winner
        an_outcome_and_a_new_intent_at_once_agree
        a_renewal_needs_owner_token_intent_and_time
        giving_back_makes_the_row_due_again
        an_outcome_is_stored_and_ends_the_lease
        an_outcome_for_an_older_intent_is_refused
        an_outcome_after_the_lease_is_refused
        a_new_intent_takes_the_lease_away
        an_older_intent_is_refused
        only_the_named_convergence_is_deleted
    }
    outbox {
        the_owners_copy_comes_before_the_machines
        an_announcement_is_labelled_with_its_own_operation
        a_private_or_unknown_operation_has_no_owners_copy
        the_first_note_of_publication_stands
        pending_events_come_in_order_and_in_portions
        a_sequence_is_never_used_again
    }
    cleanup {
        what_ended_by_the_cut_off_is_forgotten
        active_operations_and_unpublished_events_stay
        a_forgotten_request_id_is_free_again
        a_batch_has_bounds
        the_oldest_go_first
        two_cleanups_at_once_forget_no_row_twice
    }
    state {
        a_value_is_what_was_written_last
        keys_are_found_by_their_exact_prefix_in_byte_order
        scopes_do_not_see_each_other
        changes_over_the_quota_leave_nothing
        state_over_a_lowered_quota_may_shrink
        changes_at_once_keep_to_the_quota
        a_connectors_state_is_forgotten_everywhere
    }
    compiled {
        a_note_is_kept_by_component_and_engine
        a_newer_note_replaces_the_older
    }
}
