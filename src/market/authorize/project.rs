//! What an account holds: projections, saved and read under the rules of spec E.6,
//! and whether the account's truth was read in this boot.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Mutex, PoisonError},
};

use super::is_remote;
use crate::{
    domain::{
        authorization::{
            AppliedAuthorizations, AuthorizationProjection, AuthorizationSnapshot, AuthorizationState,
        },
        connector::Connector,
        error::{Error, ErrorCode},
        id::{AccountId, ConnectionId, ConnectorKey},
        operation::OperationScope,
        timestamp::Timestamp,
    },
    market::{application::Application, converge::stamp, snapshot::unknown_connector, tx::transaction},
    ports::Tx,
};

/// The accounts whose truth was read in this boot. Until then nothing that an
/// account authorized at a remote connector runs.
#[derive(Debug, Default)]
pub(in crate::market) struct Readiness(Mutex<HashSet<AccountId>>);

impl Readiness {
    /// Whether the truth of `account` was read; never for nobody.
    pub(in crate::market) fn is_ready(&self, account: Option<&AccountId>) -> bool {
        let ready = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        account.is_some_and(|account| ready.contains(account))
    }

    fn set(&self, account: &AccountId, ready: bool) -> bool {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ready { accounts.insert(account.clone()) } else { accounts.remove(account) }
    }
}

/// What an authorization of a connector has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Projected {
    Pending,
    Connected(ConnectionId),
    Disconnected,
    Failed(Option<String>),
}

impl Application {
    /// Says whether the truth of an account was read in this boot. Answers whether
    /// that is news.
    pub fn set_authorization_ready(&self, account: &AccountId, ready: bool) -> bool {
        self.readiness.set(account, ready)
    }

    /// What an account holds for a connector.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn authorization_projection(
        &self,
        account: &AccountId,
        key: &ConnectorKey,
    ) -> Result<Option<AuthorizationProjection>, Error> {
        self.config.store.authorization_projection(account, key).await
    }

    /// Applies an account's truth, if it is newer than what was applied before; all
    /// of it or nothing (spec E.6).
    ///
    /// # Errors
    /// [`ErrorCode::UpstreamUnavailable`], not retryable, for a truth that
    /// contradicts itself; the store's.
    pub async fn apply_authorizations(
        &self,
        account: &AccountId,
        snapshot: &AuthorizationSnapshot,
    ) -> Result<AppliedAuthorizations, Error> {
        check(account, snapshot)?;
        let now = self.now();
        transaction!(self.config.store, |tx| { apply(tx, account, snapshot, now).await? })
    }

    /// Brings the account's projection to what an attempt has come to: a remote
    /// connector's from the account's truth, a local one's from the attempt itself.
    /// Nothing when nobody is signed in.
    ///
    /// A connector can be authorized before it is installed: the release that it is
    /// authorized for is then the offered one.
    pub(super) async fn project(
        &self,
        scope: &OperationScope,
        connector: &Connector,
        outcome: Projected,
    ) -> Result<(), Error> {
        let Some(account) = &scope.account_id else { return Ok(()) };
        if is_remote(connector) {
            let source = self.config.authorization_source.as_ref().ok_or_else(|| {
                Error::unavailable("nobody keeps the authorizations of accounts; remote connectors need it")
            })?;
            let snapshot = source.snapshot(account).await.map_err(|cause| {
                Error::unavailable("the account's authorizations could not be read; try again")
                    .with_cause(cause)
            })?;
            self.apply_authorizations(account, &snapshot).await?;
            self.set_authorization_ready(account, true);
            return Ok(());
        }
        let version = connector
            .installation
            .installed()
            .map_or(&connector.release.version, |installed| &installed.identity.version);
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let stored = tx.authorization_projection(account, &connector.key).await?;
            let before = stored.as_ref();
            let (state, connection_id, failure_code) = match &outcome {
                Projected::Pending => (AuthorizationState::Pending, None, None),
                Projected::Connected(id) => (AuthorizationState::Connected, Some(id.clone()), None),
                Projected::Disconnected => (AuthorizationState::Disconnected, None, None),
                Projected::Failed(code) => (AuthorizationState::Failed, None, code.clone()),
            };
            let renewed = before.is_none_or(|before| before.connection_id != connection_id);
            let next = AuthorizationProjection {
                connector_version: Some(version.clone()),
                connection_version: before.map_or(0, |before| before.connection_version)
                    + u64::from(renewed && connection_id.is_some()),
                server_revision: before.map_or(0, |before| before.server_revision),
                server_synchronized: before.is_some_and(|before| before.server_synchronized),
                connection_id,
                failure_code,
                ..AuthorizationProjection::local(account.clone(), connector.key.clone(), state, now)
            };
            save_projection(tx, &next).await?;
        })
    }

    /// Saves what a provider or an observer says that an account holds for a
    /// connector, and brings its runtime to that (spec D.5).
    ///
    /// # Errors
    /// [`ErrorCode::InvalidRequest`] for a projection of no account, or in a state
    /// that none has; [`ErrorCode::InstallFailed`] for one that is connected without
    /// a connection; why the runtime did not follow.
    pub async fn observe_authorization(&self, projection: &AuthorizationProjection) -> Result<(), Error> {
        projection.validate()?;
        let key = &projection.connector_key;
        self.config.store.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
        transaction!(self.config.store, |tx| {
            save_projection(tx, projection).await?;
        })?;
        self.reconcile_runtime(&OperationScope::account(projection.account_id.clone()), key).await
    }
}

