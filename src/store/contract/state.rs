//! Connector state: what a connection's connector keeps, apart from all others.

use std::sync::Arc;

use super::{
    Opened, StoreFactory,
    samples::{ROUNDS, key, open, refused},
};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        id::{AccountId, ConnectionId},
    },
    ports::{StateChanges, StateScope},
};

const ROOMY: u64 = 1 << 20;

fn scope(account: Option<&str>, connector: &str, connection: &str) -> Result<StateScope, Error> {
    Ok(StateScope {
        account: account.map(AccountId::parse).transpose()?,
        connector_key: key(connector)?,
        connection_id: ConnectionId::parse(connection)?,
    })
}

fn changes(changes: &[(&str, Option<&[u8]>)]) -> StateChanges {
    changes.iter().map(|(key, value)| ((*key).to_owned(), value.map(<[u8]>::to_vec))).collect()
}

pub(super) async fn a_value_is_what_was_written_last(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let ledger = open(&factory).await?.ledger;
    let scope = scope(None, "alpha", "default")?;
    assert_eq!(ledger.state_value(&scope, "a").await?, None);
    assert_eq!(ledger.state_size(&scope).await?, 0);
    let first = changes(&[("a", Some(b"\0\xff one")), ("b", Some(b"")), ("ü", Some(b"three"))]);
    ledger.apply_state(&scope, &first, ROOMY).await?;
    assert_eq!(ledger.state_value(&scope, "a").await?.as_deref(), Some(&b"\0\xff one"[..]));
    assert_eq!(ledger.state_value(&scope, "b").await?.as_deref(), Some(&b""[..]));
    assert_eq!(ledger.state_size(&scope).await?, 1 + 6 + 1 + 2 + 5, "keys and values, in bytes");

    let second = changes(&[("a", Some(b"two")), ("b", None), ("missing", None)]);
    ledger.apply_state(&scope, &second, ROOMY).await?;
    ledger.apply_state(&scope, &StateChanges::new(), 0).await?;
    let again = open(&factory).await?.ledger;
    assert_eq!(again.state_value(&scope, "a").await?.as_deref(), Some(&b"two"[..]));
    assert_eq!(again.state_value(&scope, "b").await?, None);
    assert_eq!(again.state_keys(&scope, "").await?, ["a", "ü"]);
    Ok(())
}

pub(super) async fn keys_are_found_by_their_exact_prefix_in_byte_order(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let ledger = open(&factory).await?.ledger;
    let scope = scope(None, "alpha", "default")?;
    let names = ["b", "a_c", "abc", "A_c", "a%c", "ä1", "ä0", "a-c"];
    let all: Vec<(&str, Option<&[u8]>)> = names.iter().map(|name| (*name, Some(&b"x"[..]))).collect();
    ledger.apply_state(&scope, &changes(&all), ROOMY).await?;
    assert_eq!(ledger.state_keys(&scope, "").await?, ["A_c", "a%c", "a-c", "a_c", "abc", "b", "ä0", "ä1"]);
    assert_eq!(ledger.state_keys(&scope, "a").await?, ["a%c", "a-c", "a_c", "abc"]);
    assert_eq!(ledger.state_keys(&scope, "a_").await?, ["a_c"]);
    assert_eq!(ledger.state_keys(&scope, "a%").await?, ["a%c"]);
    assert_eq!(ledger.state_keys(&scope, "ä").await?, ["ä0", "ä1"]);
    assert_eq!(ledger.state_keys(&scope, "abcd").await?, [""; 0]);
    Ok(())
}

