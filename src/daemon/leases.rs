//! The leases that an earlier boot of this daemon died with.
//!
//! Whoever holds the data directory knows that no other process of this node
//! lives, so that its work need not wait until its leases run out. Leases of
//! other nodes, which may live, are left alone.

use crate::{
    domain::{
        error::Error,
        id::{BootEpoch, NodeId, WorkerId},
        operation::OperationScope,
    },
    ports::{ConvergenceLease, OperationLease, Store},
};

/// The worker of one boot of one node.
///
/// # Errors
/// When the two make no id together.
pub fn worker_id(node: &NodeId, boot: &BootEpoch) -> Result<WorkerId, Error> {
    WorkerId::parse(format!("{node}/{boot}"))
}

fn is_earlier_boot(owner: &WorkerId, node: &NodeId, own: &WorkerId) -> bool {
    owner != own && owner.as_str().strip_prefix(node.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

/// Gives back every lease of an earlier boot of `node`, those of operations and
/// those of `scope`'s convergences, and tells how many.
///
/// # Errors
/// When the store cannot be read or written.
pub async fn release_leases_of_earlier_boots(
    store: &dyn Store,
    node: &NodeId,
    own: &WorkerId,
    scope: &OperationScope,
) -> Result<u32, Error> {
    let mut released = 0;
    for operation in store.recoverable_operations().await? {
        if let Some(held) = operation.lease.filter(|held| is_earlier_boot(&held.owner, node, own)) {
            let operation_id = operation.operation_id;
            store
                .release_operation(&OperationLease { operation_id, owner: held.owner, token: held.token })
                .await?;
            released += 1;
        }
    }
    for row in store.convergences(scope).await? {
        if let Some(held) = row.lease.filter(|held| is_earlier_boot(&held.owner, node, own)) {
            let lease = ConvergenceLease {
                scope: row.desired.scope,
                connector_key: row.desired.connector_key,
                owner: held.owner,
                token: held.token,
                desired_generation: row.desired.generation,
            };
            store.release_convergence(&lease).await?;
            released += 1;
        }
    }
    Ok(released)
}
