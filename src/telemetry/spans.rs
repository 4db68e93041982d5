//! Spans and their fields: `<layer>.<noun>` with dotted fields.

use tracing::Span;

use crate::domain::{
    digest::Sha256Digest,
    id::{ConnectorKey, OperationId},
    operation::OperationScope,
};

/// Tells accounts apart in a log without naming them; `signed-out` for none.
#[must_use]
pub fn account_hash(scope: &OperationScope) -> String {
    match &scope.account_id {
        None => "signed-out".to_owned(),
        Some(account) => {
            let digest = Sha256Digest::of(format!("account\0{account}").as_bytes());
            hex::encode(&digest.as_bytes()[..6])
        }
    }
}

/// The span of one activation of a background task.
#[must_use]
pub fn task_span(name: &'static str) -> Span {
    tracing::info_span!("daemon.task", task.name = name)
}

/// The span of one execution of an operation.
#[must_use]
pub fn operation_span(id: &OperationId) -> Span {
    tracing::info_span!("daemon.operation", operation.id = %id)
}

/// The span of background work on one connector.
#[must_use]
pub fn connector_span(verb: &'static str, scope: &OperationScope, key: &ConnectorKey) -> Span {
    tracing::info_span!(
        "daemon.connector",
        verb,
        connector.key = %key,
        account.hash = account_hash(scope),
    )
}
