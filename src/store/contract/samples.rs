//! What the rules store: small, valid, and different enough to be told apart.

use std::sync::Arc;

use super::{Opened, StoreFactory};
use crate::{
    domain::{
        authorization::{AuthorizationProjection, AuthorizationSession, AuthorizationState, SessionAction},
        compatibility::Compatibility,
        connector::Connector,
        convergence::{Convergence, Intent},
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        id::{
            AccountId, AuthorizationSessionId, BootEpoch, ClientRequestId, ConnectionId, ConnectorKey,
            NodeId, OperationId, WorkerId,
        },
        lease::LeaseToken,
        manifest::Manifest,
        operation::{
            Execution, Operation, OperationKind, OperationScope, OperationState, OperationTarget, Stage,
            Visibility,
        },
        release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
        revision::Revision,
        runtime::ReleaseReceipt,
        timestamp::Timestamp,
    },
    ports::{OperationLease, Store},
};

/// A handle of the first node.
pub(super) async fn open(factory: &Arc<dyn StoreFactory>) -> Result<Opened, Error> {
    factory.open(&NodeId::parse("node-1")?).await
}

pub(super) fn key(text: &str) -> Result<ConnectorKey, Error> {
    ConnectorKey::parse(text)
}

pub(super) fn worker(text: &str) -> Result<WorkerId, Error> {
    WorkerId::parse(text)
}

pub(super) fn boot(text: &str) -> Result<BootEpoch, Error> {
    BootEpoch::parse(text)
}

pub(super) fn operation_id(text: &str) -> Result<OperationId, Error> {
    OperationId::parse(text)
}

pub(super) fn scope(account: &str) -> Result<OperationScope, Error> {
    Ok(OperationScope::account(AccountId::parse(account)?))
}

pub(super) fn release(key: &str, version: &str) -> Result<Release, Error> {
    let manifest = Manifest::parse(
        br#"{
            "schemaVersion": "1",
            "displayName": "Sample",
            "iconUrl": "https://example.com/icon.png",
            "description": "Says \"hello\" \u2014 \u00fcber alles.",
            "implementation": {
                "kind": "wasm_component",
                "world": "portcullis:connector/connector@0.1.0",
                "allowedHosts": ["api.example.com"]
            },
            "authorizationKind": "none",
            "examples": {"greet": [{"name": "Ann", "times": 3, "share": 31.245270191439438}]}
        }"#,
    )?;
    let artifact = Artifact {
        key: format!("{key}/{version}.tar.gz"),
        sha256: Sha256Digest::of(format!("{key} {version}").as_bytes()),
        size_bytes: 1234,
        media_type: MEDIA_TYPE_BUNDLE.to_owned(),
        object_version: None,
    };
    let version = version.parse().map_err(|cause: semver::Error| {
        Error::invalid_request("a sample's version is not a version").with_cause(cause)
    })?;
    Release::assemble(self::key(key)?, version, manifest, artifact, Timestamp(1_700_000_000_123))
}

pub(super) fn connector(key: &str) -> Result<Connector, Error> {
    Ok(Connector::listed(release(key, "1.0.0")?, Compatibility::supported(), Revision(1)))
}

/// An accepted operation of nobody, in the lane of `connector`.
pub(super) fn operation(
    id: &str,
    kind: OperationKind,
    connector: Option<&Connector>,
) -> Result<Operation, Error> {
    Ok(Operation {
        operation_id: operation_id(id)?,
        client_request_id: ClientRequestId::parse(format!("request-{id}"))?,
        owner_account_id: None,
        visibility: Visibility::Account,
        connector_key: connector.map(|connector| connector.key.clone()),
        kind,
        scope: OperationScope::default(),
        state: OperationState::Accepted,
        stage: Stage::Accepted,
        target: connector.and_then(|connector| OperationTarget::freeze(kind, connector)),
        generation: None,
        execution: Execution::default(),
        attempt: 0,
        interrupted: 0,
        lease: None,
        lease_token: LeaseToken(0),
        created_at: Timestamp(1_000),
        updated_at: Timestamp(1_000),
    })
}

/// An accepted install of `key`.
pub(super) fn install(id: &str, key: &str) -> Result<Operation, Error> {
    operation(id, OperationKind::Install, Some(&connector(key)?))
}

/// The same, of an account.
pub(super) fn install_of(account: &str, id: &str, key: &str) -> Result<Operation, Error> {
    let mut operation = install(id, key)?;
    operation.scope = scope(account)?;
    operation.normalize_ownership();
    Ok(operation)
}

/// `account` asked for an authorization of `key` and got an attempt, which is open.
pub(super) fn attempt_of(account: &str, id: &str, key: &str) -> Result<Operation, Error> {
    let mut operation = operation(id, OperationKind::StartAuthorization, Some(&connector(key)?))?;
    operation.scope = scope(account)?;
    operation.normalize_ownership();
    operation.execution.authorization_session = Some(AuthorizationSession {
        operation_id: operation.operation_id.clone(),
        connector_key: self::key(key)?,
        session_id: AuthorizationSessionId::parse(format!("session-{id}"))?,
        action: Some(SessionAction::Redirect),
        step_revision: 3,
        expires_at: Timestamp(600_000),
        resolution: None,
    });
    operation.complete(Timestamp(2_000));
    Ok(operation)
}