pub(super) async fn scopes_do_not_see_each_other(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let ledger = open(&factory).await?.ledger;
    let scopes = [
        scope(None, "alpha", "default")?,
        scope(Some("ann"), "alpha", "default")?,
        scope(Some("ann"), "beta", "default")?,
        scope(Some("ann"), "alpha", "second")?,
    ];
    for (number, scope) in scopes.iter().enumerate() {
        let value = [u8::try_from(number).unwrap_or(0)];
        ledger.apply_state(scope, &changes(&[("same", Some(&value))]), ROOMY).await?;
    }
    ledger.apply_state(&scopes[1], &changes(&[("same", None)]), ROOMY).await?;
    for (number, scope) in scopes.iter().enumerate() {
        let expected = (number != 1).then(|| vec![u8::try_from(number).unwrap_or(0)]);
        assert_eq!(ledger.state_value(scope, "same").await?, expected);
        assert_eq!(ledger.state_size(scope).await?, if number == 1 { 0 } else { 5 });
    }
    Ok(())
}

pub(super) async fn changes_over_the_quota_leave_nothing(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let ledger = open(&factory).await?.ledger;
    let scope = scope(None, "alpha", "default")?;
    ledger.apply_state(&scope, &changes(&[("a", Some(b"12345"))]), 10).await?;
    let over = changes(&[("a", None), ("b", Some(b"1234567890"))]);
    assert_eq!(refused(ledger.apply_state(&scope, &over, 10).await), ErrorCode::CapabilityOutputTooLarge);
    assert_eq!(ledger.state_value(&scope, "a").await?.as_deref(), Some(&b"12345"[..]));
    assert_eq!(ledger.state_value(&scope, "b").await?, None);
    let exactly = changes(&[("a", None), ("b", Some(b"123456789"))]);
    ledger.apply_state(&scope, &exactly, 10).await?;
    assert_eq!(ledger.state_size(&scope).await?, 10);
    Ok(())
}

pub(super) async fn state_over_a_lowered_quota_may_shrink(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let ledger = open(&factory).await?.ledger;
    let scope = scope(None, "alpha", "default")?;
    let full = changes(&[("a", Some(b"1234567890")), ("b", Some(b"1234567890"))]);
    ledger.apply_state(&scope, &full, ROOMY).await?;
    ledger.apply_state(&scope, &changes(&[("a", None)]), 5).await?;
    assert_eq!(ledger.state_size(&scope).await?, 11);
    let grown = changes(&[("c", Some(b"1"))]);
    assert_eq!(refused(ledger.apply_state(&scope, &grown, 5).await), ErrorCode::CapabilityOutputTooLarge);
    Ok(())
}

pub(super) async fn a_connectors_state_is_forgotten_everywhere(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let Opened { store, ledger } = open(&factory).await?;
    let gone = [scope(None, "alpha", "default")?, scope(Some("ann"), "alpha", "second")?];
    let kept = scope(Some("ann"), "beta", "default")?;
    for scope in gone.iter().chain([&kept]) {
        ledger.apply_state(scope, &changes(&[("a", Some(b"1"))]), ROOMY).await?;
    }
    let mut undone = store.begin().await?;
    undone.delete_connector_state(&key("alpha")?).await?;
    drop(undone);
    for scope in &gone {
        assert_eq!(ledger.state_keys(scope, "").await?, ["a"]);
    }
    let mut tx = store.begin().await?;
    tx.delete_connector_state(&key("alpha")?).await?;
    tx.commit().await?;
    for scope in &gone {
        assert_eq!(ledger.state_keys(scope, "").await?, [""; 0]);
    }
    assert_eq!(ledger.state_keys(&kept, "").await?, ["a"]);
    Ok(())
}

pub(super) async fn changes_at_once_keep_to_the_quota(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let (here, there) = (open(&factory).await?.ledger, open(&factory).await?.ledger);
    for number in 0..ROUNDS {
        let scope = scope(None, "alpha", &format!("c{number}"))?;
        let (one, two) = (changes(&[("a", Some(b"12345"))]), changes(&[("b", Some(b"12345"))]));
        let (one, two) =
            futures::join!(here.apply_state(&scope, &one, 10), there.apply_state(&scope, &two, 10));
        assert_eq!(refused(one.and(two)), ErrorCode::CapabilityOutputTooLarge, "there is room for one");
        assert_eq!(here.state_size(&scope).await?, 6);
    }
    Ok(())
}
