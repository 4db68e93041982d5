//! A sandbox with a fake installer and a fake ledger around real components.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use portcullis::{
    domain::{
        authorization::AuthorizationState,
        capability::{CallRequest, CallResponse, Progress},
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        generation::Generation,
        id::{AccountId, BootEpoch, CapabilityId, ConnectionId, ConnectorKey, OperationId, RequestId},
        installation::{Installation, InstalledRelease},
        manifest::Manifest,
        operation::OperationScope,
        release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
        runtime::{DeactivateRequest, ReconcileRequest, ReleaseReceipt, RuntimeReceipt},
        timestamp::Timestamp,
    },
    ports::{
        CompiledComponent, ImplementationHost, InstallRequest, PreparedRelease, ReleaseInstaller,
        ReleaseObservation, SandboxLedger, StateChanges, StateScope, SystemClock, UninstallRequest,
    },
    sandbox::{SandboxHost, SandboxSettings},
};
use serde_json::{Value, json};

use crate::guests;

pub(crate) const BOOT: &str = "boot";
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// A sandbox and what it believes to be around it.
pub(crate) struct World {
    pub(crate) host: Arc<SandboxHost>,
    pub(crate) installer: Arc<Installed>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut SandboxSettings)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::over(folder, Arc::default(), Arc::default(), change)
    }

    fn over(
        folder: tempfile::TempDir,
        installer: Arc<Installed>,
        ledger: Arc<Ledger>,
        change: impl FnOnce(&mut SandboxSettings),
    ) -> Self {
        let mut settings = SandboxSettings::new(folder.path().join("compiled"));
        settings.pool_instances = 200;
        change(&mut settings);
        let host = SandboxHost::new(
            settings,
            Arc::clone(&installer) as Arc<dyn ReleaseInstaller>,
            Arc::clone(&ledger) as Arc<dyn SandboxLedger>,
            Arc::new(SystemClock),
        )
        .expect("a sandbox");
        Self { host, installer, ledger, folder }
    }

    /// Another daemon over the same folder and database.
    pub(crate) fn restart(self) -> Self {
        let Self { host, installer, ledger, folder } = self;
        drop(host);
        Self::over(folder, installer, ledger, |_| {})
    }

    /// Activates `connector` and answers its receipt.
    pub(crate) async fn activate(&self, connector: &Connector) -> Result<RuntimeReceipt, Error> {
        let request = self.request(connector);
        let receipt = self.host.reconcile(&request).await?;
        receipt.verify(&request).expect("a receipt that the market accepts");
        Ok(receipt)
    }

    pub(crate) fn request(&self, connector: &Connector) -> ReconcileRequest {
        let release = connector.release();
        self.installer.put(&release, &connector.component);
        ReconcileRequest {
            operation_id: OperationId::parse("operation").expect("an id"),
            scope: OperationScope { account_id: connector.account.clone() },
            connection_id: connector.connection(),
            installation: Installation::Installed {
                installed: InstalledRelease { identity: (&release).into(), installed_at: Timestamp(1) },
                failure_code: None,
            },
            release,
            authorization: AuthorizationState::NotRequired,
            connection_version: 0,
            server_revision: 0,
            enabled: true,
            generation: generation(connector.generation),
        }
    }

    pub(crate) async fn deactivate(&self, key: &str, number: u64) -> Result<(), Error> {
        let request = DeactivateRequest {
            scope: OperationScope::default(),
            connection_id: None,
            connector_key: ConnectorKey::parse(key).expect("a key"),
            release_digest: None,
            generation: generation(number),
        };
        self.host.deactivate(&request, SOON).await
    }

    pub(crate) async fn call(&self, capability: &str, input: Value) -> Result<CallResponse, Error> {
        self.host.call(call(capability, input)).await
    }

    /// The structured answer of a call.
    pub(crate) async fn ask(&self, capability: &str, input: Value) -> Value {
        let response = self.call(capability, input).await.expect("an answer");
        response.result.structured_content.expect("a structured answer")
    }

    /// The code and the message of a call that must fail.
    pub(crate) async fn refusal(&self, capability: &str, input: Value) -> (ErrorCode, String) {
        let error = self.call(capability, input).await.expect_err("a refusal");
        (error.code, error.message)
    }
}

pub(crate) fn call(capability: &str, input: Value) -> CallRequest {
    CallRequest {
        request_id: RequestId::parse("request").expect("an id"),
        account: None,
        capability: capability.parse::<CapabilityId>().expect("a capability id"),
        input,
        deadline: None,
        progress: None,
    }
}

pub(crate) fn with_progress(request: CallRequest) -> (CallRequest, Arc<Mutex<Vec<Progress>>>) {
    let reports = Arc::<Mutex<Vec<Progress>>>::default();
    let sink = Arc::clone(&reports);
    let listener = Arc::new(move |report| sink.lock().expect("reports").push(report));
    (CallRequest { progress: Some(listener), ..request }, reports)
}

pub(crate) fn generation(number: u64) -> Generation {
    Generation { boot_epoch: BootEpoch::parse(BOOT).expect("an epoch"), number }
}

/// A connector to activate.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) key: String,
    pub(crate) component: PathBuf,
    pub(crate) version: &'static str,
    pub(crate) generation: u64,
    pub(crate) account: Option<AccountId>,
    pub(crate) world: &'static str,
    pub(crate) limits: Value,
    pub(crate) hosts: Vec<&'static str>,
}

impl Connector {
    pub(crate) fn of(key: &str, component: PathBuf) -> Self {
        Self {
            key: key.to_owned(),
            component,
            version: "1.0.0",
            generation: 1,
            account: None,
            world: "portcullis:connector/connector@0.1.0",
            limits: json!({}),
            hosts: Vec::new(),
        }
    }

