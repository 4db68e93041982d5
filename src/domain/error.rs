//! The one error that crosses floors: a stable code, a message that says what to
//! do, and whether repeating the same request can help.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares the codes with their wire names and default retryability.
macro_rules! error_codes {
    ($( $(#[$doc:meta])* $variant:ident = $wire:literal, retryable: $retryable:literal; )*) => {
        /// A stable error code. The wire name never changes once released.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $( $(#[$doc])* #[serde(rename = $wire)] $variant, )*
        }

        impl ErrorCode {
            /// Every code, in the order of declaration.
            pub const ALL: &'static [ErrorCode] = &[$( ErrorCode::$variant, )*];

            /// The name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $( ErrorCode::$variant => $wire, )* }
            }

            /// Whether the same request may succeed later, where the error
            /// itself does not say otherwise.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self { $( ErrorCode::$variant => $retryable, )* }
            }
        }
    };
}

error_codes! {
    /// The request itself is wrong.
    InvalidRequest = "connector_market_invalid_request", retryable: false;
    /// What the request names does not exist, or not for this caller.
    NotFound = "connector_not_found", retryable: false;
    /// The caller's revision is not the current one.
    RevisionConflict = "connector_market_revision_conflict", retryable: true;
    /// Another operation holds the lane, or the state forbids the transition now.
    OperationInProgress = "connector_operation_in_progress", retryable: true;
    /// The connector cannot run on this host.
    Incompatible = "connector_incompatible", retryable: false;
    /// A manifest or release breaks a rule.
    InvalidManifest = "connector_manifest_invalid", retryable: false;
    /// This host runs no such implementation kind.
    UnsupportedImplementation = "connector_implementation_unsupported", retryable: false;
    /// The catalog or another upstream could not be reached.
    UpstreamUnavailable = "connector_market_upstream_unavailable", retryable: true;
    /// Installation, removal or activation failed.
    InstallFailed = "connector_install_failed", retryable: false;
    /// Authorization failed.
    AuthorizationFailed = "connector_authorization_failed", retryable: true;
    /// The service cannot answer now.
    Unavailable = "connector_market_unavailable", retryable: true;
    /// An operation that can never be executed was given up.
    OperationAbandoned = "connector_operation_abandoned", retryable: false;
    /// The worker no longer holds the lease it wrote under.
    LeaseLost = "connector_lease_lost", retryable: true;
    /// Two transactions met; the same transaction may be tried again at once.
    SerializationConflict = "store_serialization_conflict", retryable: true;

    /// The bearer token is missing or wrong.
    Unauthenticated = "unauthenticated", retryable: false;
    /// `Host` or `Origin` names another site.
    OriginRefused = "origin_refused", retryable: false;
    /// No such route.
    RouteNotFound = "route_not_found", retryable: false;
    /// The route exists, the method does not.
    MethodNotAllowed = "method_not_allowed", retryable: false;
    /// The body is larger than the route takes.
    BodyTooLarge = "body_too_large", retryable: false;
    /// The body is not what the route reads.
    UnsupportedMediaType = "unsupported_media_type", retryable: false;

    /// The artifact could not be fetched.
    ArtifactUnavailable = "artifact_unavailable", retryable: true;
    /// The artifact is shorter or longer than its release says.
    ArtifactSizeMismatch = "artifact_size_mismatch", retryable: false;
    /// The artifact's SHA-256 is not the release's.
    ArtifactDigestMismatch = "artifact_digest_mismatch", retryable: false;
    /// The artifact's media type is not the release's or not supported.
    ArtifactMediaTypeUnsupported = "artifact_media_type_unsupported", retryable: false;
    /// The archive is not readable as what it claims to be.
    ArtifactMalformed = "artifact_malformed", retryable: false;
    /// The archive holds a path, link or device that may not be unpacked.
    ArtifactUnsafeEntry = "artifact_unsafe_entry", retryable: false;
    /// The archive passes a limit on entries, bytes or compression ratio.
    ArtifactLimitExceeded = "artifact_limit_exceeded", retryable: false;
    /// The packed manifest is not the released one.
    ArtifactManifestMismatch = "artifact_manifest_mismatch", retryable: false;

    /// The component cannot be compiled or is none.
    ComponentInvalid = "component_invalid", retryable: false;
    /// The component does not export what its world promises.
    ComponentWorldUnsupported = "component_world_unsupported", retryable: false;
    /// The component imports something outside the contract.
    ComponentImportForbidden = "component_import_forbidden", retryable: false;
    /// The component's self-description failed or breaks a rule.
    ComponentDescribeFailed = "component_describe_failed", retryable: false;

    /// No active route offers the capability.
    CapabilityNotFound = "capability_not_found", retryable: false;
    /// The input does not match the capability's schema.
    CapabilityInputInvalid = "capability_input_invalid", retryable: false;
    /// The answer does not match the capability's schema or the contract.
    CapabilityOutputInvalid = "capability_output_invalid", retryable: false;
    /// The answer is larger than the limit.
    CapabilityOutputTooLarge = "capability_output_too_large", retryable: false;
    /// Too many calls are running.
    CapabilityBusy = "capability_busy", retryable: true;
    /// The guest trapped.
    CapabilityTrapped = "capability_trapped", retryable: false;
    /// The guest overflowed its stack.
    CapabilityStackExhausted = "capability_stack_exhausted", retryable: false;
    /// The guest asked for more memory than its limit and gave up.
    CapabilityMemoryExhausted = "capability_memory_exhausted", retryable: false;
    /// The guest used up its CPU budget.
    CapabilityCpuExhausted = "capability_cpu_exhausted", retryable: false;
    /// The call passed its wall-clock deadline.
    CapabilityDeadlineExceeded = "capability_deadline_exceeded", retryable: true;
    /// The route was fenced while the call ran.
    CapabilityFenced = "capability_fenced", retryable: true;
    /// The connector says: the input is wrong.
    ConnectorInvalidInput = "connector_invalid_input", retryable: false;
    /// The connector says: authorization is missing or expired.
    ConnectorUnauthorized = "connector_unauthorized", retryable: false;
    /// The connector says: the authorization does not reach this far.
    ConnectorForbidden = "connector_forbidden", retryable: false;
    /// The connector says: what the input names does not exist.
    ConnectorTargetNotFound = "connector_target_not_found", retryable: false;
    /// The connector says: the upstream's state forbids it.
    ConnectorConflict = "connector_conflict", retryable: false;
    /// The connector says: too many requests.
    ConnectorRateLimited = "connector_rate_limited", retryable: true;
    /// The connector says: the upstream failed.
    ConnectorUpstream = "connector_upstream_failed", retryable: true;
    /// The connector says: its own fault.
    ConnectorInternal = "connector_internal", retryable: false;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error with a stable code. `Display` gives the message alone; the cause is
/// reached through [`std::error::Error::source`] and is for logs only.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What went wrong, for programs.
    pub code: ErrorCode,
    /// What went wrong and what to do, for people. Holds no secret.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// What lies behind it, for logs.
    #[source]
    pub cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error with the code's own retryability.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: code.retryable(), cause: None }
    }

    /// Overrides whether a retry can help.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Attaches what lies behind the error.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The request itself is wrong.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// A manifest or release breaks a rule.
    pub fn invalid_manifest(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidManifest, message)
    }

    /// What the request names does not exist for this caller.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    /// The service cannot answer now; a retry may help.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message)
    }

    /// The error of `code` that this error is or was caused by, outermost first.
    #[must_use]
    pub fn find(&self, code: ErrorCode) -> Option<&Error> {
        let mut current: &Error = self;
        loop {
            if current.code == code {
                return Some(current);
            }
            current = current.cause.as_deref()?.downcast_ref::<Error>()?;
        }
    }

    /// Whether the message, or that of any cause behind it, says `text`.
    #[must_use]
    pub fn mentions(&self, text: &str) -> bool {
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = next {
            if error.to_string().contains(text) {
                return true;
            }
            next = error.source();
        }
        false
    }

    /// The innermost [`Error`] of the chain: the most specific code.
    #[must_use]
    pub fn innermost(&self) -> &Error {
        let mut current = self;
        while let Some(next) = current.cause.as_deref().and_then(|cause| cause.downcast_ref::<Error>()) {
            current = next;
        }
        current
    }
}