/// Saves a projection, unless what is stored is of a newer truth. Readers are told
/// only of what they would see. Answers whether they were.
///
/// # Errors
/// As [`AuthorizationProjection::validate`], and the store's.
pub(in crate::market) async fn save_projection(
    tx: &mut dyn Tx,
    next: &AuthorizationProjection,
) -> Result<bool, Error> {
    next.validate()?;
    let stored = tx.authorization_projection(&next.account_id, &next.connector_key).await?;
    if stored.as_ref().is_some_and(|stored| !stored.gives_way_to(next)) {
        return Ok(false);
    }
    tx.save_authorization_projection(next).await?;
    let visible = stored.is_none_or(|stored| stored.differs_publicly(next));
    if visible {
        stamp(tx, &next.connector_key).await?;
    }
    Ok(visible)
}

fn check(account: &AccountId, snapshot: &AuthorizationSnapshot) -> Result<(), Error> {
    let contradiction = |what: String| {
        Error::new(ErrorCode::UpstreamUnavailable, format!("the account's authorizations are wrong: {what}"))
            .with_retryable(false)
    };
    let mut seen = HashSet::new();
    for projection in &snapshot.projections {
        let key = &projection.connector_key;
        if projection.account_id != *account {
            return Err(contradiction(format!("{key} is another account's")));
        }
        if !seen.insert(key) {
            return Err(contradiction(format!("{key} is listed twice")));
        }
        projection.validate().map_err(|cause| contradiction(cause.message))?;
    }
    Ok(())
}

async fn apply(
    tx: &mut dyn Tx,
    account: &AccountId,
    snapshot: &AuthorizationSnapshot,
    now: Timestamp,
) -> Result<AppliedAuthorizations, Error> {
    let applied = tx.authorization_revision(account).await?;
    let stored: BTreeMap<ConnectorKey, AuthorizationProjection> = tx
        .authorization_projections(account)
        .await?
        .into_iter()
        .map(|projection| (projection.connector_key.clone(), projection))
        .collect();
    let mut changed = Vec::new();
    let mut current = stored.clone();
    if applied.is_none_or(|applied| snapshot.revision > applied) {
        for next in successors(&stored, snapshot, now) {
            let before = stored.get(&next.connector_key);
            if before.is_none_or(|before| differs_in_substance(before, &next)) {
                changed.push(next.connector_key.clone());
            }
            tx.save_authorization_projection(&next).await?;
            current.insert(next.connector_key.clone(), next);
        }
        for key in &changed {
            stamp(tx, key).await?;
        }
        tx.save_authorization_revision(account, snapshot.revision).await?;
    }
    let connected = |key: &ConnectorKey| {
        current.get(key).is_some_and(|projection| {
            projection.server_synchronized && projection.state == AuthorizationState::Connected
        })
    };
    let open = tx.open_authorizations(&OperationScope::account(account.clone())).await?;
    let mut pending_receipts: Vec<ConnectorKey> =
        open.into_iter().filter_map(|operation| operation.connector_key).filter(connected).collect();
    pending_receipts.sort_unstable();
    pending_receipts.dedup();
    Ok(AppliedAuthorizations { changed, pending_receipts })
}

/// The projections that a newer truth replaces, by connector: what it lists, and
/// what it listed before and does not any more. What only this host knows stays.
fn successors(
    stored: &BTreeMap<ConnectorKey, AuthorizationProjection>,
    snapshot: &AuthorizationSnapshot,
    now: Timestamp,
) -> Vec<AuthorizationProjection> {
    let listed: HashSet<&ConnectorKey> =
        snapshot.projections.iter().map(|projection| &projection.connector_key).collect();
    let gone = stored
        .values()
        .filter(|before| before.server_synchronized && !listed.contains(&before.connector_key))
        .map(|before| AuthorizationProjection {
            state: AuthorizationState::Disconnected,
            connection_id: None,
            failure_code: None,
            ..before.clone()
        });
    let mut next: Vec<AuthorizationProjection> = snapshot.projections.iter().cloned().chain(gone).collect();
    next.sort_unstable_by(|one, other| one.connector_key.cmp(&other.connector_key));
    for projection in &mut next {
        projection.server_synchronized = true;
        projection.server_revision = snapshot.revision;
        projection.updated_at = now;
    }
    next
}

fn differs_in_substance(one: &AuthorizationProjection, other: &AuthorizationProjection) -> bool {
    one.state != other.state
        || one.connection_id != other.connection_id
        || one.connection_version != other.connection_version
        || one.connector_version != other.connector_version
}