    pub(crate) fn echo() -> Self {
        Self::of("echo", guests::component("connectors/echo", &[]))
    }

    pub(crate) fn misbehave() -> Self {
        Self::of("bad", guests::component("hostile/misbehave", &[]))
    }

    pub(crate) fn generation(self, generation: u64) -> Self {
        Self { generation, ..self }
    }

    pub(crate) fn limits(self, limits: Value) -> Self {
        Self { limits, ..self }
    }

    pub(crate) fn account(self, account: &str) -> Self {
        Self { account: Some(AccountId::parse(account).expect("an account")), ..self }
    }

    pub(crate) fn connection(&self) -> ConnectionId {
        let key = ConnectorKey::parse(self.key.as_str()).expect("a key");
        match &self.account {
            Some(account) => ConnectionId::account(Some(account), &key),
            None => ConnectionId::device(&key),
        }
    }

    pub(crate) fn release(&self) -> Release {
        let manifest = json!({
            "schemaVersion": "1",
            "displayName": self.key,
            "iconUrl": "https://example.com/icon.png",
            "implementation": {
                "kind": "wasm_component",
                "world": self.world,
                "limits": self.limits,
                "allowedHosts": self.hosts,
            },
            "authorizationKind": "none",
        });
        let manifest = Manifest::parse(manifest.to_string().as_bytes()).expect("a manifest");
        let bytes = std::fs::read(&self.component).expect("the component");
        let artifact = Artifact {
            key: "artifact.tar.gz".to_owned(),
            sha256: Sha256Digest::of(&bytes),
            size_bytes: i64::try_from(bytes.len()).expect("a size"),
            media_type: MEDIA_TYPE_BUNDLE.to_owned(),
            object_version: None,
        };
        let key = ConnectorKey::parse(self.key.as_str()).expect("a key");
        let version = self.version.parse().expect("a version");
        Release::assemble(key, version, manifest, artifact, Timestamp(1)).expect("a release")
    }
}

/// An installer that has everything in place already.
#[derive(Default)]
pub(crate) struct Installed(Mutex<HashMap<Sha256Digest, PreparedRelease>>);

impl Installed {
    fn put(&self, release: &Release, component: &Path) {
        let prepared = PreparedRelease {
            root: component.parent().expect("a folder").to_owned(),
            component: component.to_owned(),
            component_digest: release.artifact.sha256,
        };
        self.0.lock().expect("releases").insert(release.release_digest, prepared);
    }
}

#[async_trait]
impl ReleaseInstaller for Installed {
    async fn install(&self, _: &InstallRequest) -> Result<ReleaseReceipt, Error> {
        unreachable!("the sandbox installs nothing")
    }

    async fn commit(&self, _: &InstallRequest, _: &ReleaseReceipt) -> Result<(), Error> {
        unreachable!("the sandbox commits nothing")
    }

    async fn inspect(&self, _: &Release) -> Result<ReleaseObservation, Error> {
        unreachable!("the sandbox inspects nothing")
    }

    async fn open(&self, release: &Release) -> Result<PreparedRelease, Error> {
        let releases = self.0.lock().expect("releases");
        releases.get(&release.release_digest).cloned().ok_or_else(|| Error::not_found("not installed"))
    }

    async fn uninstall(&self, _: &UninstallRequest) -> Result<(), Error> {
        unreachable!("the sandbox removes nothing")
    }
}

/// A ledger in memory.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) state: Mutex<HashMap<StateScope, BTreeMap<String, Vec<u8>>>>,
    pub(crate) compiled: Mutex<HashMap<(Sha256Digest, String), CompiledComponent>>,
}

#[async_trait]
impl SandboxLedger for Ledger {
    async fn state_value(&self, scope: &StateScope, key: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.state.lock().expect("state").get(scope).and_then(|values| values.get(key).cloned()))
    }

    async fn state_keys(&self, scope: &StateScope, prefix: &str) -> Result<Vec<String>, Error> {
        let state = self.state.lock().expect("state");
        let keys = state.get(scope).into_iter().flat_map(BTreeMap::keys);
        Ok(keys.filter(|key| key.starts_with(prefix)).cloned().collect())
    }

    async fn apply_state(&self, scope: &StateScope, changes: &StateChanges, quota: u64) -> Result<(), Error> {
        let mut state = self.state.lock().expect("state");
        let mut next = state.get(scope).cloned().unwrap_or_default();
        for (key, change) in changes {
            match change {
                Some(value) => next.insert(key.clone(), value.clone()),
                None => next.remove(key),
            };
        }
        if size(&next) > quota {
            return Err(Error::new(ErrorCode::CapabilityOutputTooLarge, "over the quota"));
        }
        state.insert(scope.clone(), next);
        Ok(())
    }

    async fn state_size(&self, scope: &StateScope) -> Result<u64, Error> {
        Ok(self.state.lock().expect("state").get(scope).map_or(0, size))
    }

    async fn compiled(
        &self,
        digest: &Sha256Digest,
        engine: &str,
    ) -> Result<Option<CompiledComponent>, Error> {
        Ok(self.compiled.lock().expect("compiled").get(&(*digest, engine.to_owned())).cloned())
    }

    async fn record_compiled(&self, compiled: &CompiledComponent) -> Result<(), Error> {
        let key = (compiled.component_digest, compiled.engine_fingerprint.clone());
        self.compiled.lock().expect("compiled").insert(key, compiled.clone());
        Ok(())
    }
}

fn size(values: &BTreeMap<String, Vec<u8>>) -> u64 {
    values.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
}
