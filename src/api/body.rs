//! Bodies, in and out: JSON only, bounded in size and in time.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::{Serialize, de::DeserializeOwned};

use super::{ApiError, ApiState};
use crate::domain::error::{Error, ErrorCode};

/// The largest body of a command.
pub(super) const COMMAND_BYTES: usize = 64 << 10;
/// The largest body of a call.
pub(super) const CALL_BYTES: usize = 1 << 20;
/// How long a body may take to arrive, where nobody says otherwise.
pub const ARRIVAL: Duration = Duration::from_secs(10);

/// Reads a JSON body of at most `limit` bytes. Unknown fields are the type's to refuse.
pub(super) async fn read<T: DeserializeOwned>(
    state: &ApiState,
    request: Request,
    limit: usize,
) -> Result<T, ApiError> {
    let media_type = media_type(&request);
    let bytes = collect(request.into_body(), limit, state.arrival).await?;
    if bytes.is_empty() {
        return Err(Error::invalid_request("a JSON body is required").into());
    }
    if !media_type {
        return Err(Error::new(
            ErrorCode::UnsupportedMediaType,
            "the body must be JSON, sent with \"Content-Type: application/json\"",
        )
        .into());
    }
    serde_json::from_slice(&bytes).map_err(|cause| {
        let what: String = cause.to_string().chars().take(300).collect();
        Error::invalid_request(format!("the body is not what this route reads: {what}")).into()
    })
}

fn media_type(request: &Request) -> bool {
    request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

async fn collect(body: Body, limit: usize, arrival: Duration) -> Result<Bytes, Error> {
    let too_large = || {
        Error::new(ErrorCode::BodyTooLarge, format!("the body is larger than the {limit} bytes taken here"))
    };
    // A declared length is refused before anything is read.
    if http_body::Body::size_hint(&body).lower() > limit as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(arrival, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(cause)) if cause.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(cause)) => Err(Error::invalid_request("the body ended early").with_cause(cause)),
        Err(_) => {
            Err(Error::invalid_request(format!("the body did not arrive within {} ms", arrival.as_millis())))
        }
    }
}

/// Answers with `value` as JSON.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Result<Response, ApiError> {
    let bytes = serde_json::to_vec(value)
        .map_err(|cause| Error::unavailable("the answer could not be written as JSON").with_cause(cause))?;
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
