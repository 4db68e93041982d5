//! Who runs connectors.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use crate::domain::{
    capability::{CallRequest, CallResponse, PublishedCapability},
    digest::Sha256Digest,
    error::Error,
    generation::Generation,
    id::{AccountId, ConnectionId, ConnectorKey},
    runtime::{DeactivateRequest, ReconcileRequest, RuntimeReceipt},
};

/// Whether a route answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteStatus {
    /// It answers.
    Active,
    /// It is fenced and its last instances are going.
    Retiring,
}

/// One route, for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteSummary {
    /// The connector.
    pub connector_key: ConnectorKey,
    /// The connection.
    pub connection_id: ConnectionId,
    /// The release that runs.
    pub release_digest: Sha256Digest,
    /// Its version.
    pub version: String,
    /// The generation.
    pub generation: Generation,
    /// Whether it answers.
    pub status: RouteStatus,
    /// Calls that run now.
    pub calls_in_flight: usize,
}

/// Runs connectors and fences them by generation (spec B.3, H).
///
/// After [`deactivate`](Self::deactivate) or [`fail_closed`](Self::fail_closed)
/// has answered without an error, nothing of a fenced generation acts any more:
/// no request leaves, no state is written, no call answers.
#[async_trait]
pub trait ImplementationHost: Send + Sync {
    /// Brings a connection's route to the requested state.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::AuthorizationFailed`], not retryable,
    /// when the connection's authorization does not allow it; component errors
    /// with their own codes; a stale or fenced generation as
    /// [`crate::domain::error::ErrorCode::RevisionConflict`].
    async fn reconcile(&self, request: &ReconcileRequest) -> Result<RuntimeReceipt, Error>;

    /// Fences routes and waits until their instances are gone, at most `deadline`.
    /// A missed deadline is an error; the same request can be made again.
    async fn deactivate(&self, request: &DeactivateRequest, deadline: Duration) -> Result<(), Error>;

    /// Stops publication first, then fences every route.
    async fn fail_closed(&self, deadline: Duration) -> Result<(), Error>;

    /// Switches publication of capabilities on or off.
    fn set_publication(&self, enabled: bool);

    /// The capabilities of active routes that `account` may call; none while
    /// publication is off.
    fn capabilities(&self, account: Option<&AccountId>) -> Vec<PublishedCapability>;

    /// Calls a capability in a fresh instance.
    ///
    /// # Errors
    /// The `capability_*` and `connector_*` codes.
    async fn call(&self, request: CallRequest) -> Result<CallResponse, Error>;

    /// All routes, active and retiring.
    fn routes(&self) -> Vec<RouteSummary>;

    /// Ends for good: unpublishes, fences everything, refuses from now on.
    async fn close(&self, deadline: Duration) -> Result<(), Error>;
}
