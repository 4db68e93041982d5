//! Accepting a command: one transaction that makes it durable, idempotent by the
//! caller's own id, and then a hint to whoever executes (spec C.5).

use super::{application::Application, snapshot::unknown_connector, tx::transaction};
use crate::{
    domain::{
        catalog::CatalogState,
        connector::Connector,
        error::{Error, ErrorCode},
        event::ChangedEvent,
        id::{ClientRequestId, ConnectorKey, OperationId},
        operation::{
            Execution, Operation, OperationKind, OperationScope, OperationState, OperationTarget, Stage,
            Visibility,
        },
        revision::Revision,
    },
    ports::Tx,
};

/// A command as its caller sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// The caller's own id; the same command under the same id is done once.
    pub client_request_id: ClientRequestId,
    /// The revision that the caller saw.
    pub expected_revision: Revision,
    /// For which account.
    pub scope: OperationScope,
}

/// A command about one connector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorMutation {
    /// The command.
    pub mutation: Mutation,
    /// The connector.
    pub connector_key: ConnectorKey,
    /// The connector's revision that the caller saw; stands in for the global one.
    pub expected_connector_revision: Option<Revision>,
}

/// A command that was made durable, now or before.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// The connector, for a command about one.
    pub connector: Option<Connector>,
    /// The operation that stands for the command.
    pub operation: Operation,
    /// The current revision.
    pub revision: Revision,
}

impl Application {
    /// Accepts a command about a connector. `transition` says what becomes of it.
    pub(super) async fn accept_connector(
        &self,
        command: &ConnectorMutation,
        kind: OperationKind,
        transition: impl Fn(&mut Connector) -> Result<(), Error>,
    ) -> Result<Accepted, Error> {
        let (mutation, key) = (&command.mutation, &command.connector_key);
        let accepted = transaction!(self.config.store, |tx| {
            if let Some(operation) = replayed(tx, mutation, kind, Some(key)).await? {
                let revision = tx.revision();
                Accepted { connector: tx.connector(key).await?, operation, revision }
            } else {
                let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
                verify_revision(tx.revision(), command, &connector)?;
                refuse_busy_lane(tx, Some(key)).await?;
                transition(&mut connector)?;
                let revision = tx.advance_revision();
                connector.revision = revision;
                let target = OperationTarget::freeze(kind, &connector);
                let operation = self.new_operation(mutation, kind, Some(key), target, revision)?;
                tx.save_connector(&connector).await?;
                tx.save_operation(&operation).await?;
                announce(tx, &operation, revision).await?;
                Accepted { connector: Some(connector), operation, revision }
            }
        })?;
        self.hint(&accepted.operation)?;
        Ok(accepted)
    }

    /// Accepts a refresh of the catalog.
    pub(super) async fn accept_refresh(&self, mutation: &Mutation) -> Result<Accepted, Error> {
        let kind = OperationKind::RefreshCatalog;
        let accepted = transaction!(self.config.store, |tx| {
            if let Some(operation) = replayed(tx, mutation, kind, None).await? {
                Accepted { connector: None, operation, revision: tx.revision() }
            } else {
                verify_global_revision(tx.revision(), mutation.expected_revision)?;
                refuse_busy_lane(tx, None).await?;
                let revision = tx.advance_revision();
                let operation = self.new_operation(mutation, kind, None, None, revision)?;
                tx.set_catalog_state(CatalogState::Refreshing).await?;
                tx.save_operation(&operation).await?;
                announce(tx, &operation, revision).await?;
                Accepted { connector: None, operation, revision }
            }
        })?;
        self.hint(&accepted.operation)?;
        Ok(accepted)
    }

