//! Who authorizes connectors: the provider of attempts, and the keeper of what an
//! account has.

use async_trait::async_trait;
use secrecy::SecretSlice;

use crate::domain::{
    authorization::{
        AuthorizationObservation, AuthorizationSession, AuthorizationSnapshot, AuthorizationState,
        AuthorizationStep,
    },
    digest::Sha256Digest,
    error::Error,
    id::{AccountId, ClientRequestId, ConnectionId, ConnectorKey, OperationId},
    installation::Installation,
    operation::OperationScope,
    release::Release,
};

/// What to do about another attempt that is still open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplacementPolicy {
    /// Leave it and refuse the new one.
    #[default]
    Keep,
    /// End it, so that it can publish nothing any more, and begin anew.
    ReplaceActive,
}

/// Asks to begin an attempt, or to go on with one.
pub struct BeginRequest<'a> {
    /// The operation; the same for every step of an attempt.
    pub operation_id: &'a OperationId,
    /// The caller's own id of the command.
    pub client_request_id: &'a ClientRequestId,
    /// What to do about another attempt that the provider still has open.
    pub replacement: ReplacementPolicy,
    /// For which account.
    pub scope: &'a OperationScope,
    /// The release, as frozen at acceptance.
    pub release: &'a Release,
    /// What the user handed over. Zeroed when the command ends; a provider that
    /// needs it longer seals a copy.
    pub secret: Option<&'a SecretSlice<u8>>,
    /// The last step that the caller has seen; 0 asks for the current one.
    pub after_step: u64,
    /// The last step that is stored; the answer is not below it.
    pub step_base: u64,
}

/// Asks to end what an account holds.
#[derive(Clone, Debug)]
pub struct DisconnectRequest {
    /// The operation; the same when it is asked again after a failure.
    pub operation_id: OperationId,
    /// For which account.
    pub scope: OperationScope,
    /// The release, as frozen at acceptance.
    pub release: Release,
}

/// Names an attempt.
#[derive(Clone, Debug)]
pub struct AttemptRequest {
    /// The operation that began it.
    pub operation_id: OperationId,
    /// For which account.
    pub scope: OperationScope,
    /// The release, as frozen at acceptance.
    pub release: Release,
    /// The attempt.
    pub session: AuthorizationSession,
}

/// Asks what a provider durably holds.
#[derive(Clone, Debug)]
pub struct InspectRequest {
    /// For which account.
    pub scope: OperationScope,
    /// The release that is about to run.
    pub release: Release,
    /// Where its installation stands.
    pub installation: Installation,
}

/// What a provider durably holds for a connector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialInspection {
    /// As asked.
    pub connector_key: ConnectorKey,
    /// As asked.
    pub release_digest: Sha256Digest,
    /// Where the credential stands.
    pub state: AuthorizationState,
    /// The connection that holds it, when it is connected.
    pub connection_id: Option<ConnectionId>,
    /// Why it failed.
    pub failure_code: Option<String>,
}

/// Begins and ends authorizations (spec B.5).
///
/// Some abilities are optional: what a provider cannot do, it must not claim to.
#[async_trait]
pub trait AuthorizationProvider: Send + Sync {
    /// Begins an attempt, or answers with its next step. Idempotent per operation
    /// and step.
    ///
    /// # Errors
    /// Why there is no step; nothing of the secret is in it.
    async fn begin(&self, request: &BeginRequest<'_>) -> Result<AuthorizationStep, Error>;

    /// Ends what the account holds, and every attempt of it. Ending nothing is a success.
    async fn disconnect(&self, request: &DisconnectRequest) -> Result<(), Error>;

    /// Who ends an attempt, where this provider can.
    fn canceler(&self) -> Option<&dyn AuthorizationCanceler> {
        None
    }

    /// Who tells how an attempt goes on, where this provider can.
    fn observer(&self) -> Option<&dyn AuthorizationObserver> {
        None
    }

    /// Who tells what is durably held, where this provider can.
    fn inspector(&self) -> Option<&dyn AuthorizationInspector> {
        None
    }
}

/// Ends attempts.
#[async_trait]
pub trait AuthorizationCanceler: Send + Sync {
    /// Returns once the attempt can publish neither a credential nor an event any
    /// more. An attempt that is not known is a success.
    async fn cancel(&self, request: &AttemptRequest) -> Result<(), Error>;
}

/// Tells how attempts go on.
#[async_trait]
pub trait AuthorizationObserver: Send + Sync {
    /// Where the attempt stands now.
    async fn observe(&self, request: &AttemptRequest) -> Result<AuthorizationObservation, Error>;
}

/// Tells what is durably held, at once and without asking a user.
#[async_trait]
pub trait AuthorizationInspector: Send + Sync {
    /// What is held for the release in the scope.
    async fn inspect(&self, request: &InspectRequest) -> Result<CredentialInspection, Error>;
}

/// Keeps the truth of what accounts hold.
#[async_trait]
pub trait AuthorizationSource: Send + Sync {
    /// Everything that an account holds, at one revision.
    async fn snapshot(&self, account: &AccountId) -> Result<AuthorizationSnapshot, Error>;
}
