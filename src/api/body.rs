//! Bodies, in and out: JSON only, bounded in size and in time.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use bytes::BytesMut;
use http::{HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, timeout_at};

use super::{ApiError, ApiState};
use crate::domain::error::{Error, ErrorCode};

/// The largest body of a command.
pub(super) const COMMAND_BYTES: usize = 64 << 10;
/// The largest body of a call.
pub(super) const CALL_BYTES: usize = 1 << 20;
/// So many times the limit of a body that is too large are read and thrown away.
const SWALLOWED: usize = 8;
/// How long a body may take to arrive, where nobody says otherwise.
pub const ARRIVAL: Duration = Duration::from_secs(10);

/// Reads a JSON body of at most `limit` bytes. Unknown fields are the type's to refuse.
pub(super) async fn read<T: DeserializeOwned>(
    state: &ApiState,
    request: Request,
    limit: usize,
) -> Result<T, ApiError> {
    let media_type = media_type(&request);
    // Such a client sends nothing before it is told to.
    let waits = request.headers().contains_key(header::EXPECT);
    let bytes = collect(request.into_body(), limit, state.arrival, waits).await?;
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

/// Reads at most `limit` bytes. Of a body that is larger, a bounded rest is
/// swallowed: a client that is still sending would miss the answer.
async fn collect(mut body: Body, limit: usize, arrival: Duration, waits: bool) -> Result<Bytes, Error> {
    let until = Instant::now() + arrival;
    // A declared length is refused before anything is kept.
    let mut kept = (http_body::Body::size_hint(&body).lower() <= limit as u64).then(BytesMut::new);
    if kept.is_none() && waits {
        return Err(too_large(limit));
    }
    let mut arrived = 0_usize;
    while arrived <= limit.saturating_mul(SWALLOWED) {
        let frame = match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => break,
            Ok(Some(Err(_))) | Err(_) if kept.is_none() => break,
            Ok(Some(Err(cause))) => {
                return Err(Error::invalid_request("the body ended early").with_cause(cause));
            }
            Err(_) => {
                let late = format!("the body did not arrive within {} ms", arrival.as_millis());
                return Err(Error::invalid_request(late));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        arrived = arrived.saturating_add(data.len());
        kept = kept.filter(|_| arrived <= limit);
        if let Some(kept) = &mut kept {
            kept.extend_from_slice(&data);
        }
    }
    kept.map(BytesMut::freeze).ok_or_else(|| too_large(limit))
}

fn too_large(limit: usize) -> Error {
    Error::new(ErrorCode::BodyTooLarge, format!("the body is larger than the {limit} bytes taken here"))
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
