//! A scripted provider of authorizations, and a scripted keeper of what accounts hold.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use portcullis::{
    domain::{
        authorization::{
            AuthorizationObservation, AuthorizationProgress, AuthorizationSnapshot, AuthorizationState,
            AuthorizationStep,
        },
        error::Error,
        id::{AccountId, ConnectionId},
    },
    ports::{
        AttemptRequest, AuthorizationCanceler, AuthorizationInspector, AuthorizationObserver,
        AuthorizationProvider, AuthorizationSource, BeginRequest, CredentialInspection, DisconnectRequest,
        InspectRequest, ReplacementPolicy,
    },
};
use secrecy::ExposeSecret as _;

use super::fakes::{Gate, Script, Shared};

/// What a provider was asked to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) operation: String,
    pub(crate) replacement: ReplacementPolicy,
    pub(crate) after_step: u64,
    pub(crate) step_base: u64,
    pub(crate) secret: Option<Vec<u8>>,
}

/// Answers with a link at step 1 unless it is told otherwise.
#[derive(Default)]
pub(crate) struct FakeAuthorization {
    pub(crate) begun: Shared<Vec<Begun>>,
    pub(crate) cancelled: Shared<Vec<AttemptRequest>>,
    pub(crate) observed: Shared<Vec<AttemptRequest>>,
    pub(crate) inspected: Shared<Vec<InspectRequest>>,
    pub(crate) disconnected: Shared<Vec<DisconnectRequest>>,
    pub(crate) begin_faults: Script,
    pub(crate) cancel_faults: Script,
    pub(crate) disconnect_faults: Script,
    pub(crate) observe_faults: Script,
    pub(crate) begin_gate: Gate,
    pub(crate) observe_gate: Gate,
    /// The next steps' progress, in order; a link after them.
    pub(crate) progress: Shared<VecDeque<AuthorizationProgress>>,
    /// Changes a step before it is answered.
    pub(crate) spoil: Shared<Option<fn(&mut AuthorizationStep)>>,
    /// What an observation says; pending when nothing is said.
    pub(crate) says: Shared<Option<AuthorizationObservation>>,
    /// What is durably held; with it, the provider can be inspected.
    pub(crate) holds: Shared<Option<(AuthorizationState, Option<ConnectionId>)>>,
    pub(crate) cannot_cancel: AtomicBool,
    pub(crate) cannot_observe: AtomicBool,
}

pub(crate) fn connection(text: &str) -> ConnectionId {
    text.parse().expect("a connection id")
}

pub(crate) fn connected(text: &str) -> AuthorizationProgress {
    AuthorizationProgress::Connected { connection_id: connection(text) }
}

#[async_trait]
impl AuthorizationProvider for FakeAuthorization {
    async fn begin(&self, request: &BeginRequest<'_>) -> Result<AuthorizationStep, Error> {
        self.begun.lock().push(Begun {
            operation: request.operation_id.to_string(),
            replacement: request.replacement,
            after_step: request.after_step,
            step_base: request.step_base,
            secret: request.secret.map(|secret| secret.expose_secret().to_vec()),
        });
        self.begin_gate.pass().await;
        self.begin_faults.next()?;
        let step_revision = request.after_step + 1;
        let link = || AuthorizationProgress::Pending {
            url: format!("https://provider.example/authorize?step={step_revision}"),
            user_code: None,
        };
        let mut step = AuthorizationStep {
            operation_id: request.operation_id.clone(),
            connector_key: request.release.connector_key.clone(),
            session_id: format!("session-of-{}", request.operation_id).parse()?,
            action: None,
            step_revision,
            expires_at: None,
            progress: self.progress.lock().pop_front().unwrap_or_else(link),
        };
        if let Some(spoil) = *self.spoil.lock() {
            spoil(&mut step);
        }
        Ok(step)
    }

    async fn disconnect(&self, request: &DisconnectRequest) -> Result<(), Error> {
        self.disconnected.lock().push(request.clone());
        self.disconnect_faults.next()
    }

    fn canceler(&self) -> Option<&dyn AuthorizationCanceler> {
        (!self.cannot_cancel.load(Ordering::SeqCst)).then_some(self)
    }

    fn observer(&self) -> Option<&dyn AuthorizationObserver> {
        (!self.cannot_observe.load(Ordering::SeqCst)).then_some(self)
    }

    fn inspector(&self) -> Option<&dyn AuthorizationInspector> {
        self.holds.lock().is_some().then_some(self)
    }
}

#[async_trait]
impl AuthorizationCanceler for FakeAuthorization {
    async fn cancel(&self, request: &AttemptRequest) -> Result<(), Error> {
        self.cancelled.lock().push(request.clone());
        self.cancel_faults.next()
    }
}

#[async_trait]
impl AuthorizationObserver for FakeAuthorization {
    async fn observe(&self, request: &AttemptRequest) -> Result<AuthorizationObservation, Error> {
        self.observed.lock().push(request.clone());
        self.observe_gate.pass().await;
        self.observe_faults.next()?;
        Ok(self.says.lock().clone().unwrap_or(AuthorizationObservation::Pending))
    }
}

#[async_trait]
impl AuthorizationInspector for FakeAuthorization {
    async fn inspect(&self, request: &InspectRequest) -> Result<CredentialInspection, Error> {
        self.inspected.lock().push(request.clone());
        let (state, connection_id) =
            self.holds.lock().clone().unwrap_or((AuthorizationState::Disconnected, None));
        Ok(CredentialInspection {
            connector_key: request.release.connector_key.clone(),
            release_digest: request.release.release_digest,
            state,
            connection_id,
            failure_code: None,
        })
    }
}

/// Keeps one account's truth.
#[derive(Default)]
pub(crate) struct FakeAccounts {
    pub(crate) truth: Shared<Option<AuthorizationSnapshot>>,
    pub(crate) faults: Script,
}

#[async_trait]
impl AuthorizationSource for FakeAccounts {
    async fn snapshot(&self, _: &AccountId) -> Result<AuthorizationSnapshot, Error> {
        self.faults.next()?;
        let truth = self.truth.lock().clone();
        Ok(truth.unwrap_or(AuthorizationSnapshot { revision: 0, projections: Vec::new() }))
    }
}
