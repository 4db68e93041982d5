//! A store that a worker can die at: it counts what is written and, when told, the
//! worker is dead right before or right after one of the writes. From then on no call
//! of this worker's ever returns, as if its process were gone; the database stays.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use portcullis::{
    domain::{
        authorization::AuthorizationProjection,
        connector::Connector,
        convergence::Convergence,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        event::OutboxEvent,
        id::{AccountId, BootEpoch, ConnectorKey, OperationId, WorkerId},
        lease::LeaseToken,
        operation::{Operation, OperationScope},
        release::Release,
        snapshot::{ScopedSnapshot, Snapshot},
    },
    ports::{CleanupRequest, CleanupResult, Clock as _, ConvergenceLease, OperationLease, Store, Tx},
};
use tokio::sync::Notify;

use super::mortal_tx::MortalTx;
use crate::market::fakes::FakeClock;

/// What happens at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// The worker is dead before it.
    Before,
    /// The worker is dead after it.
    After,
    /// It is refused, as a transaction is that met another one.
    Conflict,
    /// It is done, and its answer is lost on the way.
    AnswerLost,
    /// It is done, and the worker stands still until it is told to go on.
    Hold,
}

#[derive(Default)]
struct Life {
    dead: bool,
    /// The blow, and how many writes come before it.
    fuse: Option<(u32, Blow)>,
    /// The convergence that was last seen and could not be worked on, and how often.
    stuck: Option<(ConnectorKey, LeaseToken, u32)>,
}

/// The store of one worker, which ends with it.
#[derive(Clone)]
pub(crate) struct Mortal {
    store: Arc<dyn Store>,
    pub(super) clock: Arc<FakeClock>,
    pub(super) owner: WorkerId,
    boot_epoch: BootEpoch,
    life: Arc<Mutex<Life>>,
    died: Arc<Notify>,
    holding: Arc<Notify>,
    resumed: Arc<Notify>,
}

impl Mortal {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<FakeClock>,
        owner: WorkerId,
        boot_epoch: BootEpoch,
    ) -> Self {
        Self {
            store,
            clock,
            owner,
            boot_epoch,
            life: Arc::default(),
            died: Arc::default(),
            holding: Arc::default(),
            resumed: Arc::default(),
        }
    }

    /// Strikes at the write after `writes` others.
    pub(crate) fn arm(&self, writes: u32, blow: Blow) {
        self.with(|life| life.fuse = Some((writes, blow)));
    }

    /// Strikes no more.
    pub(crate) fn disarm(&self) {
        self.with(|life| life.fuse = None);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.with(|life| life.dead)
    }

    pub(crate) fn kill(&self) {
        self.with(|life| life.dead = true);
        self.died.notify_waiters();
    }

    /// Returns once the worker is dead.
    pub(crate) async fn death(&self) {
        let mut died = std::pin::pin!(self.died.notified());
        died.as_mut().enable();
        if !self.is_dead() {
            died.await;
        }
    }

    /// Returns once the worker stands still.
    pub(crate) async fn holding(&self) {
        self.holding.notified().await;
    }

    /// Lets the worker go on.
    pub(crate) fn resume(&self) {
        self.resumed.notify_one();
    }

    fn with<T>(&self, look: impl FnOnce(&mut Life) -> T) -> T {
        look(&mut self.life.lock().expect("nobody panicked while looking at it"))
    }

    /// Never returns to the dead.
    async fn alive(&self) {
        if self.is_dead() {
            pending::<()>().await;
        }
    }

    /// The blow that falls on the write which comes now.
    fn struck(&self) -> Option<Blow> {
        self.with(|life| match &mut life.fuse {
            Some((0, blow)) => {
                let blow = *blow;
                life.fuse = None;
                Some(blow)
            }
            Some((writes, _)) => {
                *writes -= 1;
                None
            }
            None => None,
        })
    }

    /// One write, with whatever befalls it.
    pub(super) async fn write<T>(&self, write: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.alive().await;
        match self.struck() {
            None => write.await,
            Some(Blow::Before) => {
                drop(write);
                self.kill();
                pending().await
            }
            Some(Blow::After) => {
                let _ = write.await;
                self.kill();
                pending().await
            }
            Some(Blow::Conflict) => Err(Error::new(
                ErrorCode::SerializationConflict,
                "scripted: another transaction met this one",
            )),
            Some(Blow::Hold) => {
                let done = write.await;
                self.holding.notify_one();
                self.resumed.notified().await;
                self.alive().await;
                done
            }
            Some(Blow::AnswerLost) => {
                write.await?;
                Err(Error::unavailable("scripted: the answer of the database was lost"))
            }
        }
    }

    /// Whoever waits for a convergence that backs off or that another one holds looks
    /// at it again and again: the second look makes the time pass.
    fn looked_at(&self, row: Option<&Convergence>) {
        let now = self.clock.now();
        let idle =
            row.filter(|row| !row.is_converged(&self.boot_epoch) && !row.is_due(&self.boot_epoch, now));
        self.with(|life| {
            let Some(row) = idle else {
                life.stuck = None;
                return;
            };
            let (key, token) = (row.desired.connector_key.clone(), row.lease_token);
            let looks = match &life.stuck {
                Some((seen, at, looks)) if *seen == key && *at == token => looks + 1,
                _ => 1,
            };
            if looks >= 2 {
                let held = row.lease.as_ref().map_or(now, |lease| lease.expires_at);
                self.clock.advance(held.max(row.next_attempt_at).since(now) + Duration::from_millis(1));
            }
            life.stuck = Some((key, token, looks));
        });
    }
}

