//! A market and a host that answer as told and note what they were asked.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header::HeaderMap},
};
use http_body_util::BodyExt as _;
use portcullis::{
    api::{self, Access, ApiState, Health, Market, Readiness},
    domain::{
        capability::{
            Annotations, CallRequest, CallResponse, CallResult, Capability, Content, PublishedCapability,
        },
        catalog::{
            CatalogCategory, CatalogListing, CatalogPage, CatalogPageQuery, CatalogState, CategoryKind,
        },
        compatibility::Compatibility,
        connector::Connector,
        convergence::ConnectorRuntime,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        generation::Generation,
        id::{AccountId, BootEpoch, ClientRequestId, ConnectionId, ConnectorKey, OperationId, WorkerId},
        installation::Installation,
        lease::{Lease, LeaseToken},
        manifest::Manifest,
        operation::{
            Execution, Operation, OperationKind, OperationScope, OperationState, OperationTarget, Stage,
            Visibility,
        },
        release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
        revision::Revision,
        runtime::{DeactivateRequest, ReconcileRequest, RuntimeReceipt},
        snapshot::PublicSnapshot,
        timestamp::Timestamp,
    },
    market::{Accepted, ConnectorMutation, Mutation},
    ports::{Clock, ImplementationHost, RandomIds, RouteStatus, RouteSummary},
};
use serde_json::Value;
use tower::ServiceExt as _;

pub(super) const TOKEN: &str = "a-token-of-more-than-thirty-two-characters";
pub(super) const HOST: &str = "127.0.0.1:7480";
pub(super) const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// What was asked of the market.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Refresh(Mutation),
    Install(ConnectorMutation),
    Uninstall(ConnectorMutation),
    SetRuntime(ConnectorMutation, bool),
}

/// Answers with a connector and an operation, or with one error for everything.
#[derive(Default)]
pub(super) struct FakeMarket {
    pub(super) error: Mutex<Option<(ErrorCode, bool)>>,
    pub(super) asked: Mutex<Vec<Asked>>,
    pub(super) operation: Mutex<Option<Operation>>,
    pub(super) empty: bool,
}

impl FakeMarket {
    pub(super) fn failing(code: ErrorCode) -> Self {
        Self { error: Mutex::new(Some((code, code.retryable()))), ..Self::default() }
    }

    fn answer<T>(&self, value: T) -> Result<T, Error> {
        match *self.error.lock().unwrap() {
            None => Ok(value),
            Some((code, retryable)) => Err(Error::new(code, "as told")
                .with_retryable(retryable)
                .with_cause("secret detail of the database")),
        }
    }

    fn accept(&self, asked: Asked, connector: Option<Connector>) -> Result<Accepted, Error> {
        let accepted = self.answer(Accepted { connector, operation: operation(), revision: Revision(8) })?;
        self.asked.lock().unwrap().push(asked);
        Ok(accepted)
    }
}

#[async_trait]
impl Market for FakeMarket {
    async fn snapshot(&self, _: &OperationScope) -> Result<PublicSnapshot, Error> {
        let private =
            Operation { kind: OperationKind::ReconcileRuntime, operation_id: id("private"), ..operation() };
        let mine = self.operation.lock().unwrap().clone().unwrap_or_else(operation);
        self.answer(PublicSnapshot {
            revision: Revision(7),
            catalog_state: CatalogState::Ready,
            event_cursor: 12,
            connectors: if self.empty {
                vec![]
            } else {
                vec![(connector(), Some(ConnectorRuntime::Started))]
            },
            operations: if self.empty { vec![] } else { vec![mine, private] },
        })
    }

    async fn categories(&self) -> Result<Vec<CatalogCategory>, Error> {
        self.answer(vec![CatalogCategory {
            category_id: "tools".into(),
            kind: CategoryKind::Category,
            sort_order: 1,
            item_count: 2,
            display_name_zh: None,
            display_name_en: Some("Tools".into()),
        }])
    }

