//! A store that works but for one fault.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use portcullis::{
    domain::{
        authorization::AuthorizationProjection,
        catalog::CatalogState,
        connector::Connector,
        convergence::Convergence,
        digest::Sha256Digest,
        error::Error,
        event::{ChangedEvent, OutboxEvent},
        id::{AccountId, BootEpoch, ClientRequestId, ConnectorKey, NodeId, OperationId, WorkerId},
        lease::LeaseToken,
        operation::{Operation, OperationScope},
        release::Release,
        revision::Revision,
        snapshot::{ScopedSnapshot, Snapshot},
    },
    ports::{CleanupRequest, CleanupResult, ConvergenceLease, OperationLease, Store, Tx},
    store::contract::{Opened, StoreFactory},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A transaction that is dropped is committed.
    CommitsWhatIsDropped,
    /// A claim takes away a lease that is held.
    ClaimsWhatIsHeld,
    /// Events go nowhere.
    LosesEvents,
    /// A save does not look at owner and token.
    SavesUnderAnyToken,
    /// An outcome of a convergence does not look at its lease.
    FinishesUnderAnyLease,
    /// A scoped snapshot has everybody's operations.
    ShowsEverybodysOperations,
    /// A cleanup takes as much as it likes.
    CleansWithoutBounds,
    /// The revision of an account's truth has no none.
    TakesNoneForZero,
    /// Settings are never answered.
    Hangs,
    /// The database is not removed.
    StaysBehind,
}

pub(super) struct FaultyDatabase(pub(super) Arc<dyn StoreFactory>, pub(super) Fault);

#[async_trait]
impl StoreFactory for FaultyDatabase {
    async fn open(&self, node: &NodeId) -> Result<Opened, Error> {
        let Opened { store, ledger } = self.0.open(node).await?;
        Ok(Opened { store: Arc::new(FaultyStore(store, self.1)), ledger })
    }

    fn advance_clock(&self, by: Duration) {
        self.0.advance_clock(by);
    }

    async fn remove(&self) -> Result<(), Error> {
        self.0.remove().await?;
        match self.1 {
            Fault::StaysBehind => Err(Error::unavailable("it is still there")),
            _ => Ok(()),
        }
    }
}

struct FaultyStore(Arc<dyn Store>, Fault);

struct FaultyTx(Option<Box<dyn Tx>>, Fault);

impl FaultyTx {
    fn inner(&mut self) -> &mut dyn Tx {
        &mut **self.0.as_mut().expect("it is there until the commit")
    }
}

