//! Capabilities: what can be called, and the call. The call is the hot path:
//! one parse in, one serialization out, nothing in between but the host.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use http::StatusCode;

use super::{ApiError, ApiState, body, dto, target::Target};
use crate::domain::{
    capability::CallRequest,
    convergence::ConnectorRuntime,
    error::{Error, ErrorCode},
    id::{CapabilityId, ConnectorKey, RequestId},
};

const VERBS: [(&str, ()); 1] = [("call", ())];

/// The longest deadline that a caller may set.
const DEADLINE_MS: std::ops::RangeInclusive<u64> = 1..=600_000;

pub(super) async fn list(State(state): State<Arc<ApiState>>) -> Result<Response, ApiError> {
    let mut capabilities = state.host.capabilities(state.scope.scope().account_id.as_ref());
    capabilities.sort_by(|one, other| one.id.cmp(&other.id));
    body::json(StatusCode::OK, &dto::Capabilities { capabilities })
}

pub(super) async fn show(State(state): State<Arc<ApiState>>, target: Target) -> Result<Response, ApiError> {
    let id = parse_id(&target.thing(&[VERBS[0].0])?)?;
    let capabilities = state.host.capabilities(state.scope.scope().account_id.as_ref());
    match capabilities.iter().find(|one| one.id == id) {
        Some(capability) => body::json(StatusCode::OK, capability),
        None => Err(not_found(&id.to_string()).into()),
    }
}

pub(super) async fn call(
    State(state): State<Arc<ApiState>>,
    Extension(request_id): Extension<RequestId>,
    target: Target,
    request: Request,
) -> Result<Response, ApiError> {
    let (name, ()) = target.command(&VERBS)?;
    let capability = parse_id(&name)?;
    let asked: dto::CallBody = body::read(&state, request, body::CALL_BYTES).await?;
    let deadline = match asked.deadline_ms {
        None => None,
        Some(ms) if DEADLINE_MS.contains(&ms) => Some(state.clock.now().plus(Duration::from_millis(ms))),
        Some(_) => {
            return Err(Error::invalid_request(format!(
                "deadlineMs must be between {} and {}",
                DEADLINE_MS.start(),
                DEADLINE_MS.end()
            ))
            .into());
        }
    };
    let key = capability.connector.clone();
    // A caller that goes away drops this future, and the host ends the instance.
    let called = state
        .host
        .call(CallRequest {
            request_id,
            account: state.scope.scope().account_id,
            capability,
            input: asked.input,
            deadline,
            progress: None,
        })
        .await;
    match called {
        Ok(answer) => body::json(StatusCode::OK, &dto::CallAnswer::from(&answer)),
        Err(error) if error.code == ErrorCode::CapabilityNotFound && is_starting(&state, &key).await => {
            Err(Error::unavailable(format!("connector {key} is installed and is being started; try again"))
                .with_cause(error)
                .into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether an installed connector has no route yet but will have one, as after a
/// start of the daemon. Its callers are told to come back, not that there is nothing.
async fn is_starting(state: &ApiState, key: &ConnectorKey) -> bool {
    let Ok(market) = state.market() else { return false };
    let seen = market.connector(&state.scope.scope(), key).await;
    matches!(seen, Ok((_, Some(ConnectorRuntime::Starting))))
}

/// A text that can be no capability's id names no capability.
fn parse_id(text: &str) -> Result<CapabilityId, Error> {
    text.parse().map_err(|_| not_found(text))
}

fn not_found(id: &str) -> Error {
    let id: String = id.chars().take(256).collect();
    Error::new(
        ErrorCode::CapabilityNotFound,
        format!("no active connector offers {id:?}; list what there is with GET /v1/capabilities"),
    )
}
