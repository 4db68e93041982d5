//! Disconnecting an account from a connector. The operation runs until the route is
//! seen to be gone (spec C.10).

use super::{account_required, cancel::Termination, is_remote, project::Projected};
use crate::{
    domain::{
        authorization::{Authorization, AuthorizationState, Resolution},
        connector::Connector,
        error::{Error, ErrorCode},
        operation::{Operation, OperationKind},
    },
    market::{
        accept::{Accepted, ConnectorMutation, announce},
        application::Application,
        execute::held,
        snapshot::unknown_connector,
        tx::transaction,
    },
    ports::{DisconnectRequest, OperationLease},
};

impl Application {
    /// Accepts the end of what an account holds for a connector.
    ///
    /// # Errors
    /// As every command (spec C.5); [`ErrorCode::InvalidRequest`] for a remote
    /// connector without an account; [`ErrorCode::OperationInProgress`] for a local
    /// one that needs no authorization.
    pub async fn disconnect_authorization(&self, command: ConnectorMutation) -> Result<Accepted, Error> {
        let key = &command.connector_key;
        let connector = self.config.store.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
        if is_remote(&connector) && command.mutation.scope.account_id.is_none() {
            return Err(account_required());
        }
        self.accept_connector(&command, OperationKind::DisconnectAuthorization, needs_authorization).await
    }

    pub(in crate::market) async fn execute_disconnect(
        &self,
        lease: &OperationLease,
        operation: &Operation,
    ) -> Result<(), Error> {
        let release = operation.frozen_release()?;
        let (scope, key) = (&operation.scope, &release.connector_key);
        let request = DisconnectRequest {
            operation_id: operation.operation_id.clone(),
            scope: scope.clone(),
            release: release.clone(),
        };
        self.config.authorization.disconnect(&request).await.map_err(|cause| {
            Error::new(ErrorCode::AuthorizationFailed, format!("the provider did not disconnect {key}"))
                .with_cause(cause)
        })?;
        let stored = self.config.store.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
        let connector = Connector { release: release.clone(), ..stored };
        self.project(scope, &connector, Projected::Disconnected).await?;
        self.reconcile_runtime(scope, key).await?;
        for open in self.open_attempts(scope, key).await? {
            if is_remote(&connector) {
                self.resolve_session(&open.operation_id, Resolution::Superseded).await?;
            } else {
                self.end_attempt(&open, Termination::WherePossible).await?;
            }
        }
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut operation = held(tx, lease).await?;
            let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            let revision = tx.advance_revision();
            if !is_remote(&connector) && connector.authorization.state != AuthorizationState::NotRequired {
                connector.authorization = Authorization::of(AuthorizationState::Disconnected);
            }
            connector.revision = revision;
            operation.complete(now);
            tx.save_connector(&connector).await?;
            tx.save_operation(&operation).await?;
            announce(tx, &operation, revision).await?;
        })
    }
}

fn needs_authorization(connector: &mut Connector) -> Result<(), Error> {
    if !is_remote(connector) && connector.authorization.state == AuthorizationState::NotRequired {
        return Err(Error::new(
            ErrorCode::OperationInProgress,
            format!("{} needs no authorization, so there is none to disconnect", connector.key),
        ));
    }
    Ok(())
}
