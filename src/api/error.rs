//! The one map from error code to HTTP status, and the body of every error.
//! `docs/errors.md` lists the same for readers; a test keeps them equal.

use std::{error::Error as _, sync::Arc};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, Method, StatusCode, header};

use super::dto::ErrorBody;
use crate::domain::{
    error::{Error, ErrorCode},
    id::RequestId,
};

/// The status of a code where a route does not say otherwise.
#[must_use]
pub const fn status(code: ErrorCode) -> StatusCode {
    use ErrorCode as C;
    match code {
        C::InvalidRequest => StatusCode::BAD_REQUEST,
        C::Unauthenticated => StatusCode::UNAUTHORIZED,
        C::OriginRefused | C::ConnectorUnauthorized | C::ConnectorForbidden => StatusCode::FORBIDDEN,
        C::NotFound | C::RouteNotFound | C::CapabilityNotFound | C::ConnectorTargetNotFound => {
            StatusCode::NOT_FOUND
        }
        C::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        C::RevisionConflict | C::OperationInProgress | C::CapabilityFenced | C::ConnectorConflict => {
            StatusCode::CONFLICT
        }
        C::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        C::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        C::Incompatible
        | C::InvalidManifest
        | C::UnsupportedImplementation
        | C::ArtifactSizeMismatch
        | C::ArtifactDigestMismatch
        | C::ArtifactMediaTypeUnsupported
        | C::ArtifactMalformed
        | C::ArtifactUnsafeEntry
        | C::ArtifactLimitExceeded
        | C::ArtifactManifestMismatch
        | C::ComponentInvalid
        | C::ComponentWorldUnsupported
        | C::ComponentImportForbidden
        | C::ComponentDescribeFailed
        | C::CapabilityInputInvalid
        | C::ConnectorInvalidInput => StatusCode::UNPROCESSABLE_ENTITY,
        C::CapabilityBusy | C::ConnectorRateLimited => StatusCode::TOO_MANY_REQUESTS,
        C::CapabilityOutputInvalid
        | C::CapabilityOutputTooLarge
        | C::CapabilityTrapped
        | C::CapabilityStackExhausted
        | C::CapabilityMemoryExhausted
        | C::CapabilityCpuExhausted
        | C::ConnectorUpstream
        | C::ConnectorInternal => StatusCode::BAD_GATEWAY,
        C::CapabilityDeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        C::UpstreamUnavailable
        | C::InstallFailed
        | C::AuthorizationFailed
        | C::Unavailable
        | C::OperationAbandoned
        | C::LeaseLost
        | C::SerializationConflict
        | C::ArtifactUnavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// An error on its way out. It travels as an extension of an empty response, so
/// that the gate can add the request id, log it and render it in one place.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    code: ErrorCode,
    message: String,
    retryable: bool,
    revision: Option<u64>,
    allow: Option<&'static str>,
    cause: Option<Arc<str>>,
}

impl ApiError {
    /// Keeps to the statuses that a route declares: another one becomes 503, with
    /// the code unchanged (spec I.3).
    #[must_use]
    pub(super) fn among(mut self, declared: &[u16]) -> Self {
        if !declared.contains(&self.status.as_u16()) {
            self.status = StatusCode::SERVICE_UNAVAILABLE;
        }
        self
    }

    /// Tells the revision that holds now.
    #[must_use]
    pub(super) fn at_revision(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    /// The path exists, with another method.
    pub(super) fn wrong_method(allow: &'static str) -> Self {
        let message = format!("this path takes {allow} only");
        Self { allow: Some(allow), ..Error::new(ErrorCode::MethodNotAllowed, message).into() }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// Logs it: our own failures as warnings, the caller's quietly.
    pub(super) fn log(&self, request_id: &RequestId, method: &Method, path: &str) {
        let (status, code, cause) = (self.status.as_u16(), self.code.as_str(), self.cause.as_deref());
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            tracing::warn!(request.id = %request_id, %method, path, status, code, cause, "{}", self.message);
        } else {
            tracing::debug!(request.id = %request_id, %method, path, status, code, cause, "{}", self.message);
        }
    }

    /// The body, into the response that carried the error.
    pub(super) fn render(self, mut response: Response, request_id: Option<&RequestId>) -> Response {
        let body = ErrorBody {
            code: self.code.as_str().to_owned(),
            message: self.message,
            retryable: self.retryable,
            revision: self.revision,
            request_id: request_id.map(|id| id.as_str().to_owned()),
        };
        let bytes = serde_json::to_vec(&body).unwrap_or_default();
        *response.body_mut() = Body::from(bytes);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.retryable
            && matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
        {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let mut cause: Option<String> = None;
        let mut next = error.source();
        while let Some(source) = next {
            let chain = cause.get_or_insert_default();
            if !chain.is_empty() {
                chain.push_str(": ");
            }
            chain.push_str(&source.to_string());
            next = source.source();
        }
        Self {
            status: status(error.code),
            code: error.code,
            retryable: error.retryable,
            revision: None,
            allow: None,
            cause: cause.map(Arc::from),
            message: error.message,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
