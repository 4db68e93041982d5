//! [`SqlStore`]: the store port, passed on to the file of each table family.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{Any, AnyConnection, AnyPool, Transaction, pool::PoolConnection};
use tokio::sync::watch;

use super::{
    authorizations,
    changes::Changes,
    cleanup, connectors,
    convergences::{self, Claim},
    dialect::Dialect,
    metadata::{self, Metadata},
    operations, outbox, releases, settings, snapshot,
    tx::SqlTx,
};
use crate::{
    domain::{
        authorization::AuthorizationProjection,
        connector::Connector,
        convergence::Convergence,
        digest::Sha256Digest,
        error::Error,
        event::OutboxEvent,
        id::{AccountId, BootEpoch, ConnectorKey, NodeId, OperationId, WorkerId},
        operation::{Operation, OperationScope},
        release::Release,
        snapshot::{ScopedSnapshot, Snapshot},
        timestamp::Timestamp,
    },
    ports::{CleanupRequest, CleanupResult, Clock, ConvergenceLease, OperationLease, Store, Tx},
};

/// A database, SQLite or PostgreSQL. Clones share its connections.
///
/// On SQLite one connection writes, and transactions take their turn in order; a
/// few others read meanwhile. On PostgreSQL a few write, and those of all daemons take
/// turns. A database in memory has one connection for both, so
/// reading waits there for a transaction that is open.
#[derive(Clone)]
pub struct SqlStore {
    pub(super) writer: AnyPool,
    pub(super) reader: AnyPool,
    pub(super) dialect: Dialect,
    pub(super) node_id: NodeId,
    pub(super) lease_clock: Option<Arc<dyn Clock>>,
    pub(super) changes: Arc<Changes>,
}

impl std::fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlStore").field("dialect", &self.dialect).field("node_id", &self.node_id).finish()
    }
}

impl SqlStore {
    /// The same database, seen from another node.
    #[must_use]
    pub fn for_node(&self, node_id: NodeId) -> Self {
        Self { node_id, ..self.clone() }
    }

    /// Ends all connections; whoever still uses one is waited for.
    pub async fn close(&self) {
        self.changes.stop();
        self.reader.close().await;
        self.writer.close().await;
    }

    pub(super) async fn reading(&self) -> Result<PoolConnection<Any>, Error> {
        Ok(self.reader.acquire().await?)
    }

    /// A connection for one statement that writes and commits by itself.
    pub(super) async fn writing(&self) -> Result<PoolConnection<Any>, Error> {
        Ok(self.writer.acquire().await?)
    }

    /// A transaction that writes, in its turn, and the counters as they are in it.
    pub(super) async fn write_transaction(&self) -> Result<(Transaction<'static, Any>, Metadata), Error> {
        let mut transaction = self.writer.begin_with(self.dialect.begin_write()).await?;
        let metadata = metadata::take_turn(&mut transaction, self.dialect).await?;
        Ok((transaction, metadata))
    }

    /// What a statement over the time is given.
    fn time(&self) -> (Dialect, Option<Timestamp>) {
        (self.dialect, self.dialect.given(self.lease_clock.as_deref()))
    }

    async fn now(&self, conn: &mut AnyConnection) -> Result<Timestamp, Error> {
        self.dialect.now(conn, self.lease_clock.as_deref()).await
    }
}

#[async_trait]
impl Store for SqlStore {
    async fn begin(&self) -> Result<Box<dyn Tx>, Error> {
        Ok(Box::new(SqlTx::begin(self).await?))
    }

