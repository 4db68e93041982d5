//! The database, as the market sees it (spec B.1, E).

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::domain::{
    authorization::AuthorizationProjection,
    catalog::CatalogState,
    connector::Connector,
    convergence::Convergence,
    digest::Sha256Digest,
    error::Error,
    event::{ChangedEvent, OutboxEvent},
    id::{AccountId, BootEpoch, ClientRequestId, ConnectorKey, OperationId, WorkerId},
    lease::LeaseToken,
    operation::{Operation, OperationScope},
    release::Release,
    revision::Revision,
    snapshot::{ScopedSnapshot, Snapshot},
    timestamp::Timestamp,
};

/// A claim of an operation that a worker holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationLease {
    /// The operation.
    pub operation_id: OperationId,
    /// Who holds it.
    pub owner: WorkerId,
    /// The token of the claim.
    pub token: LeaseToken,
}

/// A claim of a convergence that a worker holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvergenceLease {
    /// For which account.
    pub scope: OperationScope,
    /// The connector.
    pub connector_key: ConnectorKey,
    /// Who holds it.
    pub owner: WorkerId,
    /// The token of the claim.
    pub token: LeaseToken,
    /// The intent that was claimed.
    pub desired_generation: u64,
}

/// What may be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupRequest {
    /// Ended operations that last changed at or before this moment.
    pub operations_ended_by: Timestamp,
    /// Events that were published at or before this moment.
    pub events_published_by: Timestamp,
    /// At most so many of each; 1 to 500.
    pub batch: u32,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupResult {
    /// Ended operations.
    pub operations: u64,
    /// Published events.
    pub events: u64,
}

/// The database. A missing row is `None`; every time that a lease is judged by is
/// the database's own.
#[async_trait]
pub trait Store: Send + Sync {
    /// Opens a write transaction; nothing of it shows before [`Tx::commit`], and
    /// dropping it undoes it.
    async fn begin(&self) -> Result<Box<dyn Tx>, Error>;

    /// Everything at one revision. Operations without those of kind
    /// `reconcile_runtime`.
    async fn snapshot(&self) -> Result<Snapshot, Error>;

    /// Everything that concerns `scope`, at one revision: its own public operations,
    /// its authorizations, and its convergences on this node (spec E.3).
    async fn scoped_snapshot(&self, scope: &OperationScope) -> Result<ScopedSnapshot, Error>;

    /// One connector.
    async fn connector(&self, key: &ConnectorKey) -> Result<Option<Connector>, Error>;

    /// One account's authorization for a connector.
    async fn authorization_projection(
        &self,
        account: &AccountId,
        key: &ConnectorKey,
    ) -> Result<Option<AuthorizationProjection>, Error>;

    /// The operations of `scope` whose authorization attempt is still open, by id
    /// (see [`Operation::open_session`]).
    async fn open_authorizations(&self, scope: &OperationScope) -> Result<Vec<Operation>, Error>;

    /// One operation, whoever owns it.
    async fn operation(&self, id: &OperationId) -> Result<Option<Operation>, Error>;

    /// All operations that have not ended, by id.
    async fn recoverable_operations(&self) -> Result<Vec<Operation>, Error>;

    /// The release of an installed or candidate digest, from evidence that
    /// outlives the operation (spec E.5).
    async fn installed_release(
        &self,
        key: &ConnectorKey,
        digest: &Sha256Digest,
    ) -> Result<Option<Release>, Error>;

