//! The installer of this machine: fetch, verify, unpack, put in place.

use std::{fmt, path::PathBuf, sync::Arc};

use async_trait::async_trait;

use super::{
    bundle,
    content::{ArchiveState, ContentStore},
    fetch::ArtifactFetcher,
    inventory::Damage,
    lanes::Lanes,
    preparation::{Preparation, blocking},
    tree::{self, Verified},
    unpack::UnpackLimits,
};
use crate::{
    domain::{
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        release::Release,
        runtime::ReleaseReceipt,
    },
    ports::{
        InstallRequest, PhysicalState, PreparedRelease, ReleaseInstaller, ReleaseObservation,
        UninstallRequest,
    },
};

/// Bytes of one archive.
const ARCHIVE_BYTES: u64 = 256 << 20;
/// Preparations at the same time, whatever their connectors.
const PREPARATIONS: usize = 4;

/// Installs releases under one folder of this machine.
///
/// Per connector one thing happens at a time. Work on the disk outlives a caller
/// that stops waiting, and keeps the connector's lane until it has ended.
pub struct LocalInstaller {
    store: Arc<ContentStore>,
    fetcher: Arc<dyn ArtifactFetcher>,
    lanes: Lanes,
}

impl fmt::Debug for LocalInstaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalInstaller").finish_non_exhaustive()
    }
}

impl LocalInstaller {
    /// An installer that keeps everything under `root`, with the default limits.
    ///
    /// # Errors
    /// When the folders cannot be made.
    pub fn new(root: PathBuf, fetcher: Arc<dyn ArtifactFetcher>) -> Result<Self, Error> {
        Self::with_limits(root, fetcher, UnpackLimits::default())
    }

    /// As [`Self::new`], with other limits.
    ///
    /// # Errors
    /// When the folders cannot be made.
    pub fn with_limits(
        root: PathBuf,
        fetcher: Arc<dyn ArtifactFetcher>,
        limits: UnpackLimits,
    ) -> Result<Self, Error> {
        let store = Arc::new(ContentStore::open(&root, limits)?);
        Ok(Self { store, fetcher, lanes: Lanes::new(PREPARATIONS) })
    }

    /// Drops what interrupted runs left behind. To be called once, before anything
    /// else is asked of this installer, while no other process uses its folder.
    ///
    /// # Errors
    /// When the folder cannot be read or cleaned.
    pub async fn recover(&self) -> Result<(), Error> {
        let store = Arc::clone(&self.store);
        blocking(move || store.recover()).await
    }

    async fn begin(&self, release: &Release, name: String) -> Result<Arc<Preparation>, Error> {
        let turn = self.lanes.enter(&release.connector_key).await?;
        Preparation::begin(&self.store, release.clone(), turn, name).await
    }

    /// Brings the archive of a release into the store, then its files in place.
    async fn prepare(&self, preparation: &Arc<Preparation>) -> Result<Sha256Digest, Error> {
        if preparation.run(Preparation::archive).await? != ArchiveState::Verified {
            self.fetcher.fetch(&preparation.release, &preparation.download()).await?;
            preparation.run(Preparation::keep_download).await?;
        }
        preparation.run(Preparation::put_in_place).await
    }

    /// Verified files of a release, repaired where that takes no network.
    async fn sound(&self, release: &Release) -> Result<Verified, Error> {
        let store = Arc::clone(&self.store);
        let wanted = release.clone();
        if let Ok(verified) = blocking(move || Ok(store.verify_fast(&wanted))).await? {
            return Ok(verified);
        }
        // Judged again in the lane: whoever was in it may have been repairing.
        let preparation = self.begin(release, "repair".into()).await?;
        let repaired = preparation.run(Preparation::verified_or_repaired_if_kept).await;
        preparation.end(false).await;
        repaired
    }

    fn check(release: &Release) -> Result<(), Error> {
        release.validate()?;
        tree::check_version(release)
    }
}

