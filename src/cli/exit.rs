//! How the process ends: the one map from error code to exit code.

use std::process::ExitCode;

use crate::domain::error::{Error, ErrorCode};

/// The exit codes, as `--help` tells them.
pub(super) const EXIT_CODES: &str = "Exit codes:
  0  done
  1  something unexpected; a check that failed
  2  the command line is wrong
  3  not found
  4  refused or invalid; repeating will not help
  5  conflict or unavailable now; repeating may help
  6  the daemon cannot be reached
  7  the call failed";

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Something unexpected, or a check that failed.
    Unexpected = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Not found.
    NotFound = 3,
    /// Refused or invalid.
    Refused = 4,
    /// Conflict or unavailable now.
    Conflict = 5,
    /// The daemon cannot be reached.
    Unreachable = 6,
    /// The call failed.
    CallFailed = 7,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The exit code of an error code that the daemon answered with.
#[must_use]
pub const fn exit_of(code: ErrorCode) -> Exit {
    use ErrorCode as C;
    match code {
        C::NotFound | C::RouteNotFound | C::CapabilityNotFound => Exit::NotFound,
        C::InvalidRequest
        | C::Incompatible
        | C::InvalidManifest
        | C::UnsupportedImplementation
        | C::InstallFailed
        | C::AuthorizationFailed
        | C::OperationAbandoned
        | C::Unauthenticated
        | C::OriginRefused
        | C::MethodNotAllowed
        | C::BodyTooLarge
        | C::UnsupportedMediaType
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
        | C::CapabilityInputInvalid => Exit::Refused,
        C::RevisionConflict
        | C::OperationInProgress
        | C::UpstreamUnavailable
        | C::Unavailable
        | C::LeaseLost
        | C::SerializationConflict
        | C::ArtifactUnavailable
        | C::CapabilityBusy
        | C::CapabilityFenced => Exit::Conflict,
        C::CapabilityOutputInvalid
        | C::CapabilityOutputTooLarge
        | C::CapabilityTrapped
        | C::CapabilityStackExhausted
        | C::CapabilityMemoryExhausted
        | C::CapabilityCpuExhausted
        | C::CapabilityDeadlineExceeded
        | C::ConnectorInvalidInput
        | C::ConnectorUnauthorized
        | C::ConnectorForbidden
        | C::ConnectorTargetNotFound
        | C::ConnectorConflict
        | C::ConnectorRateLimited
        | C::ConnectorUpstream
        | C::ConnectorInternal => Exit::CallFailed,
    }
}

/// Why a command failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// How the process ends.
    pub(super) exit: Exit,
    /// The stable code, where there is one.
    pub(super) code: Option<String>,
    /// What was wrong.
    pub(super) message: String,
    /// Whether repeating may help.
    pub(super) retryable: bool,
    /// What to do about it.
    pub(super) hint: Option<String>,
    /// The request, as the daemon's log names it.
    pub(super) request_id: Option<String>,
}

impl Failure {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        let retryable = matches!(exit, Exit::Conflict | Exit::Unreachable);
        Self { exit, code: None, message: message.into(), retryable, hint: None, request_id: None }
    }

    pub(super) fn unexpected(message: impl Into<String>) -> Self {
        Self::new(Exit::Unexpected, message)
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The failure that the daemon named by a code. A code that this program does
    /// not know, of a newer daemon, is judged by whether repeating may help.
    pub(super) fn coded(code: String, message: String, retryable: bool) -> Self {
        let known = ErrorCode::ALL.iter().find(|known| known.as_str() == code);
        let exit = match known {
            Some(known) => exit_of(*known),
            None if retryable => Exit::Conflict,
            None => Exit::Refused,
        };
        Self { exit, code: Some(code), message, retryable, hint: None, request_id: None }
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn is(&self, code: ErrorCode) -> bool {
        self.code.as_deref() == Some(code.as_str())
    }
}

/// An error of this process's own work, not of the daemon's.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut message = error.message.clone();
        if let Some(cause) = error.cause.as_ref().map(ToString::to_string)
            && !message.contains(&cause)
        {
            message = format!("{message} ({cause})");
        }
        let exit = match error.code {
            ErrorCode::InvalidRequest => Exit::Usage,
            code => exit_of(code),
        };
        Self { exit, ..Self::coded(error.code.as_str().to_owned(), message, error.retryable) }
    }
}
