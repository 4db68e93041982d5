//! Leases of operations: the clock says when a claim may be tried, the token decides.

use std::{pin::pin, sync::Arc, time::Duration};

use super::{
    StoreFactory,
    samples::{
        ROUNDS, handles, install, lease_of, open, operation_id, refused, save_operations, stored, worker,
    },
};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        lease::LeaseToken,
        operation::{Operation, Stage},
        timestamp::Timestamp,
    },
    ports::{OperationLease, Store},
};

const MINUTE: Duration = Duration::from_secs(60);

/// Claims `id` for a minute; the claim must succeed.
async fn claim(store: &dyn Store, id: &str, by: &str) -> Result<Operation, Error> {
    let claimed = store.claim_operation(&operation_id(id)?, &worker(by)?, MINUTE).await?;
    claimed.ok_or_else(|| Error::unavailable(format!("{by} cannot claim {id}")))
}

pub(super) async fn a_held_lease_refuses_other_workers_until_it_is_over(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install("one", "alpha")?]).await?;
    let first = claim(&*store, "one", "w1").await?;
    assert_eq!(first.lease_token, LeaseToken(1));
    assert_eq!(stored(&*store, "one").await?, first, "the claim answers what is stored");

    factory.advance_clock(MINUTE - Duration::from_secs(1));
    let other = open(&factory).await?.store;
    assert_eq!(other.claim_operation(&operation_id("one")?, &worker("w2")?, MINUTE).await?, None);
    assert_eq!(stored(&*store, "one").await?, first, "a refused claim changes nothing");

    factory.advance_clock(Duration::from_secs(1));
    let second = claim(&*other, "one", "w2").await?;
    assert_eq!(second.lease_token, LeaseToken(2));
    assert_eq!(lease_of(&second)?.owner, worker("w2")?);
    Ok(())
}

pub(super) async fn a_worker_does_not_enter_its_own_lease_again(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install("one", "alpha")?]).await?;
    claim(&*store, "one", "w1").await?;
    assert_eq!(store.claim_operation(&operation_id("one")?, &worker("w1")?, MINUTE).await?, None);
    Ok(())
}

pub(super) async fn claims_at_once_have_one_winner(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let stores: [Arc<dyn Store>; 4] = handles(&factory).await?;
    let workers = ["w1", "w2", "w3", "w4"].map(worker).into_iter().collect::<Result<Vec<_>, _>>()?;
    for round in 0..ROUNDS {
        let id = operation_id(&format!("op-{round}"))?;
        save_operations(&*stores[0], &[install(id.as_str(), &format!("c{round}"))?]).await?;
        let mut claims = Vec::new();
        for (store, by) in stores.iter().zip(&workers) {
            claims.push(store.claim_operation(&id, by, MINUTE));
        }
        let claims = futures::future::try_join_all(claims).await?;
        let winners: Vec<Operation> = claims.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(stored(&*stores[0], id.as_str()).await?, winners[0]);
    }
    Ok(())
}

pub(super) async fn an_ended_or_missing_operation_is_not_claimed(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let mut ended = install("ended", "alpha")?;
    ended.complete(Timestamp(2_000));
    save_operations(&*store, &[ended]).await?;
    for id in ["ended", "missing"] {
        assert_eq!(store.claim_operation(&operation_id(id)?, &worker("w1")?, MINUTE).await?, None);
    }
    assert_eq!(stored(&*store, "ended").await?.lease_token, LeaseToken(0));
    Ok(())
}

pub(super) async fn a_renewal_keeps_others_away_for_longer(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install("one", "alpha")?]).await?;
    let lease = lease_of(&claim(&*store, "one", "w1").await?)?;
    factory.advance_clock(MINUTE / 2);
    store.renew_operation(&lease, MINUTE).await?;
    factory.advance_clock(MINUTE / 2 + Duration::from_secs(1));
    assert_eq!(store.claim_operation(&operation_id("one")?, &worker("w2")?, MINUTE).await?, None);
    assert_eq!(stored(&*store, "one").await?.lease_token, lease.token, "a renewal keeps the token");
    factory.advance_clock(MINUTE / 2);
    claim(&*store, "one", "w2").await?;
    Ok(())
}

