//! Whether the daemon lives, and whether it can do its work.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use serde_json::json;

use super::{ApiError, ApiState, body};

/// It lives. Says nothing else: this is the one answer without a token.
pub(super) async fn alive() -> Result<Response, ApiError> {
    body::json(StatusCode::OK, &json!({ "status": "ok" }))
}

pub(super) async fn ready(State(state): State<Arc<ApiState>>) -> Result<Response, ApiError> {
    let readiness = state.health.readiness();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    body::json(status, &readiness.detail)
}
