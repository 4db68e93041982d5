//! Routes and their generations, for operators.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;

use super::{ApiError, ApiState, body, dto};

pub(super) async fn list(State(state): State<Arc<ApiState>>) -> Result<Response, ApiError> {
    let mut routes = state.host.routes();
    routes.sort_by(|one, other| {
        (&one.connector_key, &one.connection_id, one.generation.number).cmp(&(
            &other.connector_key,
            &other.connection_id,
            other.generation.number,
        ))
    });
    body::json(StatusCode::OK, &dto::Routes { routes })
}
