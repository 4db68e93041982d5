//! Operations: durable commands, as a state machine.

use serde::{Deserialize, Serialize};

use super::{
    authorization::AuthorizationSession,
    connector::Connector,
    digest::Sha256Digest,
    error::{Error, ErrorCode},
    generation::Generation,
    id::{AccountId, ClientRequestId, ConnectorKey, OperationId},
    installation::ReleaseIdentity,
    lease::{Lease, LeaseToken},
    release::Release,
    runtime::ReleaseReceipt,
    timestamp::Timestamp,
};

/// What an operation does (spec A.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Reads the whole catalog.
    RefreshCatalog,
    /// Installs or updates a connector.
    Install,
    /// Removes a connector.
    Uninstall,
    /// Brings a route to its desired state; private.
    ReconcileRuntime,
    /// Starts an authorization. Its secret lives in the command only, so it is
    /// never executed from stored state.
    StartAuthorization,
    /// Ends an authorization.
    DisconnectAuthorization,
}

impl OperationKind {
    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RefreshCatalog => "refresh_catalog",
            Self::Install => "install",
            Self::Uninstall => "uninstall",
            Self::ReconcileRuntime => "reconcile_runtime",
            Self::StartAuthorization => "start_authorization",
            Self::DisconnectAuthorization => "disconnect_authorization",
        }
    }

    /// Where an attempt begins (spec A.5).
    #[must_use]
    pub const fn first_stage(self) -> Stage {
        match self {
            Self::RefreshCatalog => Stage::Refreshing,
            Self::Install => Stage::Installing,
            Self::Uninstall => Stage::Deactivating,
            Self::ReconcileRuntime => Stage::RuntimePending,
            Self::StartAuthorization => Stage::Authorizing,
            Self::DisconnectAuthorization => Stage::Disconnecting,
        }
    }

    /// Whether recovery may execute it from stored state alone.
    #[must_use]
    pub const fn effect_is_durable(self) -> bool {
        !matches!(self, Self::StartAuthorization)
    }

    /// Whether it acts on routes, so that it belongs to one boot.
    #[must_use]
    pub const fn touches_implementation_host(self) -> bool {
        matches!(self, Self::Install | Self::Uninstall | Self::ReconcileRuntime)
    }
}

/// Where an operation stands in its own sequence (spec A.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Stored, not begun.
    Accepted,
    /// Reading the catalog.
    Refreshing,
    /// Fetching, verifying and unpacking.
    Installing,
    /// The files are in place.
    Installed,
    /// Waiting for the route.
    RuntimePending,
    /// Taking the route down.
    Deactivating,
    /// Removing the files.
    Removing,
    /// Talking to the provider.
    Authorizing,
    /// Ending the authorization.
    Disconnecting,
    /// Done.
    Completed,
    /// Over without success.
    Failed,
}

/// Why an operation failed, or its last attempt did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationFailure {
    /// The most specific code.
    pub code: ErrorCode,
    /// What was wrong, for people; no secret.
    pub message: String,
}

impl OperationFailure {
    /// The most specific thing that `error` says.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        let innermost = error.innermost();
        let mut message = innermost.message.clone();
        if message.len() > 1024 {
            let cut = (0..=1024).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
            message.truncate(cut);
        }
        Self { code: innermost.code, message }
    }
}

/// Where an operation stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum OperationState {
    /// Stored, nobody has begun it.
    Accepted,
    /// Begun; it stays so until it ends, whatever happens to its worker.
    Running {
        /// Why the last attempt ended, if it will be repeated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_failure: Option<OperationFailure>,
    },
    /// Done.
    Completed,
    /// Over without success.
    Failed {
        /// The code that callers act on (spec C.12).
        failure_code: ErrorCode,
        /// What exactly was wrong.
        failure: OperationFailure,
    },
}

/// Who may see an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Its owner.
    Account,
    /// The machine alone.
    SystemPrivate,
}

impl Visibility {
    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::SystemPrivate => "system_private",
        }
    }
}

/// For which account something is done; none when signed out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationScope {
    /// The account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_id: Option<AccountId>,
}

impl OperationScope {
    /// The scope of an account.
    #[must_use]
    pub fn account(account_id: AccountId) -> Self {
        Self { account_id: Some(account_id) }
    }
}

/// What an operation is about, frozen when it was accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationTarget {
    /// The connector.
    pub connector_key: ConnectorKey,
    /// The release.
    #[serde(flatten)]
    pub identity: ReleaseIdentity,
    /// The artifact's digest, for kinds that carry the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_sha256: Option<Sha256Digest>,
    /// The whole release, for kinds that need it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Box<Release>>,
}

impl OperationTarget {
    /// What an operation of `kind` on `connector` is about (spec A.5).
    #[must_use]
    pub fn freeze(kind: OperationKind, connector: &Connector) -> Option<Self> {
        match kind {
            OperationKind::Install
            | OperationKind::StartAuthorization
            | OperationKind::DisconnectAuthorization => Some(Self {
                connector_key: connector.key.clone(),
                identity: (&connector.release).into(),
                artifact_sha256: Some(connector.release.artifact.sha256),
                release: Some(Box::new(connector.release.clone())),
            }),
            OperationKind::Uninstall | OperationKind::ReconcileRuntime => {
                connector.installation.installed().map(|installed| Self {
                    connector_key: connector.key.clone(),
                    identity: installed.identity.clone(),
                    artifact_sha256: None,
                    release: None,
                })
            }
            OperationKind::RefreshCatalog => None,
        }
    }
}

