//! On which connection a release runs for an account, and whether it may: the one
//! place that decides it (spec B.4).
//!
//! Pure: until accounts have authorization projections, a connector that needs
//! an authorization has none, so it is installed but does not run.

use crate::domain::{
    authorization::AuthorizationState, id::ConnectionId, manifest::AuthorizationKind,
    operation::OperationScope, release::Release,
};

/// The decision for one release in one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    /// The connection that identifies the route.
    pub(super) connection_id: ConnectionId,
    /// Whether the authorization allows it to run.
    pub(super) enabled: bool,
    /// Where that authorization stands.
    pub(super) authorization: AuthorizationState,
}

/// Decides for `release` in `scope`.
pub(super) fn resolve(scope: &OperationScope, release: &Release) -> Binding {
    let key = &release.connector_key;
    let account = scope.account_id.as_ref();
    let manifest = &release.manifest;
    match (manifest.authorization_kind, manifest.implementation.is_remote()) {
        (AuthorizationKind::None, false) => Binding {
            connection_id: ConnectionId::device(key),
            enabled: true,
            authorization: AuthorizationState::NotRequired,
        },
        (AuthorizationKind::None, true) => Binding {
            connection_id: ConnectionId::account(account, key),
            enabled: account.is_some(),
            authorization: AuthorizationState::NotRequired,
        },
        (AuthorizationKind::Oauth2 | AuthorizationKind::ApiKey, _) => Binding {
            connection_id: ConnectionId::account(account, key),
            enabled: false,
            authorization: AuthorizationState::Disconnected,
        },
    }
}
