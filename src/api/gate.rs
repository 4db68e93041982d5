//! What happens around every request: it gets an id, it is let in or not, and if
//! it fails, its error is logged and rendered here, once.

use std::{any::Any, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderName, HeaderValue, header};

use super::{ApiError, ApiState, auth};
use crate::domain::{
    error::{Error, ErrorCode},
    id::RequestId,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest request id that is taken over from a caller.
const REQUEST_ID_BYTES: usize = 128;

pub(super) async fn pass(State(state): State<Arc<ApiState>>, mut request: Request, next: Next) -> Response {
    let request_id = match request_id(&state, &request) {
        Ok(request_id) => request_id,
        Err(error) => return ApiError::from(error).render(Response::default(), None),
    };
    let method = request.method().clone();
    let path = request.uri().clone();
    let mut response = match auth::admit(&state, &request) {
        Ok(()) => {
            request.extensions_mut().insert(request_id.clone());
            next.run(request).await
        }
        Err(error) => ApiError::from(error).into_response(),
    };
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        error.log(&request_id, &method, path.path());
        response = error.render(response, Some(&request_id));
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(request_id.as_str()) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The caller's id where it sent a usable one, else a fresh one.
fn request_id(state: &ApiState, request: &Request) -> Result<RequestId, Error> {
    let sent = request
        .headers()
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|text| text.len() <= REQUEST_ID_BYTES)
        .and_then(|text| RequestId::parse(text).ok());
    match sent {
        Some(request_id) => Ok(request_id),
        None => RequestId::parse(state.ids.fresh()?),
    }
}

pub(super) async fn no_route(request: Request) -> ApiError {
    let path: String = request.uri().path().chars().take(200).collect();
    Error::new(ErrorCode::RouteNotFound, format!("there is no {path}")).into()
}

pub(super) async fn no_method(request: Request) -> ApiError {
    let message = format!("{} is not a method of this path; see the Allow header", request.method());
    Error::new(ErrorCode::MethodNotAllowed, message).into()
}

/// A handler's panic is our fault, and ends its own request only.
pub(super) fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    let error = Error::unavailable("the daemon could not answer; its log says why");
    ApiError::from(error.with_cause(format!("a handler panicked: {what}"))).into_response()
}