    /// The convergence of a connector on this node.
    async fn convergence(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<Option<Convergence>, Error>;

    /// All convergences of a scope on this node, by key.
    async fn convergences(&self, scope: &OperationScope) -> Result<Vec<Convergence>, Error>;

    /// Convergences that want work now, by next attempt and key; at most `limit`,
    /// and never more than 100.
    async fn due_convergences(
        &self,
        scope: &OperationScope,
        boot_epoch: &BootEpoch,
        limit: u32,
    ) -> Result<Vec<Convergence>, Error>;

    /// Claims an active operation whose lease is free or over, and increments its
    /// token. None when it has ended or is held, by the same owner included.
    async fn claim_operation(
        &self,
        id: &OperationId,
        owner: &WorkerId,
        duration: Duration,
    ) -> Result<Option<Operation>, Error>;

    /// Extends a lease that is still held and not over.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::LeaseLost`] otherwise.
    async fn renew_operation(&self, lease: &OperationLease, duration: Duration) -> Result<(), Error>;

    /// Gives a lease back; nothing when it is no longer held.
    async fn release_operation(&self, lease: &OperationLease) -> Result<(), Error>;

    /// Claims a convergence that is due; none when it is not, or is held.
    async fn claim_convergence(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
        boot_epoch: &BootEpoch,
        owner: &WorkerId,
        duration: Duration,
    ) -> Result<Option<Convergence>, Error>;

    /// As [`renew_operation`](Self::renew_operation); a changed intent loses the lease too.
    async fn renew_convergence(&self, lease: &ConvergenceLease, duration: Duration) -> Result<(), Error>;

    /// As [`release_operation`](Self::release_operation).
    async fn release_convergence(&self, lease: &ConvergenceLease) -> Result<(), Error>;

    /// Events that were not yet published, in order; at most `limit`, and never
    /// more than 500.
    async fn pending_events(&self, limit: u32) -> Result<Vec<OutboxEvent>, Error>;

    /// Notes that an event was published; the first note stands.
    async fn mark_published(&self, sequence: i64) -> Result<(), Error>;

    /// Forgets one batch of what has ended.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::InvalidRequest`] for a batch outside 1 to 500.
    async fn clean_up(&self, request: &CleanupRequest) -> Result<CleanupResult, Error>;

    /// A value of the daemon itself, such as the node id.
    async fn setting(&self, name: &str) -> Result<Option<String>, Error>;

    /// Stores such a value.
    async fn set_setting(&self, name: &str, value: &str) -> Result<(), Error>;

    /// Changes when something was committed that others may want to see (whatever
    /// enqueued an event), by whomever this database tells of. A hint and never the
    /// truth: it may come for nothing, and a lost one must cost latency alone. Ends
    /// with the store.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// A write transaction.
///
/// Any method may answer [`crate::domain::error::ErrorCode::SerializationConflict`]:
/// then the whole transaction is tried again.
#[async_trait]
pub trait Tx: Send {
    /// The revision, as advanced so far.
    fn revision(&self) -> Revision;

    /// Advances the revision.
    fn advance_revision(&mut self) -> Revision;

    /// All connectors, by key.
    async fn connectors(&mut self) -> Result<Vec<Connector>, Error>;

    /// One connector.
    async fn connector(&mut self, key: &ConnectorKey) -> Result<Option<Connector>, Error>;

    /// Writes a connector.
    async fn save_connector(&mut self, connector: &Connector) -> Result<(), Error>;

    /// Removes a connector.
    async fn delete_connector(&mut self, key: &ConnectorKey) -> Result<(), Error>;

    /// One operation.
    async fn operation(&mut self, id: &OperationId) -> Result<Option<Operation>, Error>;

    /// The operation that a caller's own id stands for.
    async fn operation_by_client_request(
        &mut self,
        owner: Option<&AccountId>,
        id: &ClientRequestId,
    ) -> Result<Option<Operation>, Error>;

    /// The active operation in exactly this lane; the catalog's when none.
    async fn active_operation_in_lane(
        &mut self,
        lane: Option<&ConnectorKey>,
    ) -> Result<Option<Operation>, Error>;

    /// Writes an operation and keeps release evidence in step (spec E.4, E.5).
    /// Normalizes its ownership first. An authorization attempt that is stored as
    /// resolved stays as it is stored (spec A.8). An operation that ends under a
    /// lease ends the lease.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::LeaseLost`] when it was claimed and its
    /// owner or token is no longer the stored one;
    /// [`crate::domain::error::ErrorCode::OperationInProgress`] when its lane is taken.
    async fn save_operation(&mut self, operation: &Operation) -> Result<(), Error>;

    /// The operations of `scope` whose authorization attempt is still open, by id.
    async fn open_authorizations(&mut self, scope: &OperationScope) -> Result<Vec<Operation>, Error>;

    /// One account's authorization for a connector.
    async fn authorization_projection(
        &mut self,
        account: &AccountId,
        key: &ConnectorKey,
    ) -> Result<Option<AuthorizationProjection>, Error>;

    /// All authorizations of an account, by connector.
    async fn authorization_projections(
        &mut self,
        account: &AccountId,
    ) -> Result<Vec<AuthorizationProjection>, Error>;

    /// Writes an account's authorization for a connector.
    async fn save_authorization_projection(
        &mut self,
        projection: &AuthorizationProjection,
    ) -> Result<(), Error>;

    /// The revision of the account's truth that was last applied; none before the first.
    async fn authorization_revision(&mut self, account: &AccountId) -> Result<Option<u64>, Error>;

    /// Notes that revision.
    async fn save_authorization_revision(&mut self, account: &AccountId, revision: u64) -> Result<(), Error>;

    /// Notes the source's revision.
    async fn save_source_revision(&mut self, source_revision: &str) -> Result<(), Error>;

    /// Notes how far the catalog can be trusted.
    async fn set_catalog_state(&mut self, state: CatalogState) -> Result<(), Error>;

    /// The convergence of a connector on this node.
    async fn convergence(
        &mut self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<Option<Convergence>, Error>;

    /// Writes a new intent.
    async fn save_convergence(&mut self, convergence: &Convergence) -> Result<(), Error>;

    /// Writes the outcome of work done under `lease`.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::LeaseLost`] when owner, token or intent
    /// have changed or the lease is over.
    async fn save_convergence_leased(
        &mut self,
        convergence: &Convergence,
        lease: &ConvergenceLease,
    ) -> Result<(), Error>;

    /// Removes the convergence of a connector, in this scope, on this node.
    async fn delete_convergence(&mut self, scope: &OperationScope, key: &ConnectorKey) -> Result<(), Error>;

    /// Forgets what a connector stored of its own, for every account and connection.
    async fn delete_connector_state(&mut self, key: &ConnectorKey) -> Result<(), Error>;

    /// Announces a change: one event for the machine and, where the operation
    /// belongs to an account, one for its owner before it (spec E.7).
    async fn enqueue_changed(&mut self, event: &ChangedEvent) -> Result<(), Error>;

    /// Makes everything durable at once, the revision included.
    async fn commit(self: Box<Self>) -> Result<(), Error>;
}
