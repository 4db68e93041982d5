//! One step of an attempt: the provider is asked, its answer checked and stored, and
//! account and runtime follow.

use secrecy::ExposeSecret as _;

use super::{BeginAuthorization, SESSION_TTL, is_remote, project::Projected, set_device};
use crate::{
    domain::{
        authorization::{
            Authorization, AuthorizationProgress, AuthorizationSession, AuthorizationState,
            AuthorizationStep, Resolution,
        },
        connector::Connector,
        error::{Error, ErrorCode},
        operation::{Operation, OperationState},
    },
    market::{
        accept::announce, application::Application, execute::held, snapshot::unknown_connector,
        tx::transaction,
    },
    ports::{BeginRequest, OperationLease},
};

/// Where an attempt stands after a step; no progress when it had ended before.
pub(super) struct Step {
    pub(super) session: AuthorizationSession,
    pub(super) progress: Option<AuthorizationProgress>,
}

impl Application {
    /// Takes the next step. `lease` is held while the operation is active; a
    /// completed one goes on without.
    pub(super) async fn take_step(
        &self,
        operation: &Operation,
        lease: Option<&OperationLease>,
        begin: &BeginAuthorization,
    ) -> Result<Step, Error> {
        let release = operation.frozen_release()?;
        let stored = operation.execution.authorization_session.as_ref();
        if let Some(session) = stored.filter(|session| session.is_resolved()) {
            return Ok(Step { session: session.clone(), progress: None });
        }
        if let Some(lease) = lease
            && operation.state == OperationState::Accepted
        {
            self.start(lease).await?;
        }
        let step_base = stored.map_or(0, |session| session.step_revision);
        if begin.after_step > step_base {
            return Err(Error::invalid_request(format!(
                "afterAuthorizationStepRevision is {}, but the attempt has only come to {step_base}",
                begin.after_step
            )));
        }
        let request = BeginRequest {
            operation_id: &operation.operation_id,
            client_request_id: &operation.client_request_id,
            replacement: begin.replacement,
            scope: &operation.scope,
            release,
            secret: begin.secret.as_ref(),
            after_step: begin.after_step,
            step_base,
        };
        let step = self.config.authorization.begin(&request).await.map_err(|cause| refused(begin, cause))?;
        let session = self.receipt(operation, &step)?;
        let connector = self.store_step(operation, lease, &session, &step.progress).await?;
        self.follow_step(operation, &connector, &step.progress).await?;
        Ok(Step { session, progress: Some(step.progress) })
    }

    /// The receipt of a provider's answer, checked.
    fn receipt(
        &self,
        operation: &Operation,
        step: &AuthorizationStep,
    ) -> Result<AuthorizationSession, Error> {
        let release = operation.frozen_release()?;
        let stored = operation.execution.authorization_session.as_ref();
        let base = stored.map_or(0, |session| session.step_revision);
        let connected = matches!(step.progress, AuthorizationProgress::Connected { .. });
        let mut step = step.clone();
        if step.step_revision == 0 {
            step.step_revision = if connected { base } else { base.max(1) };
        }
        step.verify(&operation.operation_id, &release.connector_key, stored)?;
        let local = !release.manifest.implementation.is_remote();
        Ok(AuthorizationSession {
            expires_at: step.expires_at.unwrap_or_else(|| self.now().plus(SESSION_TTL)),
            operation_id: step.operation_id,
            connector_key: step.connector_key,
            session_id: step.session_id,
            action: step.action,
            step_revision: step.step_revision,
            // A remote connector's is settled once the account's truth says so.
            resolution: (connected && local).then_some(Resolution::ProviderConnected),
        })
    }

    /// Stores the receipt, completes the operation, and moves the device's own field
    /// of a local connector. The same step again changes nothing.
    async fn store_step(
        &self,
        operation: &Operation,
        lease: Option<&OperationLease>,
        session: &AuthorizationSession,
        progress: &AuthorizationProgress,
    ) -> Result<Connector, Error> {
        let key = &session.connector_key;
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut stored = match lease {
                Some(lease) => held(tx, lease).await?,
                None => tx
                    .operation(&operation.operation_id)
                    .await?
                    .filter(|stored| stored.open_session().is_some_and(|open| !open.is_canceling()))
                    .ok_or_else(|| {
                        Error::new(ErrorCode::AuthorizationFailed, "this attempt was ended meanwhile")
                    })?,
            };
            let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            let next = Authorization::of(match progress {
                AuthorizationProgress::Pending { .. } => AuthorizationState::Pending,
                AuthorizationProgress::Connected { .. } => AuthorizationState::Connected,
            });
            let shared = stored.scope.account_id.is_some()
                && connector.authorization.state == AuthorizationState::Connected;
            let moves = !is_remote(&connector) && !shared && connector.authorization != next;
            let taken = stored.execution.authorization_session.as_ref() != Some(session);
            if stored.is_active() || moves || taken {
                let revision = tx.advance_revision();
                if moves {
                    set_device(&mut connector, next)?;
                    connector.revision = revision;
                    tx.save_connector(&connector).await?;
                }
                stored.execution.authorization_session = Some(session.clone());
                stored.complete(now);
                stored.updated_at = now;
                tx.save_operation(&stored).await?;
                announce(tx, &stored, revision).await?;
            }
            connector
        })
    }

    /// Brings account and runtime to what the step has come to.
    async fn follow_step(
        &self,
        operation: &Operation,
        connector: &Connector,
        progress: &AuthorizationProgress,
    ) -> Result<(), Error> {
        let scope = &operation.scope;
        match progress {
            AuthorizationProgress::Connected { connection_id } => {
                self.project(scope, connector, Projected::Connected(connection_id.clone())).await?;
                self.reconcile_runtime(scope, &connector.key).await
            }
            AuthorizationProgress::Pending { .. } if is_remote(connector) => Ok(()),
            AuthorizationProgress::Pending { .. } => self.project(scope, connector, Projected::Pending).await,
        }
    }
}

/// What a provider's refusal becomes. Should it repeat the secret, it is left out:
/// the failure is stored and shown.
fn refused(begin: &BeginAuthorization, cause: Error) -> Error {
    let error = Error::new(
        ErrorCode::AuthorizationFailed,
        format!("the provider did not authorize {}", begin.command.connector_key),
    );
    let secret = begin.secret.as_ref().map(|secret| String::from_utf8_lossy(secret.expose_secret()));
    match secret.filter(|secret| !secret.is_empty()) {
        Some(secret) if cause.mentions(&secret) => error,
        _ => error.with_cause(cause),
    }
}
