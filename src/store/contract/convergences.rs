//! Convergences: apart by account and node, worked on under a lease on one intent.

use std::{sync::Arc, time::Duration};

use super::{
    StoreFactory,
    samples::{
        ROUNDS, boot, handles, insist, key, open, planned, refused, replanned, save_convergence, scope,
        worker,
    },
};
use crate::{
    domain::{
        convergence::{Convergence, Observed},
        error::{Error, ErrorCode},
        id::NodeId,
        lease::LeaseToken,
        operation::{OperationFailure, OperationScope},
        runtime::{ReadinessState, RuntimeReadiness},
        timestamp::Timestamp,
    },
    ports::{ConvergenceLease, Store},
};

const MINUTE: Duration = Duration::from_secs(60);
/// The year 9000: long after anything these rules wait for.
const NEVER: Timestamp = Timestamp(221_845_392_000_000);

fn signed_out() -> OperationScope {
    OperationScope::default()
}

fn observed(of: &Convergence, epoch: &str) -> Result<Observed, Error> {
    Ok(Observed {
        desired_generation: of.desired.generation,
        boot_epoch: boot(epoch)?,
        enabled: of.desired.enabled,
        connection_id: of.desired.connection_id.clone(),
        release_digest: of.desired.release_digest,
        readiness: RuntimeReadiness {
            state: ReadinessState::Ready,
            reason_code: None,
            interfaces: Vec::new(),
        },
        summary: None,
        observed_at: Timestamp(5_000),
    })
}

fn failure() -> OperationFailure {
    OperationFailure { code: ErrorCode::InstallFailed, message: "it did not start".into() }
}

async fn get(store: &dyn Store, name: &str) -> Result<Convergence, Error> {
    let found = store.convergence(&signed_out(), &key(name)?).await?;
    found.ok_or_else(|| Error::not_found(format!("{name} has no convergence")))
}

async fn claim(store: &dyn Store, name: &str, by: &str) -> Result<Option<Convergence>, Error> {
    store.claim_convergence(&signed_out(), &key(name)?, &boot("boot")?, &worker(by)?, MINUTE).await
}

/// A claim that must succeed, with the lease it gives.
async fn claimed(store: &dyn Store, name: &str, by: &str) -> Result<(Convergence, ConvergenceLease), Error> {
    let convergence = claim(store, name, by).await?;
    let convergence = convergence.ok_or_else(|| Error::unavailable(format!("{by} cannot claim {name}")))?;
    let lease = ConvergenceLease {
        scope: signed_out(),
        connector_key: key(name)?,
        owner: worker(by)?,
        token: convergence.lease_token,
        desired_generation: convergence.desired.generation,
    };
    Ok((convergence, lease))
}

async fn due(store: &dyn Store, epoch: &str, limit: u32) -> Result<Vec<String>, Error> {
    let due = store.due_convergences(&signed_out(), &boot(epoch)?, limit).await?;
    Ok(due.iter().map(|one| one.desired.connector_key.to_string()).collect())
}

async fn finish(store: &dyn Store, row: &Convergence, lease: &ConvergenceLease) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.advance_revision();
    tx.save_convergence_leased(row, lease).await?;
    tx.commit().await
}

pub(super) async fn a_convergence_is_kept_whole(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut row = planned(&signed_out(), "alpha")?;
    row.desired.activation_enabled = Some(false);
    row.desired.generation = i64::MAX as u64;
    row.observed = Some(observed(&row, "old boot")?);
    row.attempt = 3;
    row.last_error = Some(failure());
    save_convergence(&*store, &row).await?;
    assert_eq!(get(&*open(&factory).await?.store, "alpha").await?, row);
    let mut tx = store.begin().await?;
    assert_eq!(tx.convergence(&signed_out(), &key("alpha")?).await?, Some(row));
    assert_eq!(tx.convergence(&signed_out(), &key("beta")?).await?, None);
    Ok(())
}