pub(super) async fn a_renewal_without_the_lease_is_refused(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install("one", "alpha")?]).await?;
    let claimed = claim(&*store, "one", "w1").await?;
    let lease = lease_of(&claimed)?;
    let wrong = [
        OperationLease { owner: worker("w2")?, ..lease.clone() },
        OperationLease { token: LeaseToken(2), ..lease.clone() },
        OperationLease { operation_id: operation_id("missing")?, ..lease.clone() },
    ];
    for wrong in wrong {
        assert_eq!(refused(store.renew_operation(&wrong, MINUTE).await), ErrorCode::LeaseLost);
    }
    assert_eq!(stored(&*store, "one").await?, claimed);

    factory.advance_clock(MINUTE);
    assert_eq!(
        refused(store.renew_operation(&lease, MINUTE).await),
        ErrorCode::LeaseLost,
        "a lease that is over is not renewed, even when nobody took it"
    );
    Ok(())
}

pub(super) async fn giving_back_frees_the_operation_and_keeps_the_token(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install("one", "alpha")?]).await?;
    let claimed = claim(&*store, "one", "w1").await?;
    let lease = lease_of(&claimed)?;
    store.release_operation(&OperationLease { token: LeaseToken(7), ..lease.clone() }).await?;
    store.release_operation(&OperationLease { owner: worker("w2")?, ..lease.clone() }).await?;
    assert_eq!(stored(&*store, "one").await?, claimed, "another's lease is not given back");

    store.release_operation(&lease).await?;
    store.release_operation(&lease).await?;
    let free = stored(&*store, "one").await?;
    assert_eq!((free.lease, free.lease_token), (None, LeaseToken(1)));
    assert_eq!(claim(&*store, "one", "w2").await?.lease_token, LeaseToken(2));
    Ok(())
}

pub(super) async fn a_save_under_a_lost_lease_is_refused(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install("one", "alpha")?]).await?;
    let mut stale = claim(&*store, "one", "w1").await?;
    factory.advance_clock(MINUTE);
    let current = claim(&*store, "one", "w2").await?;
    stale.enter(Stage::Installing, Timestamp(9_000));
    assert_eq!(refused(save_operations(&*store, &[stale]).await), ErrorCode::LeaseLost);
    assert_eq!(stored(&*store, "one").await?, current);

    let mut of_another = current.clone();
    if let Some(lease) = &mut of_another.lease {
        lease.owner = worker("w3")?;
    }
    assert_eq!(refused(save_operations(&*store, &[of_another]).await), ErrorCode::LeaseLost);

    store.release_operation(&lease_of(&current)?).await?;
    assert_eq!(
        refused(save_operations(&*store, &[current]).await),
        ErrorCode::LeaseLost,
        "a lease that was given back fences too"
    );
    let mut read_again = stored(&*store, "one").await?;
    read_again.enter(Stage::Installing, Timestamp(9_000));
    save_operations(&*store, std::slice::from_ref(&read_again)).await?;
    assert_eq!(stored(&*store, "one").await?, read_again);
    Ok(())
}

pub(super) async fn a_save_leaves_the_lease_as_it_is(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    let unclaimed = install("one", "alpha")?;
    save_operations(&*store, std::slice::from_ref(&unclaimed)).await?;
    let mut claimed = claim(&*store, "one", "w1").await?;
    factory.advance_clock(MINUTE / 2);
    store.renew_operation(&lease_of(&claimed)?, MINUTE).await?;
    let renewed = stored(&*store, "one").await?.lease;
    claimed.enter(Stage::Installing, Timestamp(9_000));
    save_operations(&*store, &[claimed]).await?;
    let after = stored(&*store, "one").await?;
    assert_eq!(after.stage, Stage::Installing);
    assert_eq!(after.lease, renewed, "a save does not put an older end of the lease back");

    save_operations(&*store, &[unclaimed]).await?;
    let after = stored(&*store, "one").await?;
    assert_eq!((after.stage, after.lease_token), (Stage::Accepted, LeaseToken(1)));
    assert_eq!(after.lease, renewed);
    Ok(())
}

