//! On which connection a release runs for an account, and whether it may: the one
//! place that decides it (spec B.4).
//!
//! No credential is handed over here. The host draws one when a call needs it, so a
//! route neither holds nor outlives it.

use super::application::Application;
use crate::domain::{
    authorization::{AuthorizationProjection, AuthorizationState},
    error::Error,
    id::ConnectionId,
    manifest::AuthorizationKind,
    operation::OperationScope,
    release::Release,
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
    /// The version of the connection behind it; 0 without one.
    pub(super) connection_version: u64,
    /// The revision of the account's truth behind it; 0 without one.
    pub(super) server_revision: u64,
}

impl Application {
    /// Decides for `release` in `scope`, by what the account holds now.
    pub(super) async fn binding(&self, scope: &OperationScope, release: &Release) -> Result<Binding, Error> {
        let projection = match &scope.account_id {
            Some(account) if release.manifest.authorization_kind != AuthorizationKind::None => {
                self.config.store.authorization_projection(account, &release.connector_key).await?
            }
            _ => None,
        };
        let ready = self.readiness.is_ready(scope.account_id.as_ref());
        Ok(decide(scope, release, projection.as_ref(), ready))
    }
}

/// `ready` says whether the account's truth was read in this boot.
fn decide(
    scope: &OperationScope,
    release: &Release,
    projection: Option<&AuthorizationProjection>,
    ready: bool,
) -> Binding {
    let key = &release.connector_key;
    let account = scope.account_id.as_ref();
    let remote = release.manifest.implementation.is_remote();
    let off = |authorization| Binding {
        connection_id: ConnectionId::account(account, key),
        enabled: false,
        authorization,
        connection_version: 0,
        server_revision: 0,
    };
    if release.manifest.authorization_kind == AuthorizationKind::None {
        return if remote {
            Binding { enabled: account.is_some(), ..off(AuthorizationState::NotRequired) }
        } else {
            Binding {
                connection_id: ConnectionId::device(key),
                enabled: true,
                ..off(AuthorizationState::NotRequired)
            }
        };
    }
    let Some(projection) = projection.filter(|held| !remote || ready && held.server_synchronized) else {
        return off(AuthorizationState::Disconnected);
    };
    // A remote route is the account's: the connections behind it come and go.
    let connection = projection.connection_id.clone().filter(|_| !remote);
    Binding {
        enabled: projection.state == AuthorizationState::Connected && (remote || connection.is_some()),
        connection_id: connection.unwrap_or_else(|| ConnectionId::account(account, key)),
        authorization: projection.state,
        connection_version: projection.connection_version,
        server_revision: projection.server_revision,
    }
}
