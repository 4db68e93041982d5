//! What a provider durably holds for a local connector, asked before it is started.

use super::save_projection;
use crate::{
    domain::{
        authorization::{Authorization, AuthorizationProjection, AuthorizationState},
        connector::Connector,
        error::{Error, ErrorCode},
        event::ChangedEvent,
        manifest::AuthorizationKind,
        operation::OperationScope,
        release::Release,
    },
    market::{application::Application, snapshot::unknown_connector, tx::transaction},
    ports::{CredentialInspection, InspectRequest},
};

impl Application {
    /// Asks the provider what it holds, where it can tell, and brings device and
    /// account to that (spec C.11, converge).
    pub(in crate::market) async fn inspect_authorization(
        &self,
        scope: &OperationScope,
        connector: &Connector,
        release: &Release,
    ) -> Result<(), Error> {
        let manifest = &release.manifest;
        if manifest.implementation.is_remote() || manifest.authorization_kind == AuthorizationKind::None {
            return Ok(());
        }
        let Some(inspector) = self.config.authorization.inspector() else { return Ok(()) };
        let request = InspectRequest {
            scope: scope.clone(),
            release: release.clone(),
            installation: connector.installation.clone(),
        };
        let held = inspector.inspect(&request).await?;
        verify(&held, release)?;
        let key = &release.connector_key;
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            let next = Authorization { state: held.state, failure_code: held.failure_code.clone() };
            if connector.authorization != next {
                let revision = tx.advance_revision();
                connector.authorization = next;
                connector.revision = revision;
                tx.save_connector(&connector).await?;
                let connector_key = Some(key.clone());
                tx.enqueue_changed(&ChangedEvent { connector_key, operation_id: None, revision }).await?;
            }
            if let Some(account) = &scope.account_id {
                let before = tx.authorization_projection(account, key).await?.unwrap_or_else(|| {
                    AuthorizationProjection::local(account.clone(), key.clone(), held.state, now)
                });
                let projection = AuthorizationProjection {
                    state: held.state,
                    connection_id: held.connection_id.clone(),
                    failure_code: held.failure_code.clone(),
                    connector_version: Some(release.version.clone()),
                    updated_at: now,
                    ..before
                };
                save_projection(tx, &projection).await?;
            }
        })
    }
}

fn verify(held: &CredentialInspection, release: &Release) -> Result<(), Error> {
    let about = held.connector_key == release.connector_key && held.release_digest == release.release_digest;
    let known = held.state != AuthorizationState::NotRequired
        && (held.state != AuthorizationState::Connected || held.connection_id.is_some());
    if about && known {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::InstallFailed,
        format!("the authorization provider's word on {} is invalid", release.connector_key),
    ))
}