    async fn catalog_page(&self, _: &OperationScope, query: &CatalogPageQuery) -> Result<CatalogPage, Error> {
        let listing = CatalogListing { category_id: "tools".into(), featured: true, connector: connector() };
        self.answer(CatalogPage {
            section_id: query.section_id().to_owned(),
            items: if self.empty { vec![] } else { vec![listing] },
            next_page_token: if self.empty { String::new() } else { format!("after-{}", query.page_size()) },
            revision: Revision(7),
        })
    }

    async fn connector(
        &self,
        _: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<(Connector, Option<ConnectorRuntime>), Error> {
        if *self.error.lock().unwrap() == Some((ErrorCode::RevisionConflict, true)) {
            return Ok((connector(), None));
        }
        if key.as_str() != "feeds" {
            return Err(Error::not_found("there is no such connector"));
        }
        self.answer((connector(), Some(ConnectorRuntime::Started)))
    }

    async fn operation(&self, _: &OperationScope, id: &OperationId) -> Result<Operation, Error> {
        let operation = self.operation.lock().unwrap().clone().unwrap_or_else(operation);
        if operation.operation_id != *id {
            return Err(Error::not_found("there is no such operation"));
        }
        self.answer(operation)
    }

    async fn refresh_catalog(&self, mutation: Mutation) -> Result<Accepted, Error> {
        self.accept(Asked::Refresh(mutation), None)
    }

    async fn install(&self, command: ConnectorMutation) -> Result<Accepted, Error> {
        self.accept(Asked::Install(command), Some(connector()))
    }

    async fn uninstall(&self, command: ConnectorMutation) -> Result<Accepted, Error> {
        self.accept(Asked::Uninstall(command), Some(connector()))
    }

    async fn set_runtime_enabled(
        &self,
        command: ConnectorMutation,
        enabled: bool,
    ) -> Result<(Connector, Option<ConnectorRuntime>), Error> {
        let state = if enabled { ConnectorRuntime::Starting } else { ConnectorRuntime::Stopped };
        let answer = self.answer((connector(), Some(state)))?;
        self.asked.lock().unwrap().push(Asked::SetRuntime(command, enabled));
        Ok(answer)
    }
}

/// What a call does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OnCall {
    #[default]
    Answer,
    Fail(ErrorCode),
    Panic,
    Hang,
}

/// Offers `feeds.read`.
#[derive(Default)]
pub(super) struct FakeHost {
    pub(super) on_call: OnCall,
    pub(super) calls: Mutex<Vec<CallRequest>>,
    /// How many calls were dropped before they answered.
    pub(super) dropped: Arc<Mutex<u32>>,
}

