//! [`SqlTx`]: a write transaction. The counters are read when it begins and written,
//! where they are still the same, when it commits.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{Any, AnyConnection, Transaction};

use super::{
    SqlStore, authorizations,
    changes::Changes,
    connectors, convergences,
    dialect::Dialect,
    metadata::{self, Metadata},
    operations,
    outbox::{self, Owned},
    releases, state,
};
use crate::{
    domain::{
        authorization::AuthorizationProjection,
        catalog::CatalogState,
        connector::Connector,
        convergence::Convergence,
        error::{Error, ErrorCode},
        event::ChangedEvent,
        id::{AccountId, ClientRequestId, ConnectorKey, NodeId, OperationId},
        operation::{Operation, OperationScope},
        revision::Revision,
    },
    ports::{Clock, ConvergenceLease, Tx},
};

pub(super) struct SqlTx {
    transaction: Transaction<'static, Any>,
    dialect: Dialect,
    node_id: NodeId,
    lease_clock: Option<Arc<dyn Clock>>,
    changes: Arc<Changes>,
    /// As read when the transaction began.
    stored: Metadata,
    /// As it shall be.
    metadata: Metadata,
    /// What is announced when it commits.
    events: Vec<outbox::Row>,
    /// The operation that was written last: most changes are announced right after.
    saved: Option<Owned>,
    /// What was found of operations in this turn, in which nobody else adds one.
    found: Found,
    /// A step failed. What it left half done must not become durable, and SQLite may
    /// have ended the transaction by itself, so that a further step would be alone.
    spoiled: bool,
}

/// What a transaction has found out and need not ask again until it writes.
#[derive(Default)]
struct Found {
    /// A lane without an active operation.
    free_lane: Option<Option<ConnectorKey>>,
    /// A client request that stands for no operation yet.
    free_request: Option<(Option<AccountId>, ClientRequestId)>,
    /// An operation whose release was received before, so that its evidence is there.
    evidence: Option<OperationId>,
}

fn has_receipt(operation: &Operation) -> bool {
    operation.execution.release_receipt.is_some()
}

impl SqlTx {
    pub(super) async fn begin(store: &SqlStore) -> Result<Self, Error> {
        let (transaction, stored) = store.write_transaction().await?;
        Ok(Self {
            transaction,
            dialect: store.dialect,
            node_id: store.node_id.clone(),
            lease_clock: store.lease_clock.clone(),
            changes: Arc::clone(&store.changes),
            metadata: stored.clone(),
            stored,
            events: Vec::new(),
            saved: None,
            found: Found::default(),
            spoiled: false,
        })
    }

    fn connection(&mut self) -> Result<&mut AnyConnection, Error> {
        if self.spoiled {
            return Err(Error::unavailable(
                "an earlier step of this transaction failed; nothing of it is stored",
            ));
        }
        Ok(&mut self.transaction)
    }

    fn settle<T>(&mut self, step: Result<T, Error>) -> Result<T, Error> {
        self.spoiled |= step.is_err();
        step
    }
}

#[async_trait]
impl Tx for SqlTx {
    fn revision(&self) -> Revision {
        self.metadata.revision
    }

    fn advance_revision(&mut self) -> Revision {
        self.metadata.revision = self.metadata.revision.next();
        self.metadata.revision
    }

    async fn connectors(&mut self) -> Result<Vec<Connector>, Error> {
        let step = connectors::list(self.connection()?).await;
        self.settle(step)
    }

    async fn connector(&mut self, key: &ConnectorKey) -> Result<Option<Connector>, Error> {
        let step = connectors::get(self.connection()?, key).await;
        self.settle(step)
    }

    async fn save_connector(&mut self, connector: &Connector) -> Result<(), Error> {
        let step = connectors::save(self.connection()?, connector).await;
        self.settle(step)
    }

    async fn delete_connector(&mut self, key: &ConnectorKey) -> Result<(), Error> {
        let step = connectors::delete(self.connection()?, key).await;
        self.settle(step)
    }

    async fn operation(&mut self, id: &OperationId) -> Result<Option<Operation>, Error> {
        let dialect = self.dialect;
        let step = operations::hold(self.connection()?, dialect, id).await;
        let operation = self.settle(step)?;
        self.found.evidence = operation.as_ref().filter(|one| has_receipt(one)).map(|_| id.clone());
        Ok(operation)
    }

    async fn operation_by_client_request(
        &mut self,
        owner: Option<&AccountId>,
        id: &ClientRequestId,
    ) -> Result<Option<Operation>, Error> {
        let dialect = self.dialect;
        let step = operations::by_client_request(self.connection()?, dialect, owner, id).await;
        let operation = self.settle(step)?;
        self.found.free_request = operation.is_none().then(|| (owner.cloned(), id.clone()));
        Ok(operation)
    }

    async fn active_operation_in_lane(
        &mut self,
        lane: Option<&ConnectorKey>,
    ) -> Result<Option<Operation>, Error> {
        let dialect = self.dialect;
        let step = operations::active_in_lane(self.connection()?, dialect, lane).await;
        let operation = self.settle(step)?;
        self.found.free_lane = operation.is_none().then(|| lane.cloned());
        Ok(operation)
    }

