//! Beginning an attempt: one at a time for an account and a connector, stopped by
//! the command that replaces it, and never left running when it cannot be finished
//! (spec C.9).

use std::sync::Arc;

use super::{
    AuthorizationResult, BeginAuthorization, account_required, cancel::Termination, illegal, is_remote,
    requests::Registration, session::Step, set_device,
};
use crate::{
    domain::{
        authorization::{Authorization, AuthorizationProgress, AuthorizationState, AuthorizationView},
        error::{Error, ErrorCode},
        operation::{Operation, OperationFailure, OperationKind, OperationState},
        revision::Revision,
    },
    market::{
        accept::{ConnectorMutation, replayed, verify_revision},
        application::Application,
        execute::NOTE_BUDGET,
        lease::{Claim, Held, keep},
        snapshot::unknown_connector,
        tx::transaction,
    },
    ports::{OperationLease, ReplacementPolicy},
};

impl Application {
    /// Begins an authorization, or goes on with the one that the same client request
    /// id began. The work does not end with its caller: whoever asks again under the
    /// same id gets its answer.
    ///
    /// # Errors
    /// As every command (spec C.5); [`ErrorCode::InvalidRequest`] for a remote
    /// connector without an account, and for a step that was never reached;
    /// [`ErrorCode::OperationInProgress`] while another attempt is open, unless it is
    /// to be replaced; [`ErrorCode::AuthorizationFailed`], retryable, when the
    /// provider refuses, when the attempt failed before, and when it was cancelled or
    /// replaced; [`ErrorCode::Unavailable`] when the attempt to be replaced could not
    /// be ended, not retryable where the provider never can;
    /// [`ErrorCode::InstallFailed`] for a provider's invalid receipt.
    pub async fn begin_authorization(
        self: &Arc<Self>,
        begin: BeginAuthorization,
    ) -> Result<AuthorizationResult, Error> {
        let application = Arc::clone(self);
        let work = self.tasks.spawn(async move { application.begin_registered(&begin).await });
        work.await.map_err(|cause| {
            Error::unavailable("the authorization was interrupted; begin it once more").with_cause(cause)
        })?
    }

    async fn begin_registered(&self, begin: &BeginAuthorization) -> Result<AuthorizationResult, Error> {
        let mutation = &begin.command.mutation;
        let (scope, key) = (&mutation.scope, &begin.command.connector_key);
        let place = self.authorizations.register(scope, key, &mutation.client_request_id, begin.replacement);
        let _lane = unless_stopped(&place, async { Ok(self.authorizations.enter(scope, key).await) }).await?;
        let mut command = begin.command.clone();
        let connector = self.config.store.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
        if is_remote(&connector) && scope.account_id.is_none() {
            return Err(account_required());
        }
        if !self.is_replay(&command).await? {
            if begin.after_step != 0 {
                return Err(Error::invalid_request(
                    "afterAuthorizationStepRevision goes on with an attempt, and there is none under this id",
                ));
            }
            let cleared = unless_stopped(&place, self.clear_the_way(begin, &place)).await?;
            command.expected_connector_revision = cleared.or(command.expected_connector_revision);
        }
        let for_account = scope.account_id.is_some();
        let accepted = self
            .accept_connector(&command, OperationKind::StartAuthorization, |connector| {
                // A local credential that is there already is bound to this account
                // without taking it from whoever else it serves.
                let shared = for_account && connector.authorization.state == AuthorizationState::Connected;
                if is_remote(connector) || shared {
                    return Ok(());
                }
                set_device(connector, Authorization::of(AuthorizationState::Pending))
            })
            .await?;
        let operation = accepted.operation;
        if matches!(operation.state, OperationState::Failed { .. }) {
            return Err(Error::new(
                ErrorCode::AuthorizationFailed,
                "this attempt has failed; begin another one under a new clientRequestId",
            ));
        }
        let step = if operation.is_active() {
            self.take_first_step(&operation, begin, &place).await?
        } else {
            unless_stopped(&place, self.take_step(&operation, None, begin)).await?
        };
        self.answer(&operation, step).await
    }