impl Drop for FaultyTx {
    fn drop(&mut self) {
        if let Some(tx) = self.0.take()
            && self.1 == Fault::CommitsWhatIsDropped
        {
            tokio::spawn(tx.commit());
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.changes()
    }

    async fn begin(&self) -> Result<Box<dyn Tx>, Error> {
        Ok(Box::new(FaultyTx(Some(self.0.begin().await?), self.1)))
    }

    async fn snapshot(&self) -> Result<Snapshot, Error> {
        self.0.snapshot().await
    }

    async fn scoped_snapshot(&self, scope: &OperationScope) -> Result<ScopedSnapshot, Error> {
        let mut snapshot = self.0.scoped_snapshot(scope).await?;
        if self.1 == Fault::ShowsEverybodysOperations {
            snapshot.market.operations = self.0.snapshot().await?.operations;
        }
        Ok(snapshot)
    }

    async fn connector(&self, key: &ConnectorKey) -> Result<Option<Connector>, Error> {
        self.0.connector(key).await
    }

    async fn authorization_projection(
        &self,
        account: &AccountId,
        key: &ConnectorKey,
    ) -> Result<Option<AuthorizationProjection>, Error> {
        self.0.authorization_projection(account, key).await
    }

    async fn open_authorizations(&self, scope: &OperationScope) -> Result<Vec<Operation>, Error> {
        self.0.open_authorizations(scope).await
    }

    async fn operation(&self, id: &OperationId) -> Result<Option<Operation>, Error> {
        self.0.operation(id).await
    }

    async fn recoverable_operations(&self) -> Result<Vec<Operation>, Error> {
        self.0.recoverable_operations().await
    }

    async fn installed_release(
        &self,
        key: &ConnectorKey,
        digest: &Sha256Digest,
    ) -> Result<Option<Release>, Error> {
        self.0.installed_release(key, digest).await
    }

    async fn convergence(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<Option<Convergence>, Error> {
        self.0.convergence(scope, key).await
    }

    async fn convergences(&self, scope: &OperationScope) -> Result<Vec<Convergence>, Error> {
        self.0.convergences(scope).await
    }

    async fn due_convergences(
        &self,
        scope: &OperationScope,
        boot_epoch: &BootEpoch,
        limit: u32,
    ) -> Result<Vec<Convergence>, Error> {
        self.0.due_convergences(scope, boot_epoch, limit).await
    }

    async fn claim_operation(
        &self,
        id: &OperationId,
        owner: &WorkerId,
        duration: Duration,
    ) -> Result<Option<Operation>, Error> {
        if self.1 == Fault::ClaimsWhatIsHeld
            && let Some(held) = self.0.operation(id).await?.filter(Operation::is_active)
            && let Some(lease) = held.lease
        {
            let lease = OperationLease { operation_id: id.clone(), owner: lease.owner, token: lease.token };
            self.0.release_operation(&lease).await?;
        }
        self.0.claim_operation(id, owner, duration).await
    }

    async fn renew_operation(&self, lease: &OperationLease, duration: Duration) -> Result<(), Error> {
        self.0.renew_operation(lease, duration).await
    }

    async fn release_operation(&self, lease: &OperationLease) -> Result<(), Error> {
        self.0.release_operation(lease).await
    }

    async fn claim_convergence(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
        boot_epoch: &BootEpoch,
        owner: &WorkerId,
        duration: Duration,
    ) -> Result<Option<Convergence>, Error> {
        self.0.claim_convergence(scope, key, boot_epoch, owner, duration).await
    }

    async fn renew_convergence(&self, lease: &ConvergenceLease, duration: Duration) -> Result<(), Error> {
        self.0.renew_convergence(lease, duration).await
    }

    async fn release_convergence(&self, lease: &ConvergenceLease) -> Result<(), Error> {
        self.0.release_convergence(lease).await
    }

    async fn pending_events(&self, limit: u32) -> Result<Vec<OutboxEvent>, Error> {
        self.0.pending_events(limit).await
    }

    async fn mark_published(&self, sequence: i64) -> Result<(), Error> {
        self.0.mark_published(sequence).await
    }

    async fn clean_up(&self, request: &CleanupRequest) -> Result<CleanupResult, Error> {
        let mut request = *request;
        if self.1 == Fault::CleansWithoutBounds && (1..=500).contains(&request.batch) {
            request.batch = 500;
        }
        self.0.clean_up(&request).await
    }

    async fn setting(&self, name: &str) -> Result<Option<String>, Error> {
        if self.1 == Fault::Hangs {
            std::future::pending::<()>().await;
        }
        self.0.setting(name).await
    }

    async fn set_setting(&self, name: &str, value: &str) -> Result<(), Error> {
        self.0.set_setting(name, value).await
    }
}

#[async_trait]
impl Tx for FaultyTx {
    fn revision(&self) -> Revision {
        self.0.as_ref().expect("it is there until the commit").revision()
    }

    fn advance_revision(&mut self) -> Revision {
        self.inner().advance_revision()
    }

    async fn connectors(&mut self) -> Result<Vec<Connector>, Error> {
        self.inner().connectors().await
    }

    async fn connector(&mut self, key: &ConnectorKey) -> Result<Option<Connector>, Error> {
        self.inner().connector(key).await
    }

    async fn save_connector(&mut self, connector: &Connector) -> Result<(), Error> {
        self.inner().save_connector(connector).await
    }

    async fn delete_connector(&mut self, key: &ConnectorKey) -> Result<(), Error> {
        self.inner().delete_connector(key).await
    }

    async fn operation(&mut self, id: &OperationId) -> Result<Option<Operation>, Error> {
        self.inner().operation(id).await
    }

    async fn operation_by_client_request(
        &mut self,
        owner: Option<&AccountId>,
        id: &ClientRequestId,
    ) -> Result<Option<Operation>, Error> {
        self.inner().operation_by_client_request(owner, id).await
    }

    async fn active_operation_in_lane(
        &mut self,
        lane: Option<&ConnectorKey>,
    ) -> Result<Option<Operation>, Error> {
        self.inner().active_operation_in_lane(lane).await
    }

    async fn save_operation(&mut self, operation: &Operation) -> Result<(), Error> {
        let mut operation = operation.clone();
        if self.1 == Fault::SavesUnderAnyToken {
            (operation.lease, operation.lease_token) = (None, LeaseToken(0));
        }
        self.inner().save_operation(&operation).await
    }

    async fn open_authorizations(&mut self, scope: &OperationScope) -> Result<Vec<Operation>, Error> {
        self.inner().open_authorizations(scope).await
    }

    async fn authorization_projection(
        &mut self,
        account: &AccountId,
        key: &ConnectorKey,
    ) -> Result<Option<AuthorizationProjection>, Error> {
        self.inner().authorization_projection(account, key).await
    }

    async fn authorization_projections(
        &mut self,
        account: &AccountId,
    ) -> Result<Vec<AuthorizationProjection>, Error> {
        self.inner().authorization_projections(account).await
    }

    async fn save_authorization_projection(
        &mut self,
        projection: &AuthorizationProjection,
    ) -> Result<(), Error> {
        self.inner().save_authorization_projection(projection).await
    }

    async fn authorization_revision(&mut self, account: &AccountId) -> Result<Option<u64>, Error> {
        let revision = self.inner().authorization_revision(account).await?;
        Ok(if self.1 == Fault::TakesNoneForZero { Some(revision.unwrap_or(0)) } else { revision })
    }

    async fn save_authorization_revision(&mut self, account: &AccountId, revision: u64) -> Result<(), Error> {
        self.inner().save_authorization_revision(account, revision).await
    }

    async fn save_source_revision(&mut self, source_revision: &str) -> Result<(), Error> {
        self.inner().save_source_revision(source_revision).await
    }

    async fn set_catalog_state(&mut self, state: CatalogState) -> Result<(), Error> {
        self.inner().set_catalog_state(state).await
    }

    async fn convergence(
        &mut self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<Option<Convergence>, Error> {
        self.inner().convergence(scope, key).await
    }

    async fn save_convergence(&mut self, convergence: &Convergence) -> Result<(), Error> {
        self.inner().save_convergence(convergence).await
    }

    async fn save_convergence_leased(
        &mut self,
        convergence: &Convergence,
        lease: &ConvergenceLease,
    ) -> Result<(), Error> {
        if self.1 == Fault::FinishesUnderAnyLease {
            return self.inner().save_convergence(convergence).await;
        }
        self.inner().save_convergence_leased(convergence, lease).await
    }

    async fn delete_convergence(&mut self, scope: &OperationScope, key: &ConnectorKey) -> Result<(), Error> {
        self.inner().delete_convergence(scope, key).await
    }

    async fn delete_connector_state(&mut self, key: &ConnectorKey) -> Result<(), Error> {
        self.inner().delete_connector_state(key).await
    }

    async fn enqueue_changed(&mut self, event: &ChangedEvent) -> Result<(), Error> {
        match self.1 {
            Fault::LosesEvents => Ok(()),
            _ => self.inner().enqueue_changed(event).await,
        }
    }

    async fn commit(mut self: Box<Self>) -> Result<(), Error> {
        self.0.take().expect("it is there until the commit").commit().await
    }
}