    async fn save_operation(&mut self, operation: &Operation) -> Result<(), Error> {
        let mut operation = operation.clone();
        operation.normalize_ownership();
        let found = std::mem::take(&mut self.found);
        let known_free = found.free_lane.as_ref() == Some(&operation.connector_key)
            && found.free_request.as_ref().is_some_and(|(owner, request)| {
                (owner, request) == (&operation.owner_account_id, &operation.client_request_id)
            });
        let step = operations::save(self.connection()?, &operation, known_free).await;
        self.settle(step)?;
        self.saved = Some(Owned::from(&operation));
        let noted = found.evidence.as_ref() == Some(&operation.operation_id);
        let step = releases::follow(self.connection()?, &operation, noted).await;
        self.settle(step)
    }

    async fn open_authorizations(&mut self, scope: &OperationScope) -> Result<Vec<Operation>, Error> {
        let owner = scope.account_id.as_ref();
        let step = operations::with_open_session(self.connection()?, owner).await;
        self.settle(step)
    }

    async fn authorization_projection(
        &mut self,
        account: &AccountId,
        key: &ConnectorKey,
    ) -> Result<Option<AuthorizationProjection>, Error> {
        let step = authorizations::get(self.connection()?, account, key).await;
        self.settle(step)
    }

    async fn authorization_projections(
        &mut self,
        account: &AccountId,
    ) -> Result<Vec<AuthorizationProjection>, Error> {
        let step = authorizations::list(self.connection()?, account).await;
        self.settle(step)
    }

    async fn save_authorization_projection(
        &mut self,
        projection: &AuthorizationProjection,
    ) -> Result<(), Error> {
        let step = authorizations::save(self.connection()?, projection).await;
        self.settle(step)
    }

    async fn authorization_revision(&mut self, account: &AccountId) -> Result<Option<u64>, Error> {
        let step = authorizations::revision(self.connection()?, account).await;
        self.settle(step)
    }

    async fn save_authorization_revision(&mut self, account: &AccountId, revision: u64) -> Result<(), Error> {
        let step = authorizations::save_revision(self.connection()?, account, revision).await;
        self.settle(step)
    }

    async fn save_source_revision(&mut self, source_revision: &str) -> Result<(), Error> {
        source_revision.clone_into(&mut self.metadata.source_revision);
        Ok(())
    }

    async fn set_catalog_state(&mut self, state: CatalogState) -> Result<(), Error> {
        self.metadata.catalog_state = state;
        Ok(())
    }

    async fn convergence(
        &mut self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<Option<Convergence>, Error> {
        let node_id = self.node_id.clone();
        let step = convergences::get(self.connection()?, &node_id, scope, key).await;
        self.settle(step)
    }

    async fn save_convergence(&mut self, convergence: &Convergence) -> Result<(), Error> {
        let node_id = self.node_id.clone();
        let step = convergences::save(self.connection()?, &node_id, convergence).await;
        self.settle(step)
    }

    async fn save_convergence_leased(
        &mut self,
        convergence: &Convergence,
        lease: &ConvergenceLease,
    ) -> Result<(), Error> {
        let (dialect, clock, node_id) = (self.dialect, self.lease_clock.clone(), self.node_id.clone());
        let now = dialect.given(clock.as_deref());
        let step =
            convergences::save_leased(self.connection()?, &node_id, convergence, lease, (dialect, now)).await;
        self.settle(step)
    }

    async fn delete_convergence(&mut self, scope: &OperationScope, key: &ConnectorKey) -> Result<(), Error> {
        let node_id = self.node_id.clone();
        let step = convergences::delete(self.connection()?, &node_id, scope, key).await;
        self.settle(step)
    }

    async fn delete_connector_state(&mut self, key: &ConnectorKey) -> Result<(), Error> {
        let step = state::forget(self.connection()?, key).await;
        self.settle(step)
    }

    async fn enqueue_changed(&mut self, event: &ChangedEvent) -> Result<(), Error> {
        let (mut metadata, saved) = (self.metadata.clone(), self.saved.clone());
        let step = outbox::announce(self.connection()?, &mut metadata, saved.as_ref(), event).await;
        let rows = self.settle(step)?;
        self.metadata = metadata;
        self.events.extend(rows);
        Ok(())
    }

    async fn commit(mut self: Box<Self>) -> Result<(), Error> {
        self.connection()?;
        if self.metadata != self.stored
            && !metadata::replace(
                &mut self.transaction,
                self.dialect,
                &self.stored,
                &self.metadata,
                &self.events,
            )
            .await?
        {
            return Err(Error::new(
                ErrorCode::SerializationConflict,
                "the revision moved on during the transaction; the same transaction may be tried again",
            ));
        }
        self.transaction.commit().await?;
        if self.metadata.announces(&self.stored) {
            self.changes.committed_here();
        }
        Ok(())
    }
}
