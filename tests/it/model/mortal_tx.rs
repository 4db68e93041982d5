//! The transactions of a worker that may die in one: then it is undone. Each must
//! announce what it changes, and leave alone what another worker holds.

use std::future::pending;

use async_trait::async_trait;
use portcullis::{
    domain::{
        authorization::AuthorizationProjection,
        catalog::CatalogState,
        connector::Connector,
        convergence::Convergence,
        error::Error,
        event::ChangedEvent,
        id::{AccountId, ClientRequestId, ConnectorKey, OperationId},
        operation::{Operation, OperationScope},
        revision::Revision,
    },
    ports::{Clock as _, ConvergenceLease, Tx},
};

use super::mortal::Mortal;

/// A transaction of a worker that may die in it: then it is undone.
pub(super) struct MortalTx {
    pub(super) life: Mortal,
    pub(super) tx: Option<Box<dyn Tx>>,
    /// Connectors and operations that readers will see changed.
    pub(super) owed: Vec<(Option<ConnectorKey>, Option<OperationId>)>,
    /// What was announced.
    pub(super) told: Vec<ChangedEvent>,
}

impl MortalTx {
    async fn open(&mut self) -> &mut dyn Tx {
        if self.life.is_dead() {
            self.tx = None;
            pending::<()>().await;
        }
        &mut **self.tx.as_mut().expect("an open transaction")
    }

    fn owe(&mut self, key: &ConnectorKey) {
        self.owed.push((Some(key.clone()), None));
    }

    /// Whatever readers will see changed is announced in the transaction that changes it.
    fn settle(&self) {
        let revision = self.still_open().revision();
        for (key, operation) in &self.owed {
            let told = self.told.iter().any(|event| {
                event.revision <= revision
                    && match operation {
                        Some(id) => event.operation_id.as_ref() == Some(id),
                        // One that is about no connector is about all of them.
                        None => event.connector_key.is_none() || event.connector_key == *key,
                    }
            });
            assert!(told, "{key:?} {operation:?} changed and nobody is told: {:?}", self.told);
        }
    }

    fn still_open(&self) -> &dyn Tx {
        &**self.tx.as_ref().expect("an open transaction")
    }
}

#[async_trait]
impl Tx for MortalTx {
    fn revision(&self) -> Revision {
        self.still_open().revision()
    }

    fn advance_revision(&mut self) -> Revision {
        self.tx.as_mut().expect("an open transaction").advance_revision()
    }

    async fn connectors(&mut self) -> Result<Vec<Connector>, Error> {
        self.open().await.connectors().await
    }

    async fn connector(&mut self, key: &ConnectorKey) -> Result<Option<Connector>, Error> {
        self.open().await.connector(key).await
    }

    async fn save_connector(&mut self, connector: &Connector) -> Result<(), Error> {
        self.owe(&connector.key);
        self.open().await.save_connector(connector).await
    }

    async fn delete_connector(&mut self, key: &ConnectorKey) -> Result<(), Error> {
        self.owe(key);
        self.open().await.delete_connector(key).await
    }

    async fn operation(&mut self, id: &OperationId) -> Result<Option<Operation>, Error> {
        self.open().await.operation(id).await
    }

    async fn operation_by_client_request(
        &mut self,
        owner: Option<&AccountId>,
        id: &ClientRequestId,
    ) -> Result<Option<Operation>, Error> {
        self.open().await.operation_by_client_request(owner, id).await
    }

    async fn active_operation_in_lane(
        &mut self,
        lane: Option<&ConnectorKey>,
    ) -> Result<Option<Operation>, Error> {
        self.open().await.active_operation_in_lane(lane).await
    }

    async fn save_operation(&mut self, operation: &Operation) -> Result<(), Error> {
        let shown = |operation: &Operation| (operation.state.clone(), operation.stage, operation.attempt);
        let before = self.open().await.operation(&operation.operation_id).await?;
        let active = before.as_ref().filter(|before| before.is_active());
        let held = active
            .and_then(|before| before.lease.as_ref())
            .filter(|lease| lease.owner != self.life.owner && lease.is_live(self.life.clock.now()));
        assert!(held.is_none(), "{} writes what {held:?} covers: {operation:?}", self.life.owner);
        if before.as_ref().map(shown) != Some(shown(operation)) {
            self.owed.push((None, Some(operation.operation_id.clone())));
        }
        self.open().await.save_operation(operation).await
    }

    async fn open_authorizations(&mut self, scope: &OperationScope) -> Result<Vec<Operation>, Error> {
        self.open().await.open_authorizations(scope).await
    }

    async fn authorization_projection(
        &mut self,
        account: &AccountId,
        key: &ConnectorKey,
    ) -> Result<Option<AuthorizationProjection>, Error> {
        self.open().await.authorization_projection(account, key).await
    }

    async fn authorization_projections(
        &mut self,
        account: &AccountId,
    ) -> Result<Vec<AuthorizationProjection>, Error> {
        self.open().await.authorization_projections(account).await
    }

    async fn save_authorization_projection(
        &mut self,
        projection: &AuthorizationProjection,
    ) -> Result<(), Error> {
        let (account, key) = (&projection.account_id, &projection.connector_key);
        let before = self.open().await.authorization_projection(account, key).await?;
        if before.is_none_or(|before| before.differs_publicly(projection)) {
            self.owe(key);
        }
        self.open().await.save_authorization_projection(projection).await
    }

    async fn authorization_revision(&mut self, account: &AccountId) -> Result<Option<u64>, Error> {
        self.open().await.authorization_revision(account).await
    }

    async fn save_authorization_revision(&mut self, account: &AccountId, revision: u64) -> Result<(), Error> {
        self.open().await.save_authorization_revision(account, revision).await
    }

    async fn save_source_revision(&mut self, source_revision: &str) -> Result<(), Error> {
        self.open().await.save_source_revision(source_revision).await
    }

    async fn set_catalog_state(&mut self, state: CatalogState) -> Result<(), Error> {
        self.open().await.set_catalog_state(state).await
    }

    async fn convergence(
        &mut self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<Option<Convergence>, Error> {
        self.open().await.convergence(scope, key).await
    }

    async fn save_convergence(&mut self, convergence: &Convergence) -> Result<(), Error> {
        self.owe(&convergence.desired.connector_key);
        self.open().await.save_convergence(convergence).await
    }

    async fn save_convergence_leased(
        &mut self,
        convergence: &Convergence,
        lease: &ConvergenceLease,
    ) -> Result<(), Error> {
        self.owe(&lease.connector_key);
        self.open().await.save_convergence_leased(convergence, lease).await
    }

    async fn delete_convergence(&mut self, scope: &OperationScope, key: &ConnectorKey) -> Result<(), Error> {
        self.owe(key);
        self.open().await.delete_convergence(scope, key).await
    }

    async fn delete_connector_state(&mut self, key: &ConnectorKey) -> Result<(), Error> {
        self.open().await.delete_connector_state(key).await
    }

    async fn enqueue_changed(&mut self, event: &ChangedEvent) -> Result<(), Error> {
        self.told.push(event.clone());
        self.open().await.enqueue_changed(event).await
    }

    async fn commit(mut self: Box<Self>) -> Result<(), Error> {
        self.open().await;
        self.settle();
        let tx = self.tx.take().expect("an open transaction");
        self.life.clone().write(tx.commit()).await
    }
}