struct CountDrop(Arc<Mutex<u32>>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

#[async_trait]
impl ImplementationHost for FakeHost {
    async fn reconcile(&self, _: &ReconcileRequest) -> Result<RuntimeReceipt, Error> {
        unreachable!("the API never reconciles")
    }

    async fn deactivate(&self, _: &DeactivateRequest, _: Duration) -> Result<(), Error> {
        unreachable!("the API never deactivates")
    }

    async fn fail_closed(&self, _: Duration) -> Result<(), Error> {
        unreachable!("the API never fails closed")
    }

    fn set_publication(&self, _: bool) {
        unreachable!("the API never publishes")
    }

    fn capabilities(&self, account: Option<&AccountId>) -> Vec<PublishedCapability> {
        assert_eq!(account.map(AccountId::as_str), Some("local"));
        vec![PublishedCapability {
            id: "feeds.read".parse().unwrap(),
            capability: Capability {
                name: "read".parse().unwrap(),
                title: None,
                description: "Reads a feed.".into(),
                input_schema: serde_json::json!({ "type": "object" }),
                output_schema: None,
                annotations: Annotations {
                    read_only: true,
                    destructive: false,
                    idempotent: true,
                    open_world: true,
                },
            },
            version: "1.0.0".into(),
            release_digest: Sha256Digest::of(b"release"),
            generation: generation(),
        }]
    }

    async fn call(&self, request: CallRequest) -> Result<CallResponse, Error> {
        let capability = request.capability.clone();
        self.calls.lock().unwrap().push(request);
        match self.on_call {
            OnCall::Fail(code) => return Err(Error::new(code, "as told")),
            OnCall::Panic => panic!("as told"),
            OnCall::Hang => {
                let _guard = CountDrop(Arc::clone(&self.dropped));
                std::future::pending::<()>().await;
            }
            OnCall::Answer => {}
        }
        if capability.to_string() != "feeds.read" {
            return Err(Error::new(ErrorCode::CapabilityNotFound, "no such capability"));
        }
        Ok(CallResponse {
            result: CallResult {
                content: vec![Content::Text { text: "two entries".into() }],
                structured_content: Some(serde_json::json!({ "entries": [1, 2] })),
            },
            connection_id: ConnectionId::parse("device-feeds").unwrap(),
            version: "1.0.0".into(),
            release_digest: Sha256Digest::of(b"release"),
            generation: generation(),
        })
    }

    fn routes(&self) -> Vec<RouteSummary> {
        vec![RouteSummary {
            connector_key: key("feeds"),
            connection_id: ConnectionId::parse("device-feeds").unwrap(),
            release_digest: Sha256Digest::of(b"release"),
            version: "1.0.0".into(),
            generation: generation(),
            status: RouteStatus::Active,
            calls_in_flight: 0,
        }]
    }

    async fn close(&self, _: Duration) -> Result<(), Error> {
        unreachable!("the API never closes the host")
    }
}

struct Fixed(Readiness);

impl Health for Fixed {
    fn readiness(&self) -> Readiness {
        self.0.clone()
    }
}

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        NOW
    }
}

/// An API over fakes.
pub(super) struct Api {
    pub(super) market: Option<Arc<FakeMarket>>,
    pub(super) host: Arc<FakeHost>,
    pub(super) ready: bool,
}

impl Default for Api {
    fn default() -> Self {
        Self { market: Some(Arc::default()), host: Arc::default(), ready: true }
    }
}

impl Api {
    pub(super) fn with_market(market: FakeMarket) -> Self {
        Self { market: Some(Arc::new(market)), ..Self::default() }
    }

    pub(super) fn on_call(on_call: OnCall) -> Self {
        Self { host: Arc::new(FakeHost { on_call, ..FakeHost::default() }), ..Self::default() }
    }

    pub(super) fn state(&self, listen: &str) -> Arc<ApiState> {
        Arc::new(ApiState {
            market: self.market.clone().map(|market| market as Arc<dyn Market>),
            host: Arc::clone(&self.host) as Arc<dyn ImplementationHost>,
            scope: Arc::new(OperationScope::account(AccountId::parse("local").unwrap())),
            health: Arc::new(Fixed(Readiness {
                ready: self.ready,
                detail: serde_json::json!({ "ready": self.ready, "bootstrapped": self.ready }),
            })),
            token: TOKEN.into(),
            access: Access::new(listen.parse().unwrap(), ["gate.example".to_owned()]),
            arrival: Duration::from_millis(50),
            clock: Arc::new(FixedClock),
            ids: Arc::new(RandomIds),
        })
    }

    pub(super) fn router(&self) -> Router {
        api::router(self.state(HOST))
    }

    /// Sends a request as it is.
    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status: parts.status, headers: parts.headers, body, text }
    }

    /// Sends an authenticated request.
    pub(super) async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let mut request = request(method, path);
        if let Some(body) = body {
            request = request.header("content-type", "application/json");
            return self.send(request.body(Body::from(body.to_string())).unwrap()).await;
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, Some(body)).await
    }
}

/// An authenticated request to be finished.
pub(super) fn request(method: &str, path: &str) -> axum::http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", HOST)
        .header("authorization", format!("Bearer {TOKEN}"))
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
    pub(super) text: String,
}

