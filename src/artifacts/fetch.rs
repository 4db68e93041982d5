//! Brings the bytes of a release to the disk, verified while they come in.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::io::ReaderStream;

use super::{disk, http::Remote};
use crate::domain::{
    digest::Sha256Digest,
    error::{Error, ErrorCode},
    manifest::is_safe_relative_path,
    release::{Artifact, MEDIA_TYPE_BUNDLE, Release},
};

/// How long one artifact may take, whatever the server does.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Where the bytes of releases come from.
#[async_trait]
pub trait ArtifactFetcher: Send + Sync {
    /// Writes the artifact of `release` to the new file `destination`, durable and
    /// with exactly the size and SHA-256 of the release. After an error nothing
    /// is left at `destination`.
    ///
    /// # Errors
    /// The `artifact_*` codes, retryable only where the network may heal.
    async fn fetch(&self, release: &Release, destination: &Path) -> Result<(), Error>;
}

/// The files of a directory.
#[derive(Clone, Debug)]
pub(super) struct DirectoryFiles {
    root: PathBuf,
}

impl DirectoryFiles {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The file of a key: inside the directory even where links point elsewhere.
    fn locate(&self, key: &str) -> io::Result<PathBuf> {
        let root = fs::canonicalize(&self.root)?;
        let path = fs::canonicalize(root.join(key))?;
        if path.starts_with(&root) {
            Ok(path)
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is a link out of the catalog"))
        }
    }
}

#[async_trait]
impl ArtifactFetcher for DirectoryFiles {
    async fn fetch(&self, release: &Release, destination: &Path) -> Result<(), Error> {
        let artifact = &release.artifact;
        check_key(release)?;
        let files = self.clone();
        let key = artifact.key.clone();
        let opened = tokio::task::spawn_blocking(move || disk::open_file(&files.locate(&key)?)).await;
        let file = opened.unwrap_or_else(|cause| Err(io::Error::other(cause))).map_err(|cause| {
            Error::new(
                ErrorCode::ArtifactUnavailable,
                format!(
                    "{}: the catalog's file {:?} cannot be read: {cause}",
                    release.release_id, artifact.key
                ),
            )
            .with_retryable(false)
            .with_cause(cause)
        })?;
        let most = size_of(artifact).saturating_add(1);
        let file = tokio::fs::File::from_std(file).take(most);
        let stream = ReaderStream::with_capacity(file, 128 * 1024).map_err(|cause| {
            Error::new(ErrorCode::ArtifactUnavailable, "the catalog's file cannot be read to its end")
                .with_retryable(false)
                .with_cause(cause)
        });
        receive(release, destination, stream).await
    }
}

#[async_trait]
impl ArtifactFetcher for Remote {
    async fn fetch(&self, release: &Release, destination: &Path) -> Result<(), Error> {
        check_key(release)?;
        let fetch = async {
            let unavailable =
                |failure: super::http::Failure| failure.into_error(ErrorCode::ArtifactUnavailable);
            let url = self.resolve(&release.artifact.key).map_err(unavailable)?;
            let response = self.get(url.clone(), HeaderMap::new()).await.map_err(unavailable)?;
            check_headers(release, response.headers())?;
            let stream = response.bytes_stream().map_err(|cause| {
                Error::new(ErrorCode::ArtifactUnavailable, format!("{url} broke off before its end"))
                    .with_cause(cause.without_url())
            });
            receive(release, destination, stream).await
        };
        match tokio::time::timeout(FETCH_TIMEOUT, fetch).await {
            Ok(fetched) => fetched,
            Err(_) => {
                discard(destination).await;
                Err(Error::new(
                    ErrorCode::ArtifactUnavailable,
                    format!("{}: the artifact took longer than {FETCH_TIMEOUT:?}", release.release_id),
                ))
            }
        }
    }
}