    /// Takes the step that completes the operation, under a lease, so that neither a
    /// recovery here nor another daemon takes the command for an abandoned one. What
    /// cannot be finished is failed: its secret is gone with the command.
    async fn take_first_step(
        &self,
        operation: &Operation,
        begin: &BeginAuthorization,
        place: &Registration,
    ) -> Result<Step, Error> {
        let (store, owner, id) = (&self.config.store, &self.config.worker_id, &operation.operation_id);
        let duration = self.config.lease_duration;
        let claimed = store.claim_operation(id, owner, duration).await?.ok_or_else(|| {
            Error::new(
                ErrorCode::OperationInProgress,
                "this attempt is being begun elsewhere, or was ended; ask again",
            )
        })?;
        let lease =
            OperationLease { operation_id: id.clone(), owner: owner.clone(), token: claimed.lease_token };
        let claim = Held::new(store.clone(), self.tasks.clone(), Claim::Operation(lease.clone()));
        let outcome = tokio::select! {
            outcome = unless_stopped(place, self.take_step(&claimed, Some(&lease), begin)) => outcome,
            lost = keep(duration, || store.renew_operation(&lease, duration)) => Err(lost),
        };
        if let Err(error) = &outcome {
            let failure = OperationFailure::of(error);
            let failed = self.fail(&claimed, Some(&lease), ErrorCode::AuthorizationFailed, &failure);
            match tokio::time::timeout(NOTE_BUDGET, failed).await {
                Ok(Ok(())) => {}
                // Completed, or no longer ours.
                Ok(Err(note)) if note.find(ErrorCode::LeaseLost).is_some() => {}
                Ok(Err(note)) => tracing::warn!(%id, %note, "the end of an authorization was not noted"),
                Err(_) => tracing::warn!(%id, "the end of an authorization was not noted in time"),
            }
        }
        match &outcome {
            Ok(_) => claim.ended(),
            Err(_) => claim.release().await,
        }
        outcome
    }

    /// Whether the command was accepted before. Acceptance asks again.
    async fn is_replay(&self, command: &ConnectorMutation) -> Result<bool, Error> {
        let (mutation, key) = (&command.mutation, &command.connector_key);
        let kind = OperationKind::StartAuthorization;
        transaction!(self.config.store, |tx| { replayed(tx, mutation, kind, Some(key)).await?.is_some() })
    }

    /// Sees to it that no other attempt is open. Answers with the connector's
    /// revision that the command goes on from, where this changed it.
    async fn clear_the_way(
        &self,
        begin: &BeginAuthorization,
        place: &Registration,
    ) -> Result<Option<Revision>, Error> {
        let command = &begin.command;
        let (scope, key) = (&command.mutation.scope, &command.connector_key);
        let replaces = begin.replacement == ReplacementPolicy::ReplaceActive;
        // Whoever replaces a command that runs cannot know the revision it made.
        if replaces && !place.replaced_live {
            transaction!(self.config.store, |tx| {
                let connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
                verify_revision(tx.revision(), command, &connector)?;
            })?;
        }
        for open in self.open_attempts(scope, key).await? {
            if !replaces {
                return Err(Error::new(
                    ErrorCode::OperationInProgress,
                    format!(
                        "an authorization of {key} waits for its user; finish it, cancel it, or replace it"
                    ),
                ));
            }
            self.end_attempt(&open, Termination::Required).await?;
        }
        let mut revision = None;
        if replaces {
            self.reset_pending(scope, key).await?;
            let connector = self.config.store.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            revision = Some(connector.revision);
        }
        if let Some(account) = &scope.account_id
            && let Some(projection) = self.config.store.authorization_projection(account, key).await?
            && !matches!(
                projection.state,
                AuthorizationState::Disconnected | AuthorizationState::Expired | AuthorizationState::Failed
            )
        {
            return Err(illegal(key, projection.state, AuthorizationState::Pending));
        }
        Ok(revision)
    }

    async fn answer(&self, accepted: &Operation, step: Step) -> Result<AuthorizationResult, Error> {
        let store = &self.config.store;
        let id = &accepted.operation_id;
        let operation = store.operation(id).await?.ok_or_else(|| {
            Error::not_found(format!("operation {id} was forgotten meanwhile; begin once more"))
        })?;
        let session = &step.session;
        let key = &session.connector_key;
        let mut connector = store.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
        let pending = matches!(step.progress, Some(AuthorizationProgress::Pending { .. }));
        if let Some(account) = &operation.scope.account_id {
            let projection = store.authorization_projection(account, key).await?;
            connector.authorization = projection.map_or_else(
                || Authorization::of(AuthorizationState::Disconnected),
                |projection| Authorization { state: projection.state, failure_code: projection.failure_code },
            );
            // An attempt can wait for its user before the account's truth says so.
            if pending && connector.authorization.state != AuthorizationState::Connected {
                connector.authorization = Authorization::of(AuthorizationState::Pending);
            }
        }
        let view = step.progress.as_ref().and_then(|progress| AuthorizationView::of(session, progress));
        let authorization_url = match step.progress {
            Some(AuthorizationProgress::Pending { url, .. }) => Some(url),
            _ => None,
        };
        Ok(AuthorizationResult {
            revision: connector.revision,
            connector,
            operation,
            authorization_url,
            authorization_view: view,
            authorization_expires_at: step.session.expires_at,
            authorization_step_revision: step.session.step_revision,
        })
    }
}

/// Does the work, unless its command is cancelled or replaced first.
async fn unless_stopped<T>(
    place: &Registration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        () = place.stop.cancelled() => Err(Error::new(
            ErrorCode::AuthorizationFailed,
            "this authorization was cancelled, or replaced by a newer one",
        )),
        done = work => done,
    }
}
