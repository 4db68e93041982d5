//! The HTTP API: what programs, the command line and a console see of the daemon.
//!
//! Every route stands on one screen, in [`router`]; a handler lives in the file
//! of its noun. [`dto`] holds the wire types (domain types are never serialized
//! where the wire hides something), [`error`] the one map from code to status,
//! `auth` who may ask at all, `gate` what happens around every request, and
//! `serve` the listener. What may not live here: decisions. A
//! handler parses, asks the market or the host, and answers.
//!
//! ```text
//! listener ── gate (request id, Host, Origin, token) ── router ── handler
//!                └─ renders every error, once              └─ Market or ImplementationHost
//! ```

mod auth;
mod body;
mod capabilities;
mod connectors;
pub mod dto;
pub mod error;
mod gate;
mod health;
mod market;
mod operations;
mod routes;
mod serve;
mod service;
mod target;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post, put},
};
use tower_http::catch_panic::CatchPanicLayer;

pub use auth::Access;
pub use body::ARRIVAL as BODY_ARRIVAL;
pub use error::ApiError;
pub use serve::{Shutdown, serve};
pub use service::{ActiveScope, ApiState, Health, Market, Readiness};

/// All routes. The path of a command ends in `:verb`; `target::Target` splits it.
pub fn router(state: Arc<ApiState>) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/v1/connector-market", get(market::snapshot))
        .route("/v1/connector-market:refresh", post(market::refresh))
        .route("/v1/connector-market/categories", get(market::categories))
        .route("/v1/connector-market/catalog", get(market::catalog))
        .route("/v1/connector-market/connectors/{target}", get(connectors::show).post(connectors::command))
        .route("/v1/connector-market/connectors/{target}/runtime", put(connectors::set_runtime))
        .route("/v1/connector-market/operations/{target}", get(operations::show))
        .route("/v1/capabilities", get(capabilities::list))
        .route("/v1/capabilities/{target}", get(capabilities::show).post(capabilities::call))
        .route("/v1/routes", get(routes::list))
        .fallback(gate::no_route)
        .method_not_allowed_fallback(gate::no_method)
        .layer(CatchPanicLayer::custom(gate::panicked))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&state), gate::pass))
        .with_state(state)
}