/// What an operation has achieved so far; private.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// The files that were put in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_receipt: Option<ReleaseReceipt>,
    /// The authorization attempt that was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_session: Option<AuthorizationSession>,
}

/// A durable command (spec A.5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Identifies it.
    pub operation_id: OperationId,
    /// The caller's own id of the command.
    pub client_request_id: ClientRequestId,
    /// Who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_account_id: Option<AccountId>,
    /// Who may see it.
    pub visibility: Visibility,
    /// The lane: a connector, or the catalog when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector_key: Option<ConnectorKey>,
    /// What it does.
    pub kind: OperationKind,
    /// For which account it acts.
    pub scope: OperationScope,
    /// Where it stands.
    #[serde(flatten)]
    pub state: OperationState,
    /// Where it stands in its sequence.
    pub stage: Stage,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<OperationTarget>,
    /// The generation of kinds that act on routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// What it has achieved.
    #[serde(default)]
    pub execution: Execution,
    /// How often it was begun.
    pub attempt: u32,
    /// How many attempts in a row were cut off, with nobody left to say how they ended.
    #[serde(default)]
    pub interrupted: u32,
    /// Who works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The token of the last claim; 0 when it was never claimed.
    #[serde(default)]
    pub lease_token: LeaseToken,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl Operation {
    /// Whether it has not ended.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self.state, OperationState::Accepted | OperationState::Running { .. })
    }

    /// Whether `scope` may see it. Whoever may not is told that it does not exist.
    #[must_use]
    pub fn is_visible_to(&self, scope: &OperationScope) -> bool {
        self.visibility == Visibility::Account
            && scope.account_id.is_some()
            && self.owner_account_id == scope.account_id
    }

    /// The authorization attempt that it began and that is still open: kind and
    /// state are as spec B.1 asks for.
    #[must_use]
    pub fn open_session(&self) -> Option<&AuthorizationSession> {
        let began = self.kind == OperationKind::StartAuthorization && self.state == OperationState::Completed;
        self.execution.authorization_session.as_ref().filter(|session| began && !session.is_resolved())
    }

    /// Fills owner from scope and scope from owner, and settles visibility (spec A.5).
    pub fn normalize_ownership(&mut self) {
        if self.owner_account_id.is_none() {
            self.owner_account_id = self.scope.account_id.clone();
        }
        if self.scope.account_id.is_none() {
            self.scope.account_id = self.owner_account_id.clone();
        }
        if self.kind == OperationKind::ReconcileRuntime || self.owner_account_id.is_none() {
            self.visibility = Visibility::SystemPrivate;
        }
    }

    /// Begins it, or begins it again: one more attempt.
    pub fn start(&mut self, now: Timestamp) {
        if self.is_active() {
            let cut_off = matches!(self.state, OperationState::Running { last_failure: None });
            self.interrupted = if cut_off { self.interrupted.saturating_add(1) } else { 0 };
            self.state = OperationState::Running { last_failure: None };
            self.attempt = self.attempt.saturating_add(1);
            self.updated_at = now;
        }
    }

    /// Moves it to `stage`; nothing once it has ended.
    pub fn enter(&mut self, stage: Stage, now: Timestamp) {
        if self.is_active() {
            self.state = OperationState::Running { last_failure: None };
            self.stage = stage;
            self.updated_at = now;
        }
    }

    /// Notes why an attempt ended; the operation will be begun again.
    pub fn suspend(&mut self, failure: OperationFailure, now: Timestamp) {
        if self.is_active() {
            self.state = OperationState::Running { last_failure: Some(failure) };
            self.updated_at = now;
        }
    }

    /// Ends it with success; nothing once it has ended, so that a failed
    /// operation is never revived (spec C.14, hazard 1).
    pub fn complete(&mut self, now: Timestamp) {
        if self.is_active() {
            self.state = OperationState::Completed;
            self.stage = Stage::Completed;
            self.updated_at = now;
        }
    }

    /// Ends it without success; nothing once it has ended.
    pub fn fail(&mut self, failure_code: ErrorCode, failure: OperationFailure, now: Timestamp) {
        if self.is_active() {
            self.state = OperationState::Failed { failure_code, failure };
            self.stage = Stage::Failed;
            self.updated_at = now;
        }
    }

    /// The release that was frozen when the operation was accepted.
    ///
    /// # Errors
    /// [`ErrorCode::InstallFailed`] when it is missing or is not the target's.
    pub fn frozen_release(&self) -> Result<&Release, Error> {
        let release = self.target.as_ref().and_then(|target| {
            let release = target.release.as_deref()?;
            (target.identity == ReleaseIdentity::from(release)
                && Some(&release.connector_key) == self.connector_key.as_ref()
                && target.artifact_sha256 == Some(release.artifact.sha256))
            .then_some(release)
        });
        release.ok_or_else(|| {
            Error::new(
                ErrorCode::InstallFailed,
                "the operation does not carry the release it was accepted for",
            )
        })
    }
}
