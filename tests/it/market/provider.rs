//! A scripted provider of authorizations, and a scripted keeper of what accounts hold.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use portcullis::{
    domain::{
        authorization::{
            AuthorizationObservation, AuthorizationProgress, AuthorizationProjection, AuthorizationSnapshot,
            AuthorizationState, AuthorizationStep, Resolution,
        },
        error::Error,
        id::{AccountId, ConnectionId},
        operation::{Operation, OperationScope},
        release::Release,
        timestamp::Timestamp,
    },
    market::authorize::{AuthorizationResult, BeginAuthorization},
    ports::{
        AttemptRequest, AuthorizationCanceler, AuthorizationInspector, AuthorizationObserver,
        AuthorizationProvider, AuthorizationSource, BeginRequest, CredentialInspection, DisconnectRequest,
        InspectRequest, ReplacementPolicy,
    },
};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{
    fakes::{Gate, Script, Shared},
    world::{World, ada, altered, key},
};

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

/// A release that runs here on what its account holds.
pub(crate) fn local(key: &str, version: &str) -> Release {
    altered(key, version, |manifest| manifest["authorizationKind"] = "oauth2".into())
}

/// A release that runs elsewhere on what its account holds.
pub(crate) fn remote(key: &str, version: &str) -> Release {
    altered(key, version, |manifest| {
        manifest["authorizationKind"] = "oauth2".into();
        manifest["requiredCapabilities"] = json!(["tools"]);
        manifest["implementation"] = json!({
            "kind": "remote_streamable_http",
            "endpoint": "https://mcp.example.org/",
            "authentication": "connection",
            "allowedHosts": ["mcp.example.org"],
        });
    })
}

/// A world in which a local "mail" and a remote "cloud" are installed, with nothing
/// authorized.
pub(crate) async fn installed() -> World {
    let world = World::with_remote().await;
    world.offer(&[local("mail", "1.0.0"), remote("cloud", "1.0.0")]).await;
    world.install("mail").await;
    world.install("cloud").await;
    world
}

/// What ada's account holds for a connector, as whoever keeps the truth says it.
pub(crate) fn held(connector: &str, state: AuthorizationState, id: Option<&str>) -> AuthorizationProjection {
    AuthorizationProjection {
        connection_id: id.map(connection),
        connection_version: 1,
        ..AuthorizationProjection::local(account(), key(connector), state, Timestamp(1))
    }
}

pub(crate) fn account() -> AccountId {
    ada().account_id.expect("an account")
}

impl FakeAccounts {
    /// Says what the account holds from now on.
    pub(crate) fn say(&self, revision: u64, projections: Vec<AuthorizationProjection>) {
        *self.truth.lock() = Some(AuthorizationSnapshot { revision, projections });
    }
}

impl World {
    /// A command of ada's at the current revision.
    pub(crate) async fn begin(&self, request: &str, connector: &str) -> BeginAuthorization {
        BeginAuthorization {
            command: self.command(request, connector).await,
            replacement: ReplacementPolicy::Keep,
            after_step: 0,
            secret: None,
        }
    }

    /// The same, to replace what is open.
    pub(crate) async fn replace(&self, request: &str, connector: &str) -> BeginAuthorization {
        BeginAuthorization {
            replacement: ReplacementPolicy::ReplaceActive,
            ..self.begin(request, connector).await
        }
    }

    pub(crate) async fn authorize(&self, begin: BeginAuthorization) -> Result<AuthorizationResult, Error> {
        self.app.begin_authorization(begin).await
    }

    /// An attempt of ada's that waits for her.
    pub(crate) async fn pending(&self, request: &str, connector: &str) -> AuthorizationResult {
        self.authorize(self.begin(request, connector).await).await.expect("an attempt")
    }

    /// Ada is connected.
    pub(crate) async fn connect(&self, connector: &str, id: &str) -> AuthorizationResult {
        self.authorization.progress.lock().push_back(connected(id));
        let request = format!("connect-{}", self.revision().await);
        self.authorize(self.begin(&request, connector).await).await.expect("a connection")
    }

    pub(crate) async fn open(&self, scope: &OperationScope) -> Vec<Operation> {
        self.store.open_authorizations(scope).await.expect("a reading")
    }

    /// How the attempt of an operation ends, so far.
    pub(crate) async fn resolution(&self, operation: &Operation) -> Option<Resolution> {
        let stored = self.store.operation(&operation.operation_id).await.expect("a reading");
        stored.expect("an operation").execution.authorization_session.expect("a receipt").resolution
    }

    pub(crate) async fn projection(&self, connector: &str) -> Option<AuthorizationProjection> {
        self.store.authorization_projection(&account(), &key(connector)).await.expect("a reading")
    }
}
