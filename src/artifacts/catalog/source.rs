//! Where a static catalog lies, and the last document read from there.

use std::{
    fmt, fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::TryStreamExt as _;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::{sync::Mutex, time::Instant};

use super::{document::CATALOG_FILE, pages::Edition};
use crate::{
    artifacts::{
        disk,
        fetch::{ArtifactFetcher, DirectoryFiles},
        http::Remote,
    },
    domain::{
        catalog::{CatalogCategory, CatalogContents, SourcePage, SourcePageQuery},
        error::{Error, ErrorCode},
        release::Release,
    },
    ports::CatalogSource,
};

const DOCUMENT_BYTES: u64 = 64 << 20;
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// For so long, unless told otherwise, pages are read from the document at hand, so that turning pages
/// asks the server once. Reading everything always asks.
const FRESH: Duration = Duration::from_secs(30);

/// Whether an answer may come from the document at hand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// A document that was read a moment ago will do.
    Recent,
    /// Only what the catalog holds now.
    Now,
}

/// A catalog of one document, in a directory or behind any web server.
pub struct StaticCatalog {
    name: String,
    place: Place,
    fresh: Duration,
    held: Mutex<Option<Held>>,
}

enum Place {
    Directory { root: PathBuf, files: DirectoryFiles },
    Remote(Remote),
}

struct Held {
    edition: Arc<Edition>,
    version: Version,
    checked_at: Instant,
}