#[async_trait]
impl ReleaseInstaller for LocalInstaller {
    async fn install(&self, request: &InstallRequest) -> Result<ReleaseReceipt, Error> {
        let release = &request.release;
        Self::check(release)?;
        bundle::check_artifact(release, &self.store.limits, ARCHIVE_BYTES)?;
        let preparation = self.begin(release, format!("install\0{}", request.operation_id)).await?;
        let prepared = self.prepare(&preparation).await;
        preparation.end(prepared.is_ok()).await;
        Ok(ReleaseReceipt {
            operation_id: request.operation_id.clone(),
            connector_key: release.connector_key.clone(),
            version: release.version.clone(),
            release_digest: release.release_digest,
            artifact_sha256: release.artifact.sha256,
            inventory_digest: prepared?,
        })
    }

    async fn commit(&self, request: &InstallRequest, receipt: &ReleaseReceipt) -> Result<(), Error> {
        let release = &request.release;
        Self::check(release)?;
        let same = receipt.connector_key == release.connector_key
            && receipt.version == release.version
            && receipt.release_digest == release.release_digest
            && receipt.artifact_sha256 == release.artifact.sha256;
        if !same {
            return Err(Error::new(
                ErrorCode::InstallFailed,
                format!("{}: the receipt is of another release", release.release_id),
            ));
        }
        let expected = receipt.inventory_digest;
        let preparation = self.begin(release, format!("commit\0{}", request.operation_id)).await?;
        let committed = preparation
            .run(move |one| {
                if one.verified_or_repaired()?.inventory_digest != expected {
                    return Err(Error::new(
                        ErrorCode::InstallFailed,
                        format!(
                            "{}: the files in place are not those of the receipt",
                            one.release.release_id
                        ),
                    ));
                }
                one.store.commit(&one.release)
            })
            .await;
        preparation.end(committed.is_ok()).await;
        committed
    }

    async fn inspect(&self, release: &Release) -> Result<ReleaseObservation, Error> {
        Self::check(release)?;
        let turn = self.lanes.try_enter(&release.connector_key);
        let busy = turn.is_none();
        let store = Arc::clone(&self.store);
        let wanted = release.clone();
        let judged = blocking(move || {
            let judged = store.verify(&wanted);
            drop(turn);
            Ok(judged)
        })
        .await?;
        let (state, reason) = match judged {
            Ok(_) => (PhysicalState::Present, None),
            // Whoever is in the lane may be changing what was just seen.
            Err(_) if busy => (PhysicalState::Indeterminate, Some("artifact_busy")),
            Err(Damage::Absent) => (PhysicalState::Absent, Some("artifact_absent")),
            Err(Damage::Invalid(reason)) => (PhysicalState::Invalid, Some(reason)),
            Err(Damage::Unreadable(cause)) => {
                tracing::warn!(%cause, release = %release.release_id, "the files of a release cannot be read");
                (PhysicalState::Indeterminate, Some("artifact_unreadable"))
            }
        };
        Ok(ReleaseObservation {
            connector_key: release.connector_key.clone(),
            release_digest: release.release_digest,
            state,
            reason: reason.map(str::to_owned),
        })
    }

    async fn open(&self, release: &Release) -> Result<PreparedRelease, Error> {
        Self::check(release)?;
        let elsewhere = || {
            Error::new(
                ErrorCode::UnsupportedImplementation,
                format!("{}: it runs elsewhere and has no component to open", release.release_id),
            )
        };
        bundle::component_path(release).ok_or_else(elsewhere)?;
        let verified = self.sound(release).await?;
        let (component, component_digest) = verified.component.ok_or_else(elsewhere)?;
        Ok(PreparedRelease { root: verified.content, component, component_digest })
    }

    async fn uninstall(&self, request: &UninstallRequest) -> Result<(), Error> {
        let turn = self.lanes.enter(&request.connector_key).await?;
        let store = Arc::clone(&self.store);
        let key = request.connector_key.clone();
        blocking(move || {
            let removed = store.remove_connector(&key);
            drop(turn);
            removed
        })
        .await
    }
}
