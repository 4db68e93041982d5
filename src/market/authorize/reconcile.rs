//! Settling attempts that were left open: asking how they went on, until they have
//! ended or their time is over (spec C.10).

use super::{cancel::Termination, is_remote, project::Projected, set_device};
use crate::{
    domain::{
        authorization::{Authorization, AuthorizationObservation, AuthorizationState, Resolution},
        connector::Connector,
        error::{Error, ErrorCode},
        event::ChangedEvent,
        id::{ConnectorKey, OperationId},
        operation::{Operation, OperationScope},
    },
    market::{application::Application, snapshot::unknown_connector, tx::transaction},
    ports::AttemptRequest,
};

/// The failure code of an attempt whose time is over.
const TIMEOUT: &str = "connector_authorization_timeout";

/// An attempt whose account has been brought to its outcome. Once the runtime has
/// followed, [`Application::resolve_authorization`] closes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationIntent {
    /// The operation that holds the receipt.
    pub operation_id: OperationId,
    /// The connector whose runtime has to follow.
    pub connector_key: ConnectorKey,
    /// How the attempt ended.
    pub resolution: Resolution,
}

/// What a round of settling has come to.
#[derive(Debug, Default)]
pub struct ReconciledAuthorizations {
    /// Attempts that have ended.
    pub intents: Vec<AuthorizationIntent>,
    /// Attempts that could not be told about; the next round asks again.
    pub failures: Vec<(OperationId, Error)>,
}

impl Application {
    /// Asks about every open attempt of one account. One that cannot be told about
    /// does not keep the others. Safe to repeat, and after a restart.
    ///
    /// # Errors
    /// When the open attempts cannot be read.
    pub async fn reconcile_authorizations(
        &self,
        scope: &OperationScope,
    ) -> Result<ReconciledAuthorizations, Error> {
        let mut round = ReconciledAuthorizations::default();
        for operation in self.config.store.open_authorizations(scope).await? {
            match self.reconcile_attempt(scope, &operation).await {
                Ok(intent) => round.intents.extend(intent),
                Err(error) => round.failures.push((operation.operation_id, error)),
            }
        }
        Ok(round)
    }

    /// Closes an attempt whose outcome the runtime has followed; nothing when it was
    /// closed before.
    ///
    /// # Errors
    /// The store's.
    pub async fn resolve_authorization(&self, intent: &AuthorizationIntent) -> Result<(), Error> {
        self.resolve_session(&intent.operation_id, intent.resolution).await
    }

    async fn reconcile_attempt(
        &self,
        scope: &OperationScope,
        operation: &Operation,
    ) -> Result<Option<AuthorizationIntent>, Error> {
        let Some(session) = operation.open_session() else { return Ok(None) };
        let release = operation.frozen_release()?;
        let key = &release.connector_key;
        if session.is_canceling() {
            return self.end_attempt(operation, Termination::Required).await.map(|()| None);
        }
        let Some(stored) = self.config.store.connector(key).await? else {
            // Delisted while its user was asked: there is nothing left to authorize.
            return self.end_attempt(operation, Termination::WherePossible).await.map(|()| None);
        };
        let Some(observer) = self.config.authorization.observer() else { return Ok(None) };
        let connector = Connector { release: release.clone(), ..stored };
        let intent = |resolution| {
            Some(AuthorizationIntent {
                operation_id: operation.operation_id.clone(),
                connector_key: key.clone(),
                resolution,
            })
        };
        if is_remote(&connector) {
            if self.is_connected(scope, key).await? {
                return Ok(intent(Resolution::AccountStateConverged));
            }
        } else if connector.authorization.state != AuthorizationState::Pending {
            return Ok(None);
        }
        let observation = if session.expires_at <= self.now() {
            AuthorizationObservation::Failed { failure_code: Some(TIMEOUT.to_owned()) }
        } else {
            let request = AttemptRequest {
                operation_id: operation.operation_id.clone(),
                scope: operation.scope.clone(),
                release: release.clone(),
                session: session.clone(),
            };
            observer.observe(&request).await?
        };
        let (resolution, outcome) = match observation {
            AuthorizationObservation::Pending => return Ok(None),
            AuthorizationObservation::Connected { connection_id } => {
                (Resolution::ProviderConnected, Projected::Connected(connection_id))
            }
            AuthorizationObservation::Failed { failure_code } => {
                let superseded =
                    failure_code.as_ref().is_some_and(|code| code.to_lowercase().contains("superseded"));
                let resolution = if superseded { Resolution::Superseded } else { Resolution::ProviderFailed };
                (resolution, Projected::Failed(failure_code))
            }
        };
        if !self.is_unchanged(operation).await? {
            return Ok(None);
        }
        if !is_remote(&connector) {
            self.move_device(key, &outcome).await?;
        }
        self.project(&operation.scope, &connector, outcome).await?;
        Ok(intent(resolution))
    }

    async fn is_connected(&self, scope: &OperationScope, key: &ConnectorKey) -> Result<bool, Error> {
        let Some(account) = &scope.account_id else { return Ok(false) };
        let projection = self.config.store.authorization_projection(account, key).await?;
        Ok(projection.is_some_and(|projection| projection.state == AuthorizationState::Connected))
    }

    /// Whether the attempt is still the one that was asked about.
    async fn is_unchanged(&self, asked: &Operation) -> Result<bool, Error> {
        let stored = self.config.store.operation(&asked.operation_id).await?;
        let open = stored.as_ref().and_then(Operation::open_session);
        Ok(open.is_some_and(|now| {
            !now.is_canceling()
                && asked.open_session().is_some_and(|before| before.session_id == now.session_id)
        }))
    }

    async fn move_device(&self, key: &ConnectorKey, outcome: &Projected) -> Result<(), Error> {
        let next = match outcome {
            Projected::Connected(_) => Authorization::of(AuthorizationState::Connected),
            Projected::Failed(code) => Authorization {
                state: AuthorizationState::Failed,
                failure_code: Some(
                    code.clone().unwrap_or_else(|| ErrorCode::AuthorizationFailed.as_str().to_owned()),
                ),
            },
            Projected::Pending | Projected::Disconnected => return Ok(()),
        };
        transaction!(self.config.store, |tx| {
            let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            if connector.authorization != next {
                set_device(&mut connector, next.clone())?;
                let revision = tx.advance_revision();
                connector.revision = revision;
                tx.save_connector(&connector).await?;
                let connector_key = Some(key.clone());
                tx.enqueue_changed(&ChangedEvent { connector_key, operation_id: None, revision }).await?;
            }
        })
    }
}
