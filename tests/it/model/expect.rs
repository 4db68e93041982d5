//! The reference: what a command must be answered and what an execution must come to,
//! told from one reading alone, where nothing goes wrong. It knows no database.

use std::collections::BTreeMap;

use portcullis::domain::{
    authorization::AuthorizationState,
    compatibility::CompatibilityState,
    connector::Connector,
    error::ErrorCode,
    id::{AccountId, ConnectorKey, OperationId},
    installation::Installation,
    manifest::AuthorizationKind,
    operation::{Operation, OperationKind},
    release::Release,
};

use super::{
    device::{Sent, key_of, scope},
    seen::Seen,
    step::Verb,
};

/// The command that a client request id stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) kind: OperationKind,
    pub(crate) key: Option<ConnectorKey>,
    pub(crate) operation_id: OperationId,
}

/// Every accepted command that was not cleaned up, by who sent it and under which id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(BTreeMap<(Option<AccountId>, String), Known>);

impl Ledger {
    /// Who sent what under which id, and its operation.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&(Option<AccountId>, String), &Known)> {
        self.0.iter()
    }

    pub(crate) fn known(&self, sent: &Sent) -> Option<&Known> {
        self.0.get(&(scope(sent.by).account_id, sent.id.clone()))
    }

    /// Learns what was accepted, whether or not anybody heard of it.
    pub(crate) fn look(&mut self, seen: &Seen) {
        for operation in seen.operations.values() {
            if operation.kind == OperationKind::ReconcileRuntime {
                continue;
            }
            let known = Known {
                kind: operation.kind,
                key: operation.connector_key.clone(),
                operation_id: operation.operation_id.clone(),
            };
            let id = operation.client_request_id.to_string();
            let place = (operation.owner_account_id.clone(), id);
            if let Some(earlier) = self.0.insert(place, known.clone()) {
                assert_eq!(earlier, known, "one client request id stands for two operations");
            }
        }
    }

    /// What was known at an earlier reading.
    pub(crate) fn before(&self, seen: &Seen) -> Self {
        let there = |known: &Known| seen.operations.contains_key(&known.operation_id);
        Self(
            self.0
                .iter()
                .filter(|(_, known)| there(known))
                .map(|(at, known)| (at.clone(), known.clone()))
                .collect(),
        )
    }

    /// Forgets what a cleanup may have taken. What ran beside it may have ended first.
    pub(crate) fn forget(&mut self, before: &Seen, seen: &Seen, cutoff: i64, beside: bool) {
        self.0.retain(|_, known| {
            let stored = before.operations.get(&known.operation_id);
            let may_go =
                stored.is_some_and(|stored| (beside || !stored.is_active()) && stored.updated_at.0 <= cutoff);
            seen.operations.contains_key(&known.operation_id) || !may_go
        });
    }

    /// Whatever was accepted is there.
    pub(crate) fn check(&self, seen: &Seen) {
        for (place, known) in &self.0 {
            assert!(
                seen.operations.contains_key(&known.operation_id),
                "the operation of {place:?} is gone: {known:?}"
            );
        }
    }
}

/// How a command must be answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// With the operation that stands for it already.
    Replay(OperationId),
    /// With a refusal.
    Refused(ErrorCode),
    /// With a new operation, or the change itself.
    Accepted,
}

pub(crate) fn kind(verb: Verb) -> Option<OperationKind> {
    Some(match verb {
        Verb::Refresh => OperationKind::RefreshCatalog,
        Verb::Install => OperationKind::Install,
        Verb::Uninstall => OperationKind::Uninstall,
        Verb::Disconnect => OperationKind::DisconnectAuthorization,
        Verb::Begin { .. } => OperationKind::StartAuthorization,
        Verb::Enable(_) => return None,
    })
}

/// The answer to a command, and to one that replaces an attempt as if it were alone.
pub(crate) fn answer(seen: &Seen, ledger: &Ledger, sent: &Sent) -> Answer {
    match decide(seen, ledger, sent) {
        Ok(answer) => answer,
        Err(code) => Answer::Refused(code),
    }
}

fn decide(seen: &Seen, ledger: &Ledger, sent: &Sent) -> Result<Answer, ErrorCode> {
    let Some(kind) = kind(sent.verb) else { return enable(seen, sent) };
    let lane = (kind != OperationKind::RefreshCatalog).then(|| key_of(sent.key));
    let replay = || match ledger.known(sent) {
        None => Ok(None),
        Some(known) if known.kind == kind && known.key == lane => Ok(Some(known.operation_id.clone())),
        Some(_) => Err(ErrorCode::InvalidRequest),
    };
    if kind == OperationKind::RefreshCatalog {
        if let Some(id) = replay()? {
            return Ok(Answer::Replay(id));
        }
        fresh(seen, sent, None)?;
        return seen.lane(None).map_or(Ok(Answer::Accepted), |_| Err(ErrorCode::OperationInProgress));
    }
    let connector = seen.connector(sent.key);
    let authorizes =
        matches!(kind, OperationKind::StartAuthorization | OperationKind::DisconnectAuthorization);
    if authorizes {
        let connector = connector.ok_or(ErrorCode::NotFound)?;
        if is_remote(connector) && scope(sent.by).account_id.is_none() {
            return Err(ErrorCode::InvalidRequest);
        }
    }
    if let Some(id) = replay()? {
        return Ok(Answer::Replay(id));
    }
    let connector = connector.ok_or(ErrorCode::NotFound)?;
    if let Verb::Begin { replace, after_step, .. } = sent.verb {
        begin(seen, sent, connector, replace, after_step)?;
    }
    fresh(seen, sent, Some(connector))?;
    if seen.lane(lane.as_ref()).is_some() {
        return Err(ErrorCode::OperationInProgress);
    }
    let allowed = match sent.verb {
        Verb::Install if connector.compatibility.state != CompatibilityState::Supported => {
            return Err(ErrorCode::Incompatible);
        }
        // Whatever else is under way holds the lane.
        Verb::Install => true,
        Verb::Uninstall => connector.installation.installed().is_some(),
        Verb::Disconnect => {
            is_remote(connector) || connector.authorization.state != AuthorizationState::NotRequired
        }
        Verb::Begin { replace, .. } => {
            let state = connector.authorization.state;
            let shared = scope(sent.by).account_id.is_some() && state == AuthorizationState::Connected;
            let reset = replace && state == AuthorizationState::Pending;
            is_remote(connector)
                || shared
                || reset
                || !matches!(state, AuthorizationState::NotRequired | AuthorizationState::Connected)
        }
        Verb::Refresh | Verb::Enable(_) => true,
    };
    if allowed { Ok(Answer::Accepted) } else { Err(ErrorCode::OperationInProgress) }
}