pub(super) async fn a_claim_waits_for_whoever_decides_about_its_operation(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let (here, there) = (open(&factory).await?.store, open(&factory).await?.store);
    save_operations(&*here, &[install("one", "alpha")?]).await?;
    let mut tx = here.begin().await?;
    let read = tx.operation(&operation_id("one")?).await?;
    let mut ended = read.ok_or_else(|| Error::not_found("the operation is stored"))?;
    let (id, by) = (operation_id("one")?, worker("w1")?);
    let mut claim = pin!(there.claim_operation(&id, &by, MINUTE));
    let early = tokio::time::timeout(Duration::from_millis(50), &mut claim).await;
    assert!(early.is_err(), "what was read may still be decided about: {early:?}");
    ended.complete(Timestamp(2_000));
    tx.save_operation(&ended).await?;
    tx.commit().await?;
    assert_eq!(claim.await?, None, "it has ended before the claim");
    assert_eq!(stored(&*here, "one").await?, ended);
    Ok(())
}

pub(super) async fn whoever_lost_a_lease_changes_nothing_under_it(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install("one", "alpha")?]).await?;
    let stale = claim(&*store, "one", "w1").await?;
    factory.advance_clock(MINUTE);
    // The same worker again: only the token tells its two claims apart.
    let current = claim(&*store, "one", "w1").await?;
    store.release_operation(&lease_of(&stale)?).await?;
    assert_eq!(refused(store.renew_operation(&lease_of(&stale)?, 5 * MINUTE).await), ErrorCode::LeaseLost);
    let mut late = stale.clone();
    late.complete(Timestamp(9_000));
    assert_eq!(refused(save_operations(&*store, &[late]).await), ErrorCode::LeaseLost);
    let again = open(&factory).await?.store;
    assert_eq!(stored(&*again, "one").await?, current);
    assert_eq!(again.claim_operation(&operation_id("one")?, &worker("w2")?, MINUTE).await?, None);
    Ok(())
}

pub(super) async fn a_late_save_and_a_claim_at_once_agree(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let [here, there] = handles(&factory).await?;
    let w2 = worker("w2")?;
    for round in 0..ROUNDS {
        let id = operation_id(&format!("op-{round}"))?;
        save_operations(&*here, &[install(id.as_str(), &format!("c{round}"))?]).await?;
        let mut late = claim(&*here, id.as_str(), "w1").await?;
        factory.advance_clock(MINUTE);
        late.enter(Stage::Installing, Timestamp(9_000));
        let late = [late];
        let (save, claim) = (save_operations(&*here, &late), there.claim_operation(&id, &w2, MINUTE));
        // Either is the first to try in every other round.
        let (saved, claimed) = if round % 2 == 0 {
            futures::join!(save, claim)
        } else {
            let (claimed, saved) = futures::join!(claim, save);
            (saved, claimed)
        };
        let claimed = claimed?.ok_or_else(|| Error::unavailable("a lease that is over keeps others away"))?;
        let expected = match saved {
            Ok(()) => Stage::Installing,
            Err(error) => {
                assert_eq!(error.code, ErrorCode::LeaseLost, "{error:?}");
                Stage::Accepted
            }
        };
        assert_eq!(claimed.stage, expected, "the claim goes on from what was stored before it");
        assert_eq!(stored(&*here, id.as_str()).await?, claimed);
    }
    Ok(())
}

pub(super) async fn a_lease_may_last_for_ever(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let store = open(&factory).await?.store;
    save_operations(&*store, &[install("one", "alpha")?]).await?;
    let id = operation_id("one")?;
    let claimed = store.claim_operation(&id, &worker("w1")?, Duration::MAX).await?;
    factory.advance_clock(MINUTE * 60 * 24 * 365 * 1_000);
    assert_eq!(store.claim_operation(&id, &worker("w2")?, MINUTE).await?, None);
    assert_eq!(Some(stored(&*store, "one").await?), claimed);
    Ok(())
}