    pub(super) fn new_operation(
        &self,
        mutation: &Mutation,
        kind: OperationKind,
        key: Option<&ConnectorKey>,
        target: Option<OperationTarget>,
        revision: Revision,
    ) -> Result<Operation, Error> {
        let now = self.now();
        let id = self.config.ids.fresh().and_then(OperationId::parse).map_err(|cause| {
            Error::unavailable("no operation id could be made; try again").with_cause(cause)
        })?;
        let mut operation = Operation {
            operation_id: id,
            client_request_id: mutation.client_request_id.clone(),
            owner_account_id: mutation.scope.account_id.clone(),
            visibility: Visibility::Account,
            connector_key: key.cloned(),
            kind,
            scope: mutation.scope.clone(),
            state: OperationState::Accepted,
            stage: Stage::Accepted,
            target,
            generation: kind.touches_implementation_host().then(|| self.generation_at(revision)),
            execution: Execution::default(),
            attempt: 0,
            interrupted: 0,
            lease: None,
            lease_token: Default::default(),
            created_at: now,
            updated_at: now,
        };
        operation.normalize_ownership();
        Ok(operation)
    }

    /// Passes the hint on. It comes after the commit: when it fails, the command
    /// is durable all the same, and recovery finds it.
    pub(super) fn hint(&self, operation: &Operation) -> Result<(), Error> {
        if !(operation.kind.effect_is_durable() && operation.is_active()) {
            return Ok(());
        }
        self.config.scheduler.schedule(&operation.operation_id).map_err(|cause| {
            Error::unavailable(format!(
                "operation {} was stored but could not be scheduled; repeat the request or wait",
                operation.operation_id
            ))
            .with_cause(cause)
        })
    }
}

/// The operation that the caller's id already stands for.
pub(super) async fn replayed(
    tx: &mut dyn Tx,
    mutation: &Mutation,
    kind: OperationKind,
    key: Option<&ConnectorKey>,
) -> Result<Option<Operation>, Error> {
    let owner = mutation.scope.account_id.as_ref();
    let Some(operation) = tx.operation_by_client_request(owner, &mutation.client_request_id).await? else {
        return Ok(None);
    };
    if operation.kind != kind || operation.connector_key.as_ref() != key || operation.scope != mutation.scope
    {
        return Err(Error::invalid_request(format!(
            "clientRequestId {:?} was already used for another command; use a fresh one",
            mutation.client_request_id.as_str()
        )));
    }
    Ok(Some(operation))
}

/// Compares with the connector's revision where the caller named one, else with
/// the global one.
pub(super) fn verify_revision(
    current: Revision,
    command: &ConnectorMutation,
    connector: &Connector,
) -> Result<(), Error> {
    match command.expected_connector_revision {
        None => verify_global_revision(current, command.mutation.expected_revision),
        Some(expected) if expected == connector.revision => Ok(()),
        Some(expected) => Err(Error::new(
            ErrorCode::RevisionConflict,
            format!(
                "connector {} is at revision {}, not at {expected}; read it and decide again",
                connector.key, connector.revision
            ),
        )),
    }
}

fn verify_global_revision(current: Revision, expected: Revision) -> Result<(), Error> {
    if current == expected {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::RevisionConflict,
        format!("the market is at revision {current}, not at {expected}; read it and decide again"),
    ))
}

async fn refuse_busy_lane(tx: &mut dyn Tx, lane: Option<&ConnectorKey>) -> Result<(), Error> {
    match tx.active_operation_in_lane(lane).await? {
        None => Ok(()),
        // Neither who asked for it nor its id: it may be another account's.
        Some(_) => Err(busy(lane)),
    }
}

pub(super) fn busy(lane: Option<&ConnectorKey>) -> Error {
    Error::new(
        ErrorCode::OperationInProgress,
        match lane {
            Some(key) => format!("another operation on {key} has not ended; wait for it"),
            None => "another refresh of the catalog has not ended; wait for it".to_owned(),
        },
    )
}

/// Announces a change of an operation.
pub(super) async fn announce(
    tx: &mut dyn Tx,
    operation: &Operation,
    revision: Revision,
) -> Result<(), Error> {
    tx.enqueue_changed(&ChangedEvent {
        connector_key: operation.connector_key.clone(),
        operation_id: Some(operation.operation_id.clone()),
        revision,
    })
    .await
}