impl Answer {
    /// Asserts a refusal, with a body that every error has.
    #[track_caller]
    pub(super) fn refused(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.body["code"].as_str()), (status, Some(code)), "{}", self.text);
        assert!(self.body["message"].as_str().is_some_and(|message| !message.is_empty()), "{}", self.text);
        assert!(self.body["retryable"].is_boolean(), "{}", self.text);
        assert_eq!(self.body["requestId"].as_str(), Some(self.header("x-request-id")), "{}", self.text);
        assert_eq!(self.header("content-type"), "application/json");
    }

    #[track_caller]
    pub(super) fn ok(&self, status: u16) -> &Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        &self.body
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(super) fn mutation() -> Value {
    serde_json::json!({ "clientRequestId": "one", "expectedRevision": 7, "expectedConnectorRevision": 5 })
}

fn id(text: &str) -> OperationId {
    OperationId::parse(text).unwrap()
}

fn key(text: &str) -> ConnectorKey {
    ConnectorKey::parse(text).unwrap()
}

pub(super) fn generation() -> Generation {
    Generation { boot_epoch: BootEpoch::parse("boot").unwrap(), number: 3 }
}

/// `feeds` 1.0.0, installed, with a credential, limits and a flow of its own.
pub(super) fn connector() -> Connector {
    let manifest = Manifest::parse(
        serde_json::json!({
            "schemaVersion": "1",
            "displayName": "Feeds",
            "iconUrl": "https://icons.example/feeds.png",
            "permissions": ["network:feeds"],
            "implementation": {
                "kind": "wasm_component",
                "component": "inner/component.wasm",
                "world": "portcullis:connector/connector@0.1.0",
                "allowedHosts": ["api.example"],
                "limits": { "memoryBytes": 1_048_576, "cpuMs": 250 },
                "credential": {
                    "hosts": ["api.example"],
                    "placement": { "in": "header", "name": "authorization", "prefix": "Bearer " }
                }
            },
            "authorizationKind": "api_key",
            "examples": { "read": [{ "url": "https://api.example/feed" }] }
        })
        .to_string()
        .as_bytes(),
    )
    .unwrap();
    let artifact = Artifact {
        key: "artifacts/feeds-1.0.0.tar.gz".into(),
        sha256: Sha256Digest::of(b"artifact"),
        size_bytes: 58_000,
        media_type: MEDIA_TYPE_BUNDLE.into(),
        object_version: Some("object-version-9".into()),
    };
    let release = Release::assemble(key("feeds"), "1.0.0".parse().unwrap(), manifest, artifact, NOW).unwrap();
    let installed = serde_json::from_value(serde_json::json!({
        "state": "updating",
        "installed": {
            "version": "0.9.0",
            "releaseId": "feeds@0.9.0",
            "releaseDigest": Sha256Digest::of(b"older"),
            "installedAt": "2023-11-14T22:13:20Z"
        },
        "candidate": {
            "version": "1.0.0",
            "releaseId": "feeds@1.0.0",
            "releaseDigest": release.release_digest
        }
    }))
    .unwrap();
    let mut connector = Connector::listed(release, Compatibility::supported(), Revision(5));
    connector.installation = installed;
    assert!(matches!(connector.installation, Installation::Updating { .. }));
    connector
}

/// A running installation of it, with everything that stays private.
pub(super) fn operation() -> Operation {
    let account = AccountId::parse("local").unwrap();
    Operation {
        operation_id: id("op-1"),
        client_request_id: ClientRequestId::parse("one").unwrap(),
        owner_account_id: Some(account.clone()),
        visibility: Visibility::Account,
        connector_key: Some(key("feeds")),
        kind: OperationKind::Install,
        scope: OperationScope::account(account),
        state: OperationState::Running { last_failure: None },
        stage: Stage::Installing,
        target: OperationTarget::freeze(OperationKind::Install, &connector()),
        generation: Some(generation()),
        execution: Execution::default(),
        attempt: 1,
        interrupted: 0,
        lease: Some(Lease {
            owner: WorkerId::parse("worker-7").unwrap(),
            token: LeaseToken(4),
            expires_at: NOW,
        }),
        lease_token: LeaseToken(4),
        created_at: NOW,
        updated_at: NOW,
    }
}
