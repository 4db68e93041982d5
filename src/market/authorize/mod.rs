//! Authorizing a connector for an account: beginning an attempt, going on with it,
//! ending it, and disconnecting (spec C.9, C.10).
//!
//! An attempt leaves a receipt on its operation: an open one is the reason why no
//! other attempt begins, and is settled by [`super::Application::reconcile_authorizations`],
//! a cancellation, a replacement or a disconnection. Links, codes and secrets are in
//! answers alone and are never stored.
//!
//! The device's own field is written for local connectors only; what an account may
//! use is its projection (`project`).

mod begin;
mod cancel;
mod disconnect;
mod inspect;
mod project;
mod reconcile;
mod requests;
mod session;

use secrecy::SecretSlice;

pub(super) use project::{Readiness, save_projection};
pub use reconcile::{AuthorizationIntent, ReconciledAuthorizations};
pub(super) use requests::Requests;

use super::accept::ConnectorMutation;
use crate::{
    domain::{
        authorization::{Authorization, AuthorizationState, AuthorizationView},
        connector::Connector,
        error::{Error, ErrorCode},
        id::ConnectorKey,
        operation::Operation,
        revision::Revision,
        timestamp::Timestamp,
    },
    ports::ReplacementPolicy,
};

/// How long an attempt lasts where its provider does not say (spec A.8).
const SESSION_TTL: std::time::Duration = std::time::Duration::from_secs(10 * 60);

/// Begins an attempt, or goes on with the one that its client request id began.
pub struct BeginAuthorization {
    /// The command.
    pub command: ConnectorMutation,
    /// What to do about another attempt that is still open.
    pub replacement: ReplacementPolicy,
    /// The last step that the caller has seen; 0 asks for the current one.
    pub after_step: u64,
    /// What the user handed over. Its type zeroes it when the command ends, however
    /// it ends.
    pub secret: Option<SecretSlice<u8>>,
}

/// Where an attempt stands.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorizationResult {
    /// The connector, with the caller's authorization in place of the device's.
    pub connector: Connector,
    /// The operation that stands for the attempt.
    pub operation: Operation,
    /// The link to open, while the user has to act.
    pub authorization_url: Option<String>,
    /// The same to show, while the user has to act.
    pub authorization_view: Option<AuthorizationView>,
    /// When the attempt is over.
    pub authorization_expires_at: Timestamp,
    /// The step that this is.
    pub authorization_step_revision: u64,
    /// The connector's revision.
    pub revision: Revision,
}

/// Parses a replacement policy: empty, or `replace_active`.
///
/// # Errors
/// [`ErrorCode::InvalidRequest`] for anything else.
pub fn parse_replacement_policy(text: &str) -> Result<ReplacementPolicy, Error> {
    match text {
        "" => Ok(ReplacementPolicy::Keep),
        "replace_active" => Ok(ReplacementPolicy::ReplaceActive),
        _ => Err(Error::invalid_request("replacementPolicy is empty or \"replace_active\"")),
    }
}

fn is_remote(connector: &Connector) -> bool {
    connector.release.manifest.implementation.is_remote()
}

fn account_required() -> Error {
    Error::invalid_request("a remote connector is authorized for an account; sign in first")
}

/// Moves the device's own authorization of a connector.
fn set_device(connector: &mut Connector, next: Authorization) -> Result<(), Error> {
    let before = connector.authorization.state;
    if !before.may_become(next.state) {
        return Err(illegal(&connector.key, before, next.state));
    }
    connector.authorization = next;
    Ok(())
}

fn illegal(key: &ConnectorKey, before: AuthorizationState, next: AuthorizationState) -> Error {
    Error::new(
        ErrorCode::OperationInProgress,
        format!(
            "the authorization of {key} is {}; it cannot become {} from there",
            before.as_str(),
            next.as_str()
        ),
    )
}