/// The caller's revision must be the current one.
fn fresh(seen: &Seen, sent: &Sent, connector: Option<&Connector>) -> Result<(), ErrorCode> {
    let holds = match (sent.mutation.expected_connector_revision, connector) {
        (Some(expected), Some(connector)) => connector.revision == expected,
        _ => seen.snapshot.revision == sent.mutation.mutation.expected_revision,
    };
    if holds { Ok(()) } else { Err(ErrorCode::RevisionConflict) }
}

fn begin(
    seen: &Seen,
    sent: &Sent,
    connector: &Connector,
    replace: bool,
    after_step: u64,
) -> Result<(), ErrorCode> {
    if after_step != 0 {
        return Err(ErrorCode::InvalidRequest);
    }
    let account = scope(sent.by).account_id;
    if replace {
        fresh(seen, sent, Some(connector))?;
    } else if open_attempts(seen, account.as_ref(), &connector.key) > 0 {
        return Err(ErrorCode::OperationInProgress);
    }
    let held = account.and_then(|account| seen.projections.get(&(account, connector.key.clone())));
    match held.map(|held| held.state) {
        Some(AuthorizationState::Pending) if replace => Ok(()),
        Some(AuthorizationState::Pending | AuthorizationState::Connected) => {
            Err(ErrorCode::OperationInProgress)
        }
        _ => Ok(()),
    }
}

pub(crate) fn open_attempts(seen: &Seen, account: Option<&AccountId>, key: &ConnectorKey) -> usize {
    seen.operations
        .values()
        .filter(|operation| {
            operation.open_session().is_some()
                && operation.owner_account_id.as_ref() == account
                && operation.connector_key.as_ref() == Some(key)
        })
        .count()
}

fn enable(seen: &Seen, sent: &Sent) -> Result<Answer, ErrorCode> {
    let connector = seen.connector(sent.key).ok_or(ErrorCode::NotFound)?;
    if connector.compatibility.is_removed_from_catalog() {
        return Err(ErrorCode::NotFound);
    }
    if !matches!(connector.installation, Installation::Installed { .. }) {
        return Err(ErrorCode::OperationInProgress);
    }
    fresh(seen, sent, Some(connector))?;
    Ok(Answer::Accepted)
}

pub(crate) fn is_remote(connector: &Connector) -> bool {
    connector.release.manifest.implementation.is_remote()
}

/// The installation right after a command was accepted.
pub(crate) fn accepted_installation(verb: Verb, before: &Installation) -> &'static str {
    match (verb, before) {
        (Verb::Install, Installation::Installed { .. }) => "updating",
        (Verb::Install, _) => "installing",
        (Verb::Uninstall, _) => "uninstalling",
        _ => before.name(),
    }
}

/// Whether an execution must succeed where nothing goes wrong; none where that hangs on
/// how often the operation was cut off.
pub(crate) fn completes(operation: &Operation, offers: &[Release]) -> Option<bool> {
    if operation.interrupted >= 7 {
        return None;
    }
    Some(match operation.kind {
        OperationKind::StartAuthorization => false,
        OperationKind::RefreshCatalog => offers.iter().all(|release| release.validate().is_ok()),
        _ => true,
    })
}

/// What the catalog makes of the stored connectors: what is offered, and what is kept
/// because something hangs on it.
pub(crate) fn refreshed(seen: &Seen, offers: &[Release]) -> BTreeMap<ConnectorKey, Option<Release>> {
    let kept = seen.snapshot.connectors.iter().filter(|connector| {
        connector.installation != Installation::NotInstalled || seen.lane(Some(&connector.key)).is_some()
    });
    let offered = offers.iter().map(|release| (release.connector_key.clone(), Some(release.clone())));
    kept.map(|connector| (connector.key.clone(), None)).chain(offered).collect()
}

/// Whether a route must run, from what the account holds and the user's switch.
pub(crate) fn runs(
    release: &Release,
    account: Option<&AccountId>,
    seen: &Seen,
    ready: bool,
    switch: Option<bool>,
) -> bool {
    let manifest = &release.manifest;
    let remote = manifest.implementation.is_remote();
    let allowed = if manifest.authorization_kind == AuthorizationKind::None {
        !remote || account.is_some()
    } else {
        let place = account.map(|account| (account.clone(), release.connector_key.clone()));
        place.and_then(|place| seen.projections.get(&place)).is_some_and(|held| {
            held.state == AuthorizationState::Connected && (!remote || ready && held.server_synchronized)
        })
    };
    allowed && switch.unwrap_or(true)
}