#[async_trait]
impl Store for Mortal {
    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.store.changes()
    }

    async fn begin(&self) -> Result<Box<dyn Tx>, Error> {
        self.alive().await;
        let tx = self.store.begin().await?;
        self.alive().await;
        Ok(Box::new(MortalTx { life: self.clone(), tx: Some(tx), owed: Vec::new(), told: Vec::new() }))
    }

    async fn snapshot(&self) -> Result<Snapshot, Error> {
        self.alive().await;
        self.store.snapshot().await
    }

    async fn scoped_snapshot(&self, scope: &OperationScope) -> Result<ScopedSnapshot, Error> {
        self.alive().await;
        self.store.scoped_snapshot(scope).await
    }

    async fn connector(&self, key: &ConnectorKey) -> Result<Option<Connector>, Error> {
        self.alive().await;
        self.store.connector(key).await
    }

    async fn authorization_projection(
        &self,
        account: &AccountId,
        key: &ConnectorKey,
    ) -> Result<Option<AuthorizationProjection>, Error> {
        self.alive().await;
        self.store.authorization_projection(account, key).await
    }

    async fn open_authorizations(&self, scope: &OperationScope) -> Result<Vec<Operation>, Error> {
        self.alive().await;
        self.store.open_authorizations(scope).await
    }

    async fn operation(&self, id: &OperationId) -> Result<Option<Operation>, Error> {
        self.alive().await;
        self.store.operation(id).await
    }

    async fn recoverable_operations(&self) -> Result<Vec<Operation>, Error> {
        self.alive().await;
        self.store.recoverable_operations().await
    }

    async fn installed_release(
        &self,
        key: &ConnectorKey,
        digest: &Sha256Digest,
    ) -> Result<Option<Release>, Error> {
        self.alive().await;
        self.store.installed_release(key, digest).await
    }

    async fn convergence(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<Option<Convergence>, Error> {
        self.alive().await;
        let row = self.store.convergence(scope, key).await?;
        self.looked_at(row.as_ref());
        Ok(row)
    }

    async fn convergences(&self, scope: &OperationScope) -> Result<Vec<Convergence>, Error> {
        self.alive().await;
        self.store.convergences(scope).await
    }

    async fn due_convergences(
        &self,
        scope: &OperationScope,
        boot_epoch: &BootEpoch,
        limit: u32,
    ) -> Result<Vec<Convergence>, Error> {
        self.alive().await;
        self.store.due_convergences(scope, boot_epoch, limit).await
    }

    async fn claim_operation(
        &self,
        id: &OperationId,
        owner: &WorkerId,
        duration: Duration,
    ) -> Result<Option<Operation>, Error> {
        self.write(self.store.claim_operation(id, owner, duration)).await
    }

    async fn renew_operation(&self, lease: &OperationLease, duration: Duration) -> Result<(), Error> {
        self.write(self.store.renew_operation(lease, duration)).await
    }

    async fn release_operation(&self, lease: &OperationLease) -> Result<(), Error> {
        self.write(self.store.release_operation(lease)).await
    }

    async fn claim_convergence(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
        boot_epoch: &BootEpoch,
        owner: &WorkerId,
        duration: Duration,
    ) -> Result<Option<Convergence>, Error> {
        self.write(self.store.claim_convergence(scope, key, boot_epoch, owner, duration)).await
    }

    async fn renew_convergence(&self, lease: &ConvergenceLease, duration: Duration) -> Result<(), Error> {
        self.write(self.store.renew_convergence(lease, duration)).await
    }

    async fn release_convergence(&self, lease: &ConvergenceLease) -> Result<(), Error> {
        self.write(self.store.release_convergence(lease)).await
    }

    async fn pending_events(&self, limit: u32) -> Result<Vec<OutboxEvent>, Error> {
        self.alive().await;
        self.store.pending_events(limit).await
    }

    async fn mark_published(&self, sequence: i64) -> Result<(), Error> {
        self.write(self.store.mark_published(sequence)).await
    }

    async fn clean_up(&self, request: &CleanupRequest) -> Result<CleanupResult, Error> {
        self.write(self.store.clean_up(request)).await
    }

    async fn setting(&self, name: &str) -> Result<Option<String>, Error> {
        self.alive().await;
        self.store.setting(name).await
    }

    async fn set_setting(&self, name: &str, value: &str) -> Result<(), Error> {
        self.write(self.store.set_setting(name, value)).await
    }
}
