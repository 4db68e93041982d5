//! The commands that begin authorizations in this process now: one at a time for an
//! account and a connector, and the running one can be stopped from outside.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use crate::{
    domain::{
        id::{AccountId, ClientRequestId, ConnectorKey},
        operation::OperationScope,
    },
    ports::ReplacementPolicy,
};

/// An account (none when signed out) and a connector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lane(Option<AccountId>, ConnectorKey);

impl Lane {
    fn of(scope: &OperationScope, key: &ConnectorKey) -> Self {
        Self(scope.account_id.clone(), key.clone())
    }
}

/// The command that holds a lane's registration.
struct Live {
    number: u64,
    request: ClientRequestId,
    stop: CancellationToken,
    references: usize,
}

#[derive(Default)]
struct Board {
    live: HashMap<Lane, Live>,
    lanes: HashMap<Lane, Arc<tokio::sync::Mutex<()>>>,
    next: u64,
}

/// All lanes of this process.
#[derive(Clone, Default)]
pub(in crate::market) struct Requests(Arc<Mutex<Board>>);

/// A command's place; given up when dropped.
pub(super) struct Registration {
    requests: Requests,
    lane: Lane,
    number: u64,
    /// Ends the command's work from outside.
    pub(super) stop: CancellationToken,
    /// Whether it took the place of a command that was still running.
    pub(super) replaced_live: bool,
}

impl Requests {
    /// Registers a command. The same command again joins the running one; another
    /// one stays beside it, unless it replaces it and so stops it.
    pub(super) fn register(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
        request: &ClientRequestId,
        replacement: ReplacementPolicy,
    ) -> Registration {
        let lane = Lane::of(scope, key);
        let mut guard = self.board();
        let board = &mut *guard;
        board.next += 1;
        let fresh = board.next;
        let (number, stop, replaced_live) = match board.live.get_mut(&lane) {
            Some(live) if live.request == *request => {
                live.references += 1;
                (live.number, live.stop.clone(), false)
            }
            Some(_) if replacement == ReplacementPolicy::Keep => (fresh, CancellationToken::new(), false),
            running => {
                let replaced = running.inspect(|live| live.stop.cancel()).is_some();
                let stop = CancellationToken::new();
                let live =
                    Live { number: fresh, request: request.clone(), stop: stop.clone(), references: 1 };
                board.live.insert(lane.clone(), live);
                (fresh, stop, replaced)
            }
        };
        drop(guard);
        Registration { requests: self.clone(), lane, number, stop, replaced_live }
    }

    /// Stops the command that runs for a lane, if one does.
    pub(super) fn interrupt(&self, scope: &OperationScope, key: &ConnectorKey) {
        if let Some(live) = self.board().live.get(&Lane::of(scope, key)) {
            live.stop.cancel();
        }
    }

    /// Whether a command with this id runs here now.
    pub(in crate::market) fn is_live(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
        request: &ClientRequestId,
    ) -> bool {
        self.board().live.get(&Lane::of(scope, key)).is_some_and(|live| live.request == *request)
    }

    /// Waits for the lane.
    pub(super) async fn enter(&self, scope: &OperationScope, key: &ConnectorKey) -> OwnedMutexGuard<()> {
        let lane = {
            let mut board = self.board();
            // A lane that only this table knows is free and can be made anew.
            board.lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
            Arc::clone(board.lanes.entry(Lane::of(scope, key)).or_default())
        };
        lane.lock_owned().await
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut board = self.requests.board();
        match board.live.get_mut(&self.lane) {
            Some(live) if live.number == self.number => {
                live.references -= 1;
                if live.references == 0 {
                    live.stop.cancel();
                    board.live.remove(&self.lane);
                }
            }
            _ => self.stop.cancel(),
        }
    }
}
