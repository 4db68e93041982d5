//! PLACEHOLDER

mod changes;
mod clock;
mod contract;
mod faults;
mod faulty;
mod file;
mod migrations;
pub(crate) mod postgres;
mod race;

use portcullis::domain::{
    id::{ClientRequestId, ConnectorKey, OperationId},
    lease::LeaseToken,
    operation::{Execution, Operation, OperationKind, OperationScope, OperationState, Stage, Visibility},
    timestamp::Timestamp,
};

/// An accepted operation of nobody, in the lane of `connector`.
fn operation(operation_id: OperationId, connector: &str) -> Operation {
    let request = ClientRequestId::parse(format!("request-{operation_id}")).expect("a request id");
    Operation {
        operation_id,
        client_request_id: request,
        owner_account_id: None,
        visibility: Visibility::SystemPrivate,
        connector_key: Some(ConnectorKey::parse(connector).expect("a key")),
        kind: OperationKind::Install,
        scope: OperationScope::default(),
        state: OperationState::Accepted,
        stage: Stage::Accepted,
        target: None,
        generation: None,
        execution: Execution::default(),
        attempt: 0,
        interrupted: 0,
        lease: None,
        lease_token: LeaseToken(0),
        created_at: Timestamp(1_000),
        updated_at: Timestamp(1_000),
    }
}
