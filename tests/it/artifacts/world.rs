//! A catalog in a directory, an installer, and what one can see of its disk.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use portcullis::{
    artifacts::{ArtifactFetcher, LocalInstaller, UnpackLimits, catalog::StaticCatalog},
    domain::{
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        generation::Generation,
        id::{ConnectorKey, OperationId},
        manifest::Manifest,
        operation::OperationScope,
        release::{Artifact, MEDIA_TYPE_BUNDLE, MEDIA_TYPE_COMPONENT, Release},
        runtime::ReleaseReceipt,
        timestamp::Timestamp,
    },
    ports::{InstallRequest, PhysicalState, ReleaseInstaller as _, UninstallRequest},
};
use tempfile::TempDir;

use super::archive::Tar;

pub(crate) const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0 not much of a component";

/// Passes on to another fetcher, and counts.
pub(crate) struct Counted {
    inner: Arc<dyn ArtifactFetcher>,
    pub(crate) fetched: AtomicUsize,
}

#[async_trait]
impl ArtifactFetcher for Counted {
    async fn fetch(&self, release: &Release, destination: &Path) -> Result<(), Error> {
        self.fetched.fetch_add(1, Ordering::SeqCst);
        self.inner.fetch(release, destination).await
    }
}

pub(crate) struct World {
    folder: TempDir,
    pub(crate) fetcher: Arc<Counted>,
    pub(crate) installer: LocalInstaller,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        fs::create_dir(folder.path().join("catalog")).expect("a catalog");
        let location = folder.path().join("catalog");
        let catalog = StaticCatalog::new(location.to_str().expect("text"), &[]).expect("a catalog");
        Self::over(folder, Arc::new(catalog), UnpackLimits::default())
    }

    pub(crate) fn with_limits(limits: UnpackLimits) -> Self {
        let Self { folder, fetcher, .. } = Self::new();
        Self::over(folder, Arc::clone(&fetcher.inner), limits)
    }

    pub(crate) fn with_fetcher(inner: Arc<dyn ArtifactFetcher>) -> Self {
        let folder = TempDir::new().expect("a folder");
        Self::over(folder, inner, UnpackLimits::default())
    }

    fn over(folder: TempDir, inner: Arc<dyn ArtifactFetcher>, limits: UnpackLimits) -> Self {
        let fetcher = Arc::new(Counted { inner, fetched: AtomicUsize::new(0) });
        let root = folder.path().join("store");
        let installer =
            LocalInstaller::with_limits(root, Arc::clone(&fetcher) as _, limits).expect("an installer");
        Self { folder, fetcher, installer }
    }

    /// As after a restart: what was in memory is gone.
    pub(crate) fn restart(&mut self) {
        self.installer =
            LocalInstaller::new(self.root(), Arc::clone(&self.fetcher) as _).expect("an installer");
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(crate) fn catalog(&self) -> PathBuf {
        self.folder.path().join("catalog")
    }

    /// Puts bytes into the catalog and describes them truthfully.
    pub(crate) fn publish(&self, version: &str, bytes: &[u8]) -> Release {
        let release = describe("echo", version, bytes, MEDIA_TYPE_BUNDLE);
        fs::write(self.catalog().join(&release.artifact.key), bytes).expect("published");
        release
    }

    pub(crate) fn publish_honest(&self, version: &str) -> Release {
        self.publish(version, &honest(version))
    }

    pub(crate) async fn install(&self, operation: &str, release: &Release) -> Result<ReleaseReceipt, Error> {
        self.installer.install(&request(operation, release)).await
    }

    pub(crate) async fn commit(&self, operation: &str, release: &Release) -> Result<(), Error> {
        let receipt = self.install(operation, release).await?;
        self.installer.commit(&request(operation, release), &receipt).await
    }

    pub(crate) async fn uninstall(&self, key: &str) -> Result<(), Error> {
        let request = UninstallRequest {
            operation_id: OperationId::parse("uninstall").expect("an id"),
            scope: OperationScope::default(),
            generation: generation(),
            connector_key: ConnectorKey::parse(key).expect("a key"),
        };
        self.installer.uninstall(&request).await
    }

    pub(crate) async fn state(&self, release: &Release) -> (PhysicalState, Option<String>) {
        let observed = self.installer.inspect(release).await.expect("an observation");
        assert_eq!(observed.release_digest, release.release_digest);
        (observed.state, observed.reason)
    }

    pub(crate) fn fetches(&self) -> usize {
        self.fetcher.fetched.load(Ordering::SeqCst)
    }

    /// Where the files of a release lie.
    pub(crate) fn tree(&self, release: &Release) -> PathBuf {
        self.root()
            .join("releases")
            .join(release.connector_key.as_str())
            .join(release.version.to_string())
            .join(release.release_digest.to_string())
    }

    pub(crate) fn archive(&self, release: &Release) -> PathBuf {
        self.root().join("archives/sha256").join(release.artifact.sha256.to_string())
    }

    /// Everything the installer has on disk, with modes.
    pub(crate) fn disk(&self) -> BTreeMap<String, (u32, Vec<u8>)> {
        everything(&self.root())
    }

    /// A refused installation changes nothing: same disk as before, and what was
    /// installed still opens.
    pub(crate) async fn refuses(&self, release: &Release) -> Error {
        let before = self.disk();
        let error = self.install("refused", release).await.expect_err("it is refused");
        let after = self.disk();
        assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "nothing is left");
        assert!(before == after, "nothing changed");
        error
    }
}