pub(super) async fn convergences_are_apart_by_account_and_node(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let elsewhere = factory.open(&NodeId::parse("node-2")?).await?.store;
    let (ann, bob) = (scope("ann")?, scope("bob")?);
    let of_ann = [planned(&ann, "alpha")?, planned(&ann, "beta")?];
    let of_nobody = planned(&signed_out(), "alpha")?;
    for row in of_ann.iter().rev().chain([&of_nobody]) {
        save_convergence(&*store, row).await?;
    }
    assert_eq!(store.convergences(&ann).await?, of_ann);
    assert_eq!(store.convergences(&signed_out()).await?, [of_nobody]);
    assert_eq!(store.convergences(&bob).await?, []);
    assert_eq!(elsewhere.convergences(&ann).await?, []);
    assert_eq!(elsewhere.convergence(&ann, &key("alpha")?).await?, None);
    assert_eq!(elsewhere.due_convergences(&ann, &boot("boot")?, 10).await?, []);
    let claim =
        elsewhere.claim_convergence(&ann, &key("alpha")?, &boot("boot")?, &worker("w1")?, MINUTE).await?;
    assert_eq!(claim, None);
    Ok(())
}

pub(super) async fn due_rows_come_in_the_order_of_their_next_attempt(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    for (name, next) in [("c", 300), ("b", 100), ("a", 300), ("d", 200), ("later", NEVER.0)] {
        let mut row = planned(&signed_out(), name)?;
        row.next_attempt_at = Timestamp(next);
        save_convergence(&*store, &row).await?;
    }
    assert_eq!(due(&*store, "boot", 10).await?, ["b", "d", "a", "c"]);
    assert_eq!(due(&*store, "boot", 2).await?, ["b", "d"]);
    assert_eq!(claim(&*store, "later", "w1").await?, None, "what backs off is not claimed");
    Ok(())
}

pub(super) async fn never_more_than_a_hundred_rows_are_due_at_once(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut tx = store.begin().await?;
    for number in 0..101 {
        tx.save_convergence(&planned(&signed_out(), &format!("c{number}"))?).await?;
    }
    tx.commit().await?;
    assert_eq!(due(&*store, "boot", u32::MAX).await?.len(), 100);
    assert_eq!(due(&*store, "boot", 0).await?.len(), 0);
    Ok(())
}

pub(super) async fn what_this_boot_has_seen_is_not_due(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut seen = planned(&signed_out(), "seen")?;
    seen.observed = Some(observed(&seen, "boot")?);
    let mut outdated = planned(&signed_out(), "outdated")?;
    outdated.observed = Some(observed(&outdated, "boot")?);
    outdated.desired.generation += 1;
    for row in [&seen, &outdated] {
        save_convergence(&*store, row).await?;
    }
    let reopened = open(&factory).await?.store;
    assert_eq!(due(&*reopened, "boot", 10).await?, ["outdated"]);
    assert_eq!(claim(&*reopened, "seen", "w1").await?, None);
    assert_eq!(due(&*reopened, "next boot", 10).await?, ["outdated", "seen"], "a route ends with its boot");
    Ok(())
}

pub(super) async fn a_claim_is_exclusive_until_it_is_over(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let (store, other) = (open(&factory).await?.store, open(&factory).await?.store);
    save_convergence(&*store, &planned(&signed_out(), "alpha")?).await?;
    let (first, second) = futures::try_join!(claim(&*store, "alpha", "w1"), claim(&*other, "alpha", "w2"))?;
    let winners: Vec<Convergence> = [first, second].into_iter().flatten().collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(winners[0].lease_token, LeaseToken(2), "the plan took the first token");
    assert_eq!(get(&*store, "alpha").await?, winners[0]);
    assert_eq!(due(&*store, "boot", 10).await?, [""; 0]);
    assert_eq!(claim(&*store, "alpha", "w1").await?, None);
    assert_eq!(claim(&*store, "missing", "w1").await?, None);

    factory.advance_clock(MINUTE);
    assert_eq!(due(&*store, "boot", 10).await?, ["alpha"]);
    assert_eq!(claimed(&*store, "alpha", "w3").await?.0.lease_token, LeaseToken(3));
    Ok(())
}