    async fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut transaction = self.reader.begin_with(self.dialect.begin_read()).await?;
        let snapshot = snapshot::read(&mut transaction).await?;
        transaction.commit().await?;
        Ok(snapshot)
    }

    async fn scoped_snapshot(&self, scope: &OperationScope) -> Result<ScopedSnapshot, Error> {
        let mut transaction = self.reader.begin_with(self.dialect.begin_read()).await?;
        let snapshot = snapshot::read_scoped(&mut transaction, &self.node_id, scope).await?;
        transaction.commit().await?;
        Ok(snapshot)
    }

    async fn authorization_projection(
        &self,
        account: &AccountId,
        key: &ConnectorKey,
    ) -> Result<Option<AuthorizationProjection>, Error> {
        authorizations::get(&mut *self.reading().await?, account, key).await
    }

    async fn open_authorizations(&self, scope: &OperationScope) -> Result<Vec<Operation>, Error> {
        operations::with_open_session(&mut *self.reading().await?, scope.account_id.as_ref()).await
    }

    async fn connector(&self, key: &ConnectorKey) -> Result<Option<Connector>, Error> {
        connectors::get(&mut *self.reading().await?, key).await
    }

    async fn operation(&self, id: &OperationId) -> Result<Option<Operation>, Error> {
        operations::get(&mut *self.reading().await?, id).await
    }

    async fn recoverable_operations(&self) -> Result<Vec<Operation>, Error> {
        operations::active(&mut *self.reading().await?).await
    }

    async fn installed_release(
        &self,
        key: &ConnectorKey,
        digest: &Sha256Digest,
    ) -> Result<Option<Release>, Error> {
        releases::get(&mut *self.reading().await?, key, digest).await
    }

    async fn convergence(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<Option<Convergence>, Error> {
        convergences::get(&mut *self.reading().await?, &self.node_id, scope, key).await
    }

    async fn convergences(&self, scope: &OperationScope) -> Result<Vec<Convergence>, Error> {
        convergences::list(&mut *self.reading().await?, &self.node_id, scope).await
    }

    async fn due_convergences(
        &self,
        scope: &OperationScope,
        boot_epoch: &BootEpoch,
        limit: u32,
    ) -> Result<Vec<Convergence>, Error> {
        let mut conn = self.reading().await?;
        let now = self.now(&mut conn).await?;
        convergences::due(&mut conn, &self.node_id, scope, boot_epoch, now, limit).await
    }

    async fn claim_operation(
        &self,
        id: &OperationId,
        owner: &WorkerId,
        duration: Duration,
    ) -> Result<Option<Operation>, Error> {
        operations::claim(&mut *self.writing().await?, id, owner, duration, self.time()).await
    }

    async fn renew_operation(&self, lease: &OperationLease, duration: Duration) -> Result<(), Error> {
        let mut conn = self.writing().await?;
        let now = self.now(&mut conn).await?;
        operations::renew(&mut conn, lease, now.plus(duration), now).await
    }

    async fn release_operation(&self, lease: &OperationLease) -> Result<(), Error> {
        operations::release(&mut *self.writing().await?, lease).await
    }

    async fn claim_convergence(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
        boot_epoch: &BootEpoch,
        owner: &WorkerId,
        duration: Duration,
    ) -> Result<Option<Convergence>, Error> {
        let claim = Claim { scope, key, boot_epoch, owner, duration };
        convergences::claim(&mut *self.writing().await?, &self.node_id, &claim, self.time()).await
    }

    async fn renew_convergence(&self, lease: &ConvergenceLease, duration: Duration) -> Result<(), Error> {
        let mut conn = self.writing().await?;
        let now = self.now(&mut conn).await?;
        convergences::renew(&mut conn, &self.node_id, lease, now.plus(duration), now).await
    }

    async fn release_convergence(&self, lease: &ConvergenceLease) -> Result<(), Error> {
        convergences::release(&mut *self.writing().await?, &self.node_id, lease).await
    }

    async fn pending_events(&self, limit: u32) -> Result<Vec<OutboxEvent>, Error> {
        outbox::pending(&mut *self.reading().await?, limit).await
    }

    async fn mark_published(&self, sequence: i64) -> Result<(), Error> {
        let mut conn = self.writing().await?;
        let now = self.now(&mut conn).await?;
        outbox::mark(&mut conn, sequence, now).await
    }

    async fn clean_up(&self, request: &CleanupRequest) -> Result<CleanupResult, Error> {
        cleanup::check(request)?;
        let (mut transaction, _) = self.write_transaction().await?;
        let result = cleanup::run(&mut transaction, request).await?;
        transaction.commit().await?;
        Ok(result)
    }

    async fn setting(&self, name: &str) -> Result<Option<String>, Error> {
        settings::get(&mut *self.reading().await?, name).await
    }

    async fn set_setting(&self, name: &str, value: &str) -> Result<(), Error> {
        settings::set(&mut *self.writing().await?, name, value).await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