/// Every file and folder beneath a folder.
pub(crate) fn everything(root: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("metadata");
            let bytes = if metadata.is_file() { fs::read(&path).expect("a file") } else { Vec::new() };
            let name = path.strip_prefix(root).expect("beneath").display().to_string();
            found.insert(name, (metadata.permissions().mode() & 0o777, bytes));
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

pub(crate) fn generation() -> Generation {
    Generation { boot_epoch: "boot".parse().expect("an epoch"), number: 1 }
}

pub(crate) fn request(operation: &str, release: &Release) -> InstallRequest {
    InstallRequest {
        operation_id: OperationId::parse(operation).expect("an id"),
        scope: OperationScope::default(),
        generation: generation(),
        release: release.clone(),
    }
}

/// The manifest of every connector in these tests.
pub(crate) fn manifest() -> String {
    serde_json::json!({
        "schemaVersion": "1",
        "displayName": "Echo",
        "iconUrl": "https://example.org/echo.svg",
        "authorizationKind": "none",
        "implementation": {
            "kind": "wasm_component",
            "world": "portcullis:connector/connector@0.1.0"
        }
    })
    .to_string()
}

/// The bundle of a version.
pub(crate) fn honest(version: &str) -> Vec<u8> {
    Tar::bundle(&manifest()).file("README.md", version.as_bytes()).gzip()
}

pub(crate) fn describe(key: &str, version: &str, bytes: &[u8], media_type: &str) -> Release {
    let artifact = Artifact {
        key: format!("{key}-{version}.artifact"),
        sha256: Sha256Digest::of(bytes),
        size_bytes: i64::try_from(bytes.len()).expect("a size"),
        media_type: media_type.to_owned(),
        object_version: None,
    };
    let manifest = Manifest::parse(manifest().as_bytes()).expect("a manifest");
    let key = key.parse().expect("a key");
    Release::assemble(key, version.parse().expect("a version"), manifest, artifact, Timestamp(1))
        .expect("valid")
}

/// A bare component.
pub(crate) fn bare(key: &str, version: &str, bytes: &[u8]) -> Release {
    describe(key, version, bytes, MEDIA_TYPE_COMPONENT)
}

/// Code and whether a retry can help.
pub(crate) fn verdict(error: &Error) -> (ErrorCode, bool) {
    (error.code, error.retryable)
}