/// What tells whether the document changed.
enum Version {
    File(FileVersion),
    Response { etag: Option<HeaderValue>, last_modified: Option<HeaderValue> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl StaticCatalog {
    /// A catalog at `location`: a directory, or an `https://` URL; `http://` only
    /// for loopback hosts and `plain_http_hosts`. Either may name the document.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidRequest`] when the location cannot be one.
    pub fn new(location: &str, plain_http_hosts: &[String]) -> Result<Self, Error> {
        let location = location.trim();
        if location.is_empty() {
            return Err(Error::invalid_request("a catalog is a directory or a URL"));
        }
        if location.contains("://") {
            let base = location.strip_suffix(CATALOG_FILE).filter(|base| base.ends_with('/'));
            let remote = Remote::new(base.unwrap_or(location), plain_http_hosts)?;
            return Ok(Self::at(remote.base().to_string(), Place::Remote(remote)));
        }
        let path = Path::new(location);
        let root = if path.file_name().is_some_and(|name| name == CATALOG_FILE) && !path.is_dir() {
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
        } else {
            path
        };
        let files = DirectoryFiles::new(root.to_path_buf());
        Ok(Self::at(location.to_owned(), Place::Directory { root: root.to_path_buf(), files }))
    }

    fn at(name: String, place: Place) -> Self {
        Self { name, place, fresh: FRESH, held: Mutex::new(None) }
    }

    /// The same, reading pages for at most `fresh` without asking whether the
    /// document changed.
    #[must_use]
    pub fn fresh_for(mut self, fresh: Duration) -> Self {
        self.fresh = fresh;
        self
    }

    /// How the operator knows it: the location.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The document, read again only when it may have changed.
    pub(super) async fn edition(&self, freshness: Freshness) -> Result<Arc<Edition>, Error> {
        let mut held = self.held.lock().await;
        if let Some(held) = &*held
            && freshness == Freshness::Recent
            && held.checked_at.elapsed() < self.fresh
        {
            return Ok(Arc::clone(&held.edition));
        }
        let known = held.as_ref().map(|held| &held.version);
        let read = match &self.place {
            Place::Directory { root, .. } => self.read_file(root, known).await,
            Place::Remote(remote) => self.download(remote, known).await,
        };
        let checked_at = Instant::now();
        match (read?, &mut *held) {
            (None, Some(held)) => {
                held.checked_at = checked_at;
                Ok(Arc::clone(&held.edition))
            }
            (Some((json, version)), held) => {
                let edition = tokio::task::spawn_blocking(move || Edition::read(&json)).await;
                let edition = edition
                    .unwrap_or_else(|cause| {
                        Err(Error::unavailable("the catalog was not read").with_cause(cause))
                    })
                    .map_err(|error| self.told(error))?;
                let edition = Arc::new(edition);
                *held = Some(Held { edition: Arc::clone(&edition), version, checked_at });
                Ok(edition)
            }
            (None, None) => {
                Err(self.told(Error::new(ErrorCode::UpstreamUnavailable, "it answered without a document")))
            }
        }
    }

    /// The document at hand, without asking whether it changed.
    pub(super) async fn held(&self) -> Option<Arc<Edition>> {
        self.held.lock().await.as_ref().map(|held| Arc::clone(&held.edition))
    }

    async fn read_file(
        &self,
        root: &Path,
        known: Option<&Version>,
    ) -> Result<Option<(Vec<u8>, Version)>, Error> {
        let path = root.join(CATALOG_FILE);
        let known = match known {
            Some(Version::File(version)) => Some(*version),
            _ => None,
        };
        let read = tokio::task::spawn_blocking(move || {
            let file = disk::open_file(&fs::canonicalize(path)?)?;
            let metadata = file.metadata()?;
            let version = FileVersion {
                device: metadata.dev(),
                inode: metadata.ino(),
                size: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            };
            if known == Some(version) {
                return Ok(None);
            }
            let mut json = Vec::new();
            file.take(DOCUMENT_BYTES + 1).read_to_end(&mut json)?;
            if json.len() as u64 > DOCUMENT_BYTES {
                let message = format!("it is larger than {DOCUMENT_BYTES} bytes");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
            }
            Ok(Some((json, Version::File(version))))
        });
        read.await.unwrap_or_else(|cause| Err(io::Error::other(cause))).map_err(|cause| {
            let message = format!("{CATALOG_FILE} cannot be read: {cause}");
            self.told(Error::new(ErrorCode::UpstreamUnavailable, message).with_cause(cause))
        })
    }

    async fn download(
        &self,
        remote: &Remote,
        known: Option<&Version>,
    ) -> Result<Option<(Vec<u8>, Version)>, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(Version::Response { etag, last_modified }) = known {
            // A server that gives both is asked by the stronger one alone.
            if let Some(etag) = etag {
                headers.insert(header::IF_NONE_MATCH, etag.clone());
            } else if let Some(moment) = last_modified {
                headers.insert(header::IF_MODIFIED_SINCE, moment.clone());
            }
        }
        let unavailable = |message: &str| Error::new(ErrorCode::UpstreamUnavailable, message);
        let download = async {
            let url = remote.resolve(CATALOG_FILE);
            let url = url.map_err(|failure| failure.into_error(ErrorCode::UpstreamUnavailable))?;
            let response = remote.get(url, headers).await;
            let response = response.map_err(|failure| failure.into_error(ErrorCode::UpstreamUnavailable))?;
            if response.status() == StatusCode::NOT_MODIFIED {
                return Ok(None);
            }
            let too_large = || {
                unavailable(&format!("{CATALOG_FILE} is larger than {DOCUMENT_BYTES} bytes"))
                    .with_retryable(false)
            };
            if response.content_length().is_some_and(|length| length > DOCUMENT_BYTES) {
                return Err(too_large());
            }
            let version = Version::Response {
                etag: response.headers().get(header::ETAG).cloned(),
                last_modified: response.headers().get(header::LAST_MODIFIED).cloned(),
            };
            let mut json = Vec::new();
            let mut stream = response.bytes_stream();
            while let Some(chunk) = stream.try_next().await.map_err(|cause| {
                unavailable(&format!("{CATALOG_FILE} broke off before its end"))
                    .with_cause(cause.without_url())
            })? {
                if json.len() as u64 + chunk.len() as u64 > DOCUMENT_BYTES {
                    return Err(too_large());
                }
                json.extend_from_slice(&chunk);
            }
            Ok(Some((json, version)))
        };
        match tokio::time::timeout(DOCUMENT_TIMEOUT, download).await {
            Ok(downloaded) => downloaded.map_err(|error| self.told(error)),
            Err(_) => Err(self.told(unavailable(&format!("it took longer than {DOCUMENT_TIMEOUT:?}")))),
        }
    }

    /// An error that says which catalog it is about.
    fn told(&self, mut error: Error) -> Error {
        error.message = format!("catalog {}: {}", self.name, error.message);
        error
    }
}

impl fmt::Debug for StaticCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticCatalog").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl CatalogSource for StaticCatalog {
    async fn categories(&self) -> Result<Vec<CatalogCategory>, Error> {
        Ok(self.edition(Freshness::Recent).await?.categories())
    }

    async fn page(&self, query: &SourcePageQuery) -> Result<SourcePage, Error> {
        self.edition(Freshness::Recent).await?.page(query)
    }

    async fn contents(&self) -> Result<CatalogContents, Error> {
        Ok(self.edition(Freshness::Now).await?.contents())
    }
}

#[async_trait]
impl ArtifactFetcher for StaticCatalog {
    async fn fetch(&self, release: &Release, destination: &Path) -> Result<(), Error> {
        match &self.place {
            Place::Directory { files, .. } => files.fetch(release, destination).await,
            Place::Remote(remote) => remote.fetch(release, destination).await,
        }
    }
}
