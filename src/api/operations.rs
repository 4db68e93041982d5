//! One operation.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;

use super::{ApiError, ApiState, body, dto, target::Target};
use crate::domain::{
    error::Error,
    id::OperationId,
    operation::{OperationKind, Visibility},
};

pub(super) async fn show(State(state): State<Arc<ApiState>>, target: Target) -> Result<Response, ApiError> {
    let declared = |error: Error| ApiError::from(error).among(&[400, 404, 503]);
    let id = OperationId::parse(target.thing(&[])?)?;
    let market = state.market().map_err(declared)?;
    let operation = market.operation(&state.scope.scope(), &id).await.map_err(declared)?;
    // The market hides these already; what is private stays so even if it errs.
    if operation.kind == OperationKind::ReconcileRuntime || operation.visibility != Visibility::Account {
        return Err(declared(Error::not_found(format!("there is no operation {id}"))));
    }
    body::json(StatusCode::OK, &dto::Operation::from(operation))
}