/// What `account` holds for `key`, every field told.
pub(super) fn projection(account: &str, key: &str) -> Result<AuthorizationProjection, Error> {
    let (account, connector) = (AccountId::parse(account)?, self::key(key)?);
    let local =
        AuthorizationProjection::local(account, connector, AuthorizationState::Connected, Timestamp(3_000));
    Ok(AuthorizationProjection {
        connector_version: Some(semver::Version::new(1, 2, 3)),
        connection_id: Some(ConnectionId::parse("connection")?),
        connection_version: u64::MAX,
        server_revision: 7,
        server_synchronized: true,
        failure_code: Some("code \"quoted\"".to_owned()),
        ..local
    })
}

/// What an installer answers to `operation`.
pub(super) fn receipt(operation: &Operation) -> Result<ReleaseReceipt, Error> {
    let release = operation.frozen_release()?;
    Ok(ReleaseReceipt {
        operation_id: operation.operation_id.clone(),
        connector_key: release.connector_key.clone(),
        version: release.version.clone(),
        release_digest: release.release_digest,
        artifact_sha256: release.artifact.sha256,
        inventory_digest: Sha256Digest::of(b"inventory"),
    })
}

/// The first intent of a scope for a connector, due at once.
pub(super) fn planned(scope: &OperationScope, key: &str) -> Result<Convergence, Error> {
    replanned(None, scope, key)
}

/// A later intent.
pub(super) fn replanned(
    stored: Option<&Convergence>,
    scope: &OperationScope,
    key: &str,
) -> Result<Convergence, Error> {
    let intent = Intent {
        binding_enabled: true,
        activation: None,
        connection_id: ConnectionId::parse("default")?,
        release_digest: Sha256Digest::of(key.as_bytes()),
        authorization_state: AuthorizationState::NotRequired,
        force: true,
    };
    let planned = Convergence::plan(stored, scope, &self::key(key)?, Revision(7), &intent, Timestamp(1_000))?;
    planned.ok_or_else(|| Error::unavailable("a forced plan changes nothing"))
}

pub(super) async fn save_connectors(store: &dyn Store, connectors: &[Connector]) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.advance_revision();
    for connector in connectors {
        tx.save_connector(connector).await?;
    }
    tx.commit().await
}

pub(super) async fn save_operations(store: &dyn Store, operations: &[Operation]) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.advance_revision();
    for operation in operations {
        tx.save_operation(operation).await?;
    }
    tx.commit().await
}

pub(super) async fn save_convergence(store: &dyn Store, convergence: &Convergence) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.advance_revision();
    tx.save_convergence(convergence).await?;
    tx.commit().await
}

/// How often those who meet meet, in a rule about that.
pub(super) const ROUNDS: u32 = 50;

/// So many handles, each as of another daemon.
pub(super) async fn handles<const N: usize>(
    factory: &Arc<dyn StoreFactory>,
) -> Result<[Arc<dyn Store>; N], Error> {
    let mut stores = Vec::new();
    for _ in 0..N {
        stores.push(open(factory).await?.store);
    }
    stores.try_into().map_err(|_| Error::unavailable("as many handles were not opened as were asked for"))
}

/// Does a whole transaction again for as long as others are in its way.
macro_rules! insist {
    ($work:expr) => {
        loop {
            match $work.await {
                Err(error) if error.code == $crate::domain::error::ErrorCode::SerializationConflict => {
                    tokio::task::yield_now().await;
                }
                answer => break answer,
            }
        }
    };
}

pub(super) use insist;

pub(super) async fn save_projection(
    store: &dyn Store,
    projection: &AuthorizationProjection,
) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.advance_revision();
    tx.save_authorization_projection(projection).await?;
    tx.commit().await
}

/// The operation as stored.
pub(super) async fn stored(store: &dyn Store, id: &str) -> Result<Operation, Error> {
    let operation = store.operation(&operation_id(id)?).await?;
    operation.ok_or_else(|| Error::not_found(format!("operation {id} is not stored")))
}

/// The lease that a claimed operation bears.
pub(super) fn lease_of(operation: &Operation) -> Result<OperationLease, Error> {
    let lease = operation.lease.as_ref().ok_or_else(|| Error::unavailable("no lease is held"))?;
    Ok(OperationLease {
        operation_id: operation.operation_id.clone(),
        owner: lease.owner.clone(),
        token: lease.token,
    })
}

/// The code of an error; the rule breaks where there is none.
pub(super) fn refused<T>(answer: Result<T, Error>) -> ErrorCode {
    match answer {
        Ok(_) => panic!("this should have been refused"),
        Err(error) => error.code,
    }
}