pub(super) async fn a_renewal_needs_owner_token_intent_and_time(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_convergence(&*store, &planned(&signed_out(), "alpha")?).await?;
    let (_, lease) = claimed(&*store, "alpha", "w1").await?;
    let wrong = [
        ConvergenceLease { owner: worker("w2")?, ..lease.clone() },
        ConvergenceLease { token: LeaseToken(9), ..lease.clone() },
        ConvergenceLease { desired_generation: lease.desired_generation + 1, ..lease.clone() },
        ConvergenceLease { scope: scope("ann")?, ..lease.clone() },
    ];
    for wrong in wrong {
        assert_eq!(refused(store.renew_convergence(&wrong, MINUTE).await), ErrorCode::LeaseLost);
    }
    factory.advance_clock(MINUTE / 2);
    store.renew_convergence(&lease, MINUTE).await?;
    factory.advance_clock(MINUTE / 2 + Duration::from_secs(1));
    assert_eq!(claim(&*store, "alpha", "w2").await?, None);
    factory.advance_clock(MINUTE / 2);
    assert_eq!(refused(store.renew_convergence(&lease, MINUTE).await), ErrorCode::LeaseLost);
    Ok(())
}

pub(super) async fn giving_back_makes_the_row_due_again(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_convergence(&*store, &planned(&signed_out(), "alpha")?).await?;
    let (row, lease) = claimed(&*store, "alpha", "w1").await?;
    store.release_convergence(&ConvergenceLease { token: LeaseToken(9), ..lease.clone() }).await?;
    assert_eq!(get(&*store, "alpha").await?, row);
    store.release_convergence(&lease).await?;
    store.release_convergence(&lease).await?;
    let free = get(&*store, "alpha").await?;
    assert_eq!((free.lease, free.lease_token), (None, row.lease_token));
    assert_eq!(due(&*store, "boot", 10).await?, ["alpha"]);
    Ok(())
}

pub(super) async fn an_outcome_is_stored_and_ends_the_lease(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_convergence(&*store, &planned(&signed_out(), "alpha")?).await?;
    let (row, lease) = claimed(&*store, "alpha", "w1").await?;
    let failed = row.backed_off(failure(), NEVER);
    finish(&*store, &failed, &lease).await?;
    assert_eq!(get(&*store, "alpha").await?, failed);
    assert_eq!(due(&*store, "boot", 10).await?, [""; 0], "it backs off");
    assert_eq!(refused(finish(&*store, &failed, &lease).await), ErrorCode::LeaseLost);

    let again = replanned(Some(&failed), &signed_out(), "alpha")?;
    save_convergence(&*store, &again).await?;
    let (row, lease) = claimed(&*store, "alpha", "w1").await?;
    let seen = observed(&row, "boot")?;
    let done = row.observed_as(seen, Timestamp(6_000));
    finish(&*store, &done, &lease).await?;
    assert_eq!(get(&*store, "alpha").await?, done);
    assert_eq!(due(&*store, "boot", 10).await?, [""; 0], "it has converged");
    Ok(())
}

pub(super) async fn an_outcome_for_an_older_intent_is_refused(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_convergence(&*store, &planned(&signed_out(), "alpha")?).await?;
    let (row, lease) = claimed(&*store, "alpha", "w1").await?;
    let newer = replanned(Some(&row), &signed_out(), "alpha")?;
    save_convergence(&*store, &newer).await?;
    let outcome = row.backed_off(failure(), Timestamp(6_000));
    assert_eq!(refused(finish(&*store, &outcome, &lease).await), ErrorCode::LeaseLost);
    assert_eq!(get(&*store, "alpha").await?, newer);

    let (newer, lease) = claimed(&*store, "alpha", "w2").await?;
    assert_eq!(
        refused(finish(&*store, &outcome, &lease).await),
        ErrorCode::LeaseLost,
        "an outcome is of the intent that was claimed"
    );
    assert_eq!(get(&*store, "alpha").await?, newer);
    Ok(())
}

pub(super) async fn an_outcome_after_the_lease_is_refused(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_convergence(&*store, &planned(&signed_out(), "alpha")?).await?;
    let (row, lease) = claimed(&*store, "alpha", "w1").await?;
    let outcome = row.clone().backed_off(failure(), Timestamp(6_000));
    let of_another = ConvergenceLease { owner: worker("w2")?, ..lease.clone() };
    assert_eq!(refused(finish(&*store, &outcome, &of_another).await), ErrorCode::LeaseLost);
    factory.advance_clock(MINUTE);
    assert_eq!(refused(finish(&*store, &outcome, &lease).await), ErrorCode::LeaseLost);
    assert_eq!(get(&*store, "alpha").await?, row);
    Ok(())
}

