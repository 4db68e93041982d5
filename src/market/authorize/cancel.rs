//! Ending attempts before they are done.

use crate::{
    domain::{
        authorization::{Authorization, AuthorizationState, Resolution},
        error::Error,
        event::ChangedEvent,
        id::{ConnectorKey, OperationId},
        operation::{Operation, OperationScope},
    },
    market::{
        application::Application, authorize::save_projection, snapshot::unknown_connector, tx::transaction,
    },
    ports::AttemptRequest,
};

/// Whether the provider must have ended an attempt for it to count as ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Termination {
    /// It must: another attempt begins right after.
    Required,
    /// Where the provider cannot, forgetting the attempt will do.
    WherePossible,
}

impl Application {
    /// Ends the open attempt of an account, if there is one, a command that runs for
    /// it included. What the account is connected with stays.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::NotFound`] for an unknown connector;
    /// [`crate::domain::error::ErrorCode::Unavailable`] when the provider could not
    /// end it; the attempt stays marked, and ending it is tried again.
    pub async fn cancel_authorization(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<(), Error> {
        self.authorizations.interrupt(scope, key);
        let _lane = self.authorizations.enter(scope, key).await;
        self.config.store.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
        for operation in self.open_attempts(scope, key).await? {
            self.end_attempt(&operation, Termination::WherePossible).await?;
        }
        self.reset_pending(scope, key).await
    }

    /// The operations whose attempt for a connector is open.
    pub(super) async fn open_attempts(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<Vec<Operation>, Error> {
        let mut open = self.config.store.open_authorizations(scope).await?;
        open.retain(|operation| operation.connector_key.as_ref() == Some(key));
        Ok(open)
    }

    /// Ends one attempt: marked first, then told to the provider, then settled, so
    /// that whatever interrupts this, it is taken up again.
    pub(super) async fn end_attempt(
        &self,
        operation: &Operation,
        termination: Termination,
    ) -> Result<(), Error> {
        let Some(session) = operation.open_session() else { return Ok(()) };
        let id = &operation.operation_id;
        let Some(canceler) = self.config.authorization.canceler() else {
            if termination == Termination::Required {
                return Err(Error::unavailable(
                    "the authorization provider cannot end an attempt for sure, so it cannot be replaced; \
                     finish it or wait until it is over",
                )
                .with_retryable(false));
            }
            return self.resolve_session(id, Resolution::Superseded).await;
        };
        if !session.is_canceling() {
            self.resolve_session(id, Resolution::Canceling).await?;
        }
        let request = AttemptRequest {
            operation_id: id.clone(),
            scope: operation.scope.clone(),
            release: operation.frozen_release()?.clone(),
            session: session.clone(),
        };
        canceler.cancel(&request).await.map_err(|cause| {
            Error::unavailable("the authorization attempt could not be ended; try again").with_cause(cause)
        })?;
        self.resolve_session(id, Resolution::Superseded).await
    }

    /// Notes how an attempt ends; nothing once it has ended (spec A.8).
    pub(super) async fn resolve_session(
        &self,
        id: &OperationId,
        resolution: Resolution,
    ) -> Result<(), Error> {
        let now = self.now();
        transaction!(self.config.store, |tx| {
            if let Some(mut operation) = tx.operation(id).await?
                && let Some(session) = &mut operation.execution.authorization_session
                && !session.is_resolved()
                && session.resolution != Some(resolution)
            {
                session.resolve(resolution);
                operation.updated_at = now;
                tx.save_operation(&operation).await?;
            }
        })
    }

    /// Takes back what a begun attempt made of the device and of the account.
    pub(super) async fn reset_pending(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<(), Error> {
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let connector = tx.connector(key).await?;
            if let Some(mut connector) = connector
                && connector.authorization.state == AuthorizationState::Pending
            {
                let revision = tx.advance_revision();
                connector.authorization = Authorization::of(AuthorizationState::Disconnected);
                connector.revision = revision;
                tx.save_connector(&connector).await?;
                let connector_key = Some(key.clone());
                tx.enqueue_changed(&ChangedEvent { connector_key, operation_id: None, revision }).await?;
            }
            if let Some(account) = &scope.account_id
                && let Some(mut projection) = tx.authorization_projection(account, key).await?
                && projection.state == AuthorizationState::Pending
            {
                projection.state = AuthorizationState::Disconnected;
                projection.connection_id = None;
                projection.failure_code = None;
                projection.updated_at = now;
                save_projection(tx, &projection).await?;
            }
        })
    }
}