/// Refuses an answer that says of itself that it is something else.
fn check_headers(release: &Release, headers: &HeaderMap) -> Result<(), Error> {
    let artifact = &release.artifact;
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let length =
        text(header::CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok()).filter(|&one| one > 0);
    if let Some(length) = length
        && length != size_of(artifact)
    {
        return Err(wrong_size(release, &format!("the server announces {length}")));
    }
    let essence = text(header::CONTENT_TYPE)
        .and_then(|text| text.split(';').next())
        .map(|text| text.trim().to_ascii_lowercase())
        .filter(|text| !text.is_empty());
    match essence {
        Some(served) if !is_compatible(&served, &artifact.media_type) => Err(Error::new(
            ErrorCode::ArtifactMediaTypeUnsupported,
            format!(
                "{}: the server sends {served:?} where the release says {:?}",
                release.release_id, artifact.media_type
            ),
        )),
        _ => Ok(()),
    }
}

/// Whether a server that says `served` may be sending `declared`: the same, or a
/// name so general that it says nothing else.
fn is_compatible(served: &str, declared: &str) -> bool {
    const GENERAL: [&str; 3] = ["application/octet-stream", "binary/octet-stream", "application/binary"];
    const GZIP: [&str; 7] = [
        "application/gzip",
        "application/x-gzip",
        "application/tar+gzip",
        "application/x-tar",
        "application/x-gtar",
        "application/x-tgz",
        "application/x-compressed-tar",
    ];
    served.eq_ignore_ascii_case(declared)
        || GENERAL.contains(&served)
        || (declared == MEDIA_TYPE_BUNDLE && GZIP.contains(&served))
}

fn check_key(release: &Release) -> Result<(), Error> {
    if is_safe_relative_path(&release.artifact.key) {
        return Ok(());
    }
    Err(Error::invalid_manifest(format!(
        "release {}: artifact.key must be a relative path",
        release.release_id
    )))
}

/// Writes a stream to a new file, at most as many bytes as were declared.
async fn receive(
    release: &Release,
    destination: &Path,
    stream: impl Stream<Item = Result<Bytes, Error>> + Send,
) -> Result<(), Error> {
    let received = write(release, destination, stream).await;
    if received.is_err() {
        discard(destination).await;
    }
    received
}

async fn write(
    release: &Release,
    destination: &Path,
    stream: impl Stream<Item = Result<Bytes, Error>> + Send,
) -> Result<(), Error> {
    let expected = size_of(&release.artifact);
    let file = disk::create_file(destination).map_err(|cause| disk::failed("create a download", cause))?;
    let mut file = tokio::fs::File::from_std(file);
    let mut hasher = Sha256::new();
    let mut received = 0_u64;
    let mut stream = std::pin::pin!(stream);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        received += chunk.len() as u64;
        if received > expected {
            return Err(wrong_size(release, "there are more"));
        }
        hasher.update(&chunk);
        file.write_all(&chunk).await.map_err(|cause| disk::failed("write a download", cause))?;
    }
    if received < expected {
        return Err(wrong_size(release, &format!("there are {received}")));
    }
    let digest = Sha256Digest::from_bytes(hasher.finalize().into());
    if digest != release.artifact.sha256 {
        return Err(Error::new(
            ErrorCode::ArtifactDigestMismatch,
            format!(
                "{}: the artifact's SHA-256 is {digest}, the release says {}",
                release.release_id, release.artifact.sha256
            ),
        ));
    }
    let durable = async {
        file.sync_all().await?;
        let parent = destination.parent().unwrap_or(Path::new("/"));
        tokio::fs::File::open(parent).await?.sync_all().await
    };
    durable.await.map_err(|cause| disk::failed("make a download durable", cause))
}

async fn discard(destination: &Path) {
    if let Err(cause) = tokio::fs::remove_file(destination).await
        && cause.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%cause, "a refused download could not be removed; the next start removes it");
    }
}

fn size_of(artifact: &Artifact) -> u64 {
    u64::try_from(artifact.size_bytes).unwrap_or(0)
}

fn wrong_size(release: &Release, what: &str) -> Error {
    Error::new(
        ErrorCode::ArtifactSizeMismatch,
        format!("{}: the release says {} bytes, {what}", release.release_id, release.artifact.size_bytes),
    )
}
