//! Who puts the files of a release in place.

use std::path::PathBuf;

use async_trait::async_trait;

use crate::domain::{
    digest::Sha256Digest,
    error::Error,
    generation::Generation,
    id::{ConnectorKey, OperationId},
    operation::OperationScope,
    release::Release,
    runtime::ReleaseReceipt,
};

/// A request to put a release in place.
#[derive(Clone, Debug)]
pub struct InstallRequest {
    /// The operation that asks.
    pub operation_id: OperationId,
    /// For which account.
    pub scope: OperationScope,
    /// The operation's generation.
    pub generation: Generation,
    /// The release, as frozen at acceptance.
    pub release: Release,
}

/// A request to remove a connector's files.
#[derive(Clone, Debug)]
pub struct UninstallRequest {
    /// The operation that asks.
    pub operation_id: OperationId,
    /// For which account.
    pub scope: OperationScope,
    /// The operation's generation.
    pub generation: Generation,
    /// The connector; all of its releases go.
    pub connector_key: ConnectorKey,
}

/// What the disk holds of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhysicalState {
    /// Exactly what was verified.
    Present,
    /// Nothing.
    Absent,
    /// Something else than what was verified.
    Invalid,
    /// It cannot be told now.
    Indeterminate,
}

/// The answer to an inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseObservation {
    /// The connector that was inspected.
    pub connector_key: ConnectorKey,
    /// The release that was inspected.
    pub release_digest: Sha256Digest,
    /// What the disk holds.
    pub state: PhysicalState,
    /// A stable word for why.
    pub reason: Option<String>,
}

/// A release whose files are in place and were verified just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedRelease {
    /// The folder that holds the unpacked bundle.
    pub root: PathBuf,
    /// The component inside it.
    pub component: PathBuf,
    /// SHA-256 of the component's bytes, as unpacked from the verified archive.
    pub component_digest: Sha256Digest,
}

/// Puts releases in place, and takes them away.
///
/// Idempotent per (operation, connector, version, release digest): after a crash
/// the same call is made again and answers the same. Nothing of a release runs
/// here. An error is retryable unless it says otherwise; one that says it is not
/// ends the operation.
#[async_trait]
pub trait ReleaseInstaller: Send + Sync {
    /// Fetches, verifies and unpacks. The previous release stays in place.
    async fn install(&self, request: &InstallRequest) -> Result<ReleaseReceipt, Error>;

    /// Makes a received release the current one of its connector; after it is
    /// durable that the release was received, before it is called installed.
    async fn commit(&self, request: &InstallRequest, receipt: &ReleaseReceipt) -> Result<(), Error>;

    /// Tells what the disk holds, running and repairing nothing.
    async fn inspect(&self, release: &Release) -> Result<ReleaseObservation, Error>;

    /// Verifies the files of a release and says where they are. Repairs them from
    /// the verified archive where that is still at hand.
    async fn open(&self, release: &Release) -> Result<PreparedRelease, Error>;

    /// Removes every release of a connector. Removing nothing is a success.
    async fn uninstall(&self, request: &UninstallRequest) -> Result<(), Error>;
}
