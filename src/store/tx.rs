//! [`SqlTx`]: a write transaction. The counters are read when it begins and written,
//! where they are still the same, when it commits.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{Any, Transaction};

use super::{
    SqlStore, connectors, convergences,
    dialect::Dialect,
    metadata::{self, Metadata},
    operations, outbox, releases,
};
use crate::{
    domain::{
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
    clock: Arc<dyn Clock>,
    /// As read when the transaction began.
    stored: Metadata,
    /// As it shall be.
    metadata: Metadata,
}

impl SqlTx {
    pub(super) async fn begin(
        store: &SqlStore,
        mut transaction: Transaction<'static, Any>,
    ) -> Result<Self, Error> {
        let stored = metadata::get(&mut transaction).await?;
        Ok(Self {
            transaction,
            dialect: store.dialect,
            node_id: store.node_id.clone(),
            clock: Arc::clone(&store.clock),
            metadata: stored.clone(),
            stored,
        })
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
        connectors::list(&mut self.transaction).await
    }

    async fn connector(&mut self, key: &ConnectorKey) -> Result<Option<Connector>, Error> {
        connectors::get(&mut self.transaction, key).await
    }

    async fn save_connector(&mut self, connector: &Connector) -> Result<(), Error> {
        connectors::save(&mut self.transaction, connector).await
    }

    async fn delete_connector(&mut self, key: &ConnectorKey) -> Result<(), Error> {
        connectors::delete(&mut self.transaction, key).await
    }

    async fn operation(&mut self, id: &OperationId) -> Result<Option<Operation>, Error> {
        operations::get(&mut self.transaction, id).await
    }

    async fn operation_by_client_request(
        &mut self,
        owner: Option<&AccountId>,
        id: &ClientRequestId,
    ) -> Result<Option<Operation>, Error> {
        operations::by_client_request(&mut self.transaction, owner, id).await
    }

    async fn active_operation_in_lane(
        &mut self,
        lane: Option<&ConnectorKey>,
    ) -> Result<Option<Operation>, Error> {
        operations::active_in_lane(&mut self.transaction, lane).await
    }

    async fn save_operation(&mut self, operation: &Operation) -> Result<(), Error> {
        let mut operation = operation.clone();
        operation.normalize_ownership();
        operations::save(&mut self.transaction, &operation).await?;
        releases::follow(&mut self.transaction, &operation).await
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
        convergences::get(&mut self.transaction, &self.node_id, scope, key).await
    }

    async fn save_convergence(&mut self, convergence: &Convergence) -> Result<(), Error> {
        convergences::save(&mut self.transaction, &self.node_id, convergence).await
    }

    async fn save_convergence_leased(
        &mut self,
        convergence: &Convergence,
        lease: &ConvergenceLease,
    ) -> Result<(), Error> {
        let now = self.dialect.now(&mut self.transaction, &*self.clock).await?;
        convergences::save_leased(&mut self.transaction, &self.node_id, convergence, lease, now).await
    }

    async fn delete_convergence(&mut self, scope: &OperationScope, key: &ConnectorKey) -> Result<(), Error> {
        convergences::delete(&mut self.transaction, &self.node_id, scope, key).await
    }

    async fn enqueue_changed(&mut self, event: &ChangedEvent) -> Result<(), Error> {
        outbox::enqueue(&mut self.transaction, &mut self.metadata, event).await
    }

    async fn commit(mut self: Box<Self>) -> Result<(), Error> {
        if self.metadata != self.stored
            && !metadata::replace(&mut self.transaction, &self.stored, &self.metadata).await?
        {
            return Err(Error::new(
                ErrorCode::SerializationConflict,
                "the revision moved on during the transaction; the same transaction may be tried again",
            ));
        }
        Ok(self.transaction.commit().await?)
    }
}