pub(super) async fn a_new_intent_takes_the_lease_away(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let first = planned(&signed_out(), "alpha")?;
    save_convergence(&*store, &first).await?;
    let (_, lease) = claimed(&*store, "alpha", "w1").await?;
    // As if it had been planned without seeing the claim: its token is not newer.
    let mut blind = replanned(Some(&first), &signed_out(), "alpha")?;
    blind.lease_token = first.lease_token;
    save_convergence(&*store, &blind).await?;
    let stored = get(&*store, "alpha").await?;
    assert_eq!(stored.lease, None);
    assert!(stored.lease_token > lease.token, "{:?}", stored.lease_token);
    assert_eq!(refused(store.renew_convergence(&lease, MINUTE).await), ErrorCode::LeaseLost);
    assert_eq!(due(&*store, "boot", 10).await?, ["alpha"]);
    Ok(())
}

pub(super) async fn an_older_intent_is_refused(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let older = planned(&signed_out(), "alpha")?;
    let newer = replanned(Some(&older), &signed_out(), "alpha")?;
    save_convergence(&*store, &newer).await?;
    assert_eq!(refused(save_convergence(&*store, &older).await), ErrorCode::RevisionConflict);
    assert_eq!(get(&*store, "alpha").await?, newer);
    Ok(())
}

pub(super) async fn only_the_named_convergence_is_deleted(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let elsewhere = factory.open(&NodeId::parse("node-2")?).await?.store;
    let ann = scope("ann")?;
    for row in [planned(&ann, "alpha")?, planned(&signed_out(), "alpha")?, planned(&ann, "beta")?] {
        save_convergence(&*store, &row).await?;
        save_convergence(&*elsewhere, &row).await?;
    }
    let mut tx = store.begin().await?;
    tx.delete_convergence(&ann, &key("alpha")?).await?;
    tx.delete_convergence(&ann, &key("unknown")?).await?;
    tx.commit().await?;
    assert_eq!(store.convergence(&ann, &key("alpha")?).await?, None);
    assert!(store.convergence(&signed_out(), &key("alpha")?).await?.is_some());
    assert!(store.convergence(&ann, &key("beta")?).await?.is_some());
    assert!(elsewhere.convergence(&ann, &key("alpha")?).await?.is_some());
    Ok(())
}

pub(super) async fn claims_at_once_have_one_winner(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let stores: [Arc<dyn Store>; 4] = handles(&factory).await?;
    for round in 0..ROUNDS {
        let name = format!("c{round}");
        save_convergence(&*stores[0], &planned(&signed_out(), &name)?).await?;
        let mut claims = Vec::new();
        for (store, by) in stores.iter().zip(["w1", "w2", "w3", "w4"]) {
            claims.push(claim(&**store, &name, by));
        }
        let claims = futures::future::try_join_all(claims).await?;
        let winners: Vec<Convergence> = claims.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(get(&*stores[0], &name).await?, winners[0]);
    }
    Ok(())
}

pub(super) async fn an_outcome_and_a_new_intent_at_once_agree(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let [here, there] = handles(&factory).await?;
    for round in 0..ROUNDS {
        let name = format!("c{round}");
        save_convergence(&*here, &planned(&signed_out(), &name)?).await?;
        let (row, lease) = claimed(&*here, &name, "w1").await?;
        let outcome = row.clone().observed_as(observed(&row, "boot")?, Timestamp(6_000));
        let newer = replanned(Some(&row), &signed_out(), &name)?;
        let (finished, planned) =
            futures::join!(async { insist!(finish(&*here, &outcome, &lease)) }, async {
                insist!(save_convergence(&*there, &newer))
            });
        planned?;
        if let Err(error) = finished {
            assert_eq!(error.code, ErrorCode::LeaseLost, "{error:?}");
        }
        let stored = get(&*here, &name).await?;
        assert_eq!(stored.desired, newer.desired, "the newer intent stands, whoever came first");
        assert_eq!((&stored.observed, &stored.lease), (&newer.observed, &None));
        assert!(due(&*there, "boot", 1).await?.contains(&name), "and is due");
        claimed(&*there, &name, "w2").await?;
    }
    Ok(())
}
