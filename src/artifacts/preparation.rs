//! One piece of work on the files of one release: its staging folder, its hold on
//! the archive, its turn in the connector's lane.

use std::{path::PathBuf, sync::Arc};

use super::{
    bundle,
    content::{ArchiveState, ContentStore},
    disk,
    inventory::Damage,
    lanes::Turn,
    tree::Verified,
};
use crate::domain::{
    digest::Sha256Digest,
    error::{Error, ErrorCode},
    release::Release,
};

/// Shared with the thread that works on the disk, so that an abandoned caller
/// neither frees the lane nor pulls the staging folder away while that works.
pub(super) struct Preparation {
    pub(super) store: Arc<ContentStore>,
    pub(super) release: Release,
    pub(super) staging: PathBuf,
    turn: Option<Turn>,
}

impl Preparation {
    /// Begins; `name` tells one piece of work on a release from another.
    pub(super) async fn begin(
        store: &Arc<ContentStore>,
        release: Release,
        turn: Turn,
        name: String,
    ) -> Result<Arc<Self>, Error> {
        let store = Arc::clone(store);
        blocking(move || {
            let staging = store.stage(&format!("{name}\0{}", release.release_digest))?;
            store.pin(release.artifact.sha256);
            Ok(Arc::new(Self { store, release, staging, turn: Some(turn) }))
        })
        .await
    }

    /// Runs a step that works on the disk.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        step: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let one = Arc::clone(self);
        blocking(move || step(&one)).await
    }

    /// Ends it: staging goes, and then what nothing needs any more; with
    /// `replaces`, the connector's releases that this one takes the place of.
    /// What cannot be removed is removed the next time.
    pub(super) async fn end(self: Arc<Self>, replaces: bool) {
        let ended = blocking(move || {
            let store = Arc::clone(&self.store);
            let release = self.release.clone();
            let turn = Arc::into_inner(self).and_then(|mut one| one.turn.take());
            let ended = if replaces { store.prune(&release) } else { store.collect() };
            drop(turn);
            ended
        })
        .await;
        if let Err(error) = ended {
            tracing::warn!(%error, "files that are no longer needed were not removed");
        }
    }

    /// Where a fetcher puts the archive.
    pub(super) fn download(&self) -> PathBuf {
        self.staging.join("archive")
    }

    /// What the store has of the archive.
    pub(super) fn archive(&self) -> Result<ArchiveState, Error> {
        self.store.check_archive(&self.release.artifact)
    }

    /// Takes the fetched archive into the store. What a fetcher promises is
    /// checked once more, here where it counts.
    pub(super) fn keep_download(&self) -> Result<(), Error> {
        let artifact = &self.release.artifact;
        match ContentStore::check_file(&self.download(), artifact)? {
            ArchiveState::Verified => self.store.keep_archive(&self.download(), &artifact.sha256),
            ArchiveState::Missing | ArchiveState::Damaged => Err(Error::new(
                ErrorCode::ArtifactDigestMismatch,
                format!("{}: what was fetched is not the released artifact", self.release.release_id),
            )),
        }
    }

    /// Unpacks the verified archive and puts the files in place. The answer is the
    /// digest of their inventory.
    pub(super) fn put_in_place(&self) -> Result<Sha256Digest, Error> {
        let content = self.staging.join("content");
        disk::remove(&content).map_err(|cause| disk::failed("empty a staging folder", cause))?;
        disk::ensure_folder(&self.staging, &["content"])?;
        let archive = self.store.archive(&self.release.artifact.sha256);
        let inventory = bundle::lay_out(&archive, &content, &self.release, &self.store.limits)?;
        self.store.promote(&self.staging, &self.release, &inventory)?;
        Ok(inventory.digest())
    }

    /// As [`Self::verified_or_repaired`]; but files that are missing of a release
    /// that is not committed were removed, and stay so.
    pub(super) fn verified_or_repaired_if_kept(&self) -> Result<Verified, Error> {
        match self.store.verify(&self.release) {
            Err(Damage::Absent) if !self.store.is_committed(&self.release)? => Err(Error::new(
                ErrorCode::ArtifactUnavailable,
                format!("{}: it is not installed; install it again", self.release.release_id),
            )
            .with_retryable(false)),
            Ok(verified) => Ok(verified),
            Err(_) => self.verified_or_repaired(),
        }
    }

    /// Verified files, put in place anew from the archive where they are damaged.
    pub(super) fn verified_or_repaired(&self) -> Result<Verified, Error> {
        let id = &self.release.release_id;
        let damage = match self.store.verify(&self.release) {
            Ok(verified) => return Ok(verified),
            Err(Damage::Unreadable(cause)) => return Err(disk::failed("read the files of a release", cause)),
            Err(Damage::Absent) => "missing",
            Err(Damage::Invalid(_)) => "damaged",
        };
        match self.archive()? {
            ArchiveState::Verified => {
                tracing::warn!(release = %id, damage, "the files of a release are put in place anew");
                self.put_in_place()?;
                self.store.verify(&self.release).map_err(|_| {
                    Error::unavailable(format!("{id}: its files changed while they were put in place"))
                })
            }
            ArchiveState::Missing => Err(Error::new(
                ErrorCode::ArtifactUnavailable,
                format!("{id}: its files are {damage} and there is no archive to repair them from; install it again"),
            )
            .with_retryable(false)),
            ArchiveState::Damaged => Err(Error::new(
                ErrorCode::ArtifactDigestMismatch,
                format!("{id}: its files are {damage} and so is the archive; install it again"),
            )),
        }
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        self.store.unpin(self.release.artifact.sha256);
        if let Err(cause) = disk::remove(&self.staging) {
            tracing::warn!(%cause, "a staging folder was not removed; the next start removes it");
        }
    }
}

/// Runs `work` off the async threads. What it holds is dropped before the answer.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|cause| Error::unavailable("work on the artifact store was interrupted").with_cause(cause))?
}
