//! Compiled components: in memory while a route uses them, on disk for the next start.
//!
//! Loading native code is unsafe. A file is loaded only when its SHA-256 is the one
//! that this daemon noted in its database when it wrote it; the bytes that were
//! hashed are the bytes that are loaded. Any other file is ignored and written anew.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use wasmtime::component::Component;

use super::{compiler::Compiler, counters::Counters, engine::SharedEngine, guest_text};
use crate::{
    artifacts::read_small,
    domain::{
        digest::Sha256Digest,
        error::{Error, ErrorCode},
    },
    ports::{CompiledComponent, PreparedRelease, SandboxLedger},
};

/// The largest component.
const COMPONENT_BYTES: u64 = 128 << 20;
/// Components that are compiled at a time. Each uses every core by itself; the second
/// is there so that one that takes long does not hold up all others.
const COMPILATIONS: usize = 2;
/// How the names of files begin that are not whole yet.
const UNFINISHED: &str = "unfinished-";

/// A compiled component, shared by all routes that run it.
pub(crate) struct Loaded(pub(crate) Component);

type Slot = Arc<AsyncMutex<Weak<Loaded>>>;

/// The compiled components.
pub(crate) struct Cache {
    folder: PathBuf,
    engine: SharedEngine,
    compiler: Option<Compiler>,
    ledger: Arc<dyn SandboxLedger>,
    counters: Arc<Counters>,
    slots: Mutex<HashMap<Sha256Digest, Slot>>,
    compilations: Semaphore,
}

impl Cache {
    /// A cache in `folder`, which is made private. Without a `compiler` components
    /// are compiled in this process.
    ///
    /// # Errors
    /// [`ErrorCode::Unavailable`] when the folder cannot be made private.
    pub(crate) fn new(
        folder: &Path,
        engine: SharedEngine,
        compiler: Option<Compiler>,
        ledger: Arc<dyn SandboxLedger>,
        counters: Arc<Counters>,
    ) -> Result<Self, Error> {
        make_private(folder).and_then(|()| remove_unfinished(folder)).map_err(|cause| {
            Error::unavailable("the folder of compiled components cannot be made private to this user")
                .with_retryable(false)
                .with_cause(cause)
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            engine,
            compiler,
            ledger,
            counters,
            slots: Mutex::default(),
            compilations: Semaphore::new(COMPILATIONS),
        })
    }

    /// The component of a release: from memory, from disk, or compiled now. One at a
    /// time for each component.
    ///
    /// # Errors
    /// [`ErrorCode::ComponentInvalid`] when it cannot be compiled,
    /// [`ErrorCode::ArtifactDigestMismatch`] when the file is not the verified one.
    pub(crate) async fn load(&self, prepared: &PreparedRelease) -> Result<Arc<Loaded>, Error> {
        let digest = prepared.component_digest;
        let slot = self.slot(digest);
        let mut known = slot.lock().await;
        if let Some(loaded) = known.upgrade() {
            return Ok(loaded);
        }
        let component = match self.read_back(&digest).await {
            Some(component) => component,
            None => self.compile(prepared).await?,
        };
        let loaded = Arc::new(Loaded(component));
        *known = Arc::downgrade(&loaded);
        Ok(loaded)
    }

    fn slot(&self, digest: Sha256Digest) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // Whatever nobody holds and nobody loads is forgotten.
        slots.retain(|one, slot| {
            *one == digest
                || Arc::strong_count(slot) > 1
                || slot.try_lock().is_ok_and(|loaded| loaded.strong_count() > 0)
        });
        Arc::clone(slots.entry(digest).or_default())
    }

    fn path(&self, digest: &Sha256Digest) -> PathBuf {
        self.folder.join(format!("{digest}-{}.cwasm", self.engine.fingerprint()))
    }

    async fn read_back(&self, digest: &Sha256Digest) -> Option<Component> {
        let noted = match self.ledger.compiled(digest, self.engine.fingerprint()).await {
            Ok(noted) => noted?,
            Err(error) => {
                tracing::warn!(%error, "the notes on compiled components cannot be read; compiling");
                return None;
            }
        };
        let path = self.path(digest);
        let engine = Arc::clone(&self.engine);
        let loaded = tokio::task::spawn_blocking(move || load_file(&engine, &path, &noted.file_digest)).await;
        match loaded {
            Ok(Ok(component)) => {
                self.counters.cache_hits.count();
                Some(component)
            }
            Ok(Err(reason)) => {
                self.counters.cache_damaged.count();
                tracing::warn!(component.digest = %digest, reason, "a compiled component is not usable; compiling");
                None
            }
            Err(cause) => {
                tracing::error!(error = %cause, "loading a compiled component failed; compiling");
                None
            }
        }
    }

    async fn compile(&self, prepared: &PreparedRelease) -> Result<Component, Error> {
        let _turn = self
            .compilations
            .acquire()
            .await
            .map_err(|cause| Error::unavailable("the sandbox is closed").with_cause(cause))?;
        self.counters.cache_misses.count();
        let digest = prepared.component_digest;
        let (component, written) = match &self.compiler {
            Some(compiler) => {
                let (component, file_digest) = self.compile_apart(compiler, prepared).await?;
                (component, Ok(file_digest))
            }
            None => self.compile_here(prepared).await?,
        };
        // Without its file the component works as well; the next start is slower.
        match written {
            Ok(file_digest) => {
                let noted = CompiledComponent {
                    component_digest: digest,
                    engine_fingerprint: self.engine.fingerprint().to_owned(),
                    file_digest,
                };
                if let Err(error) = self.ledger.record_compiled(&noted).await {
                    tracing::warn!(%error, "a compiled component could not be noted");
                }
            }
            Err(error) => tracing::warn!(%error, "a compiled component could not be written"),
        }
        Ok(component)
    }

    /// In this process: nothing limits it, and nothing ends it.
    async fn compile_here(
        &self,
        prepared: &PreparedRelease,
    ) -> Result<(Component, io::Result<Sha256Digest>), Error> {
        let engine = Arc::clone(&self.engine);
        let (source, digest) = (prepared.component.clone(), prepared.component_digest);
        let path = self.path(&digest);
        let compiled = tokio::task::spawn_blocking(move || {
            let bytes = read_verified(&source, &digest)?;
            let component = Component::from_binary(engine.wasmtime(), &bytes).map_err(not_compilable)?;
            let written =
                component.serialize().map_err(io::Error::other).and_then(|bytes| write(&path, &bytes));
            Ok::<_, Error>((component, written))
        });
        compiled.await.map_err(failed)?
    }

    /// In a limited process, which ends when this is given up.
    async fn compile_apart(
        &self,
        compiler: &Compiler,
        prepared: &PreparedRelease,
    ) -> Result<(Component, Sha256Digest), Error> {
        let digest = prepared.component_digest;
        let out = unfinished(&self.folder).map_err(not_written)?.into_temp_path();
        compiler.compile(&prepared.component, &digest, self.engine.fingerprint(), &out).await?;
        let engine = Arc::clone(&self.engine);
        let path = self.path(&digest);
        let loaded = tokio::task::spawn_blocking(move || {
            let file_digest = Sha256Digest::of(&fs::read(&out).map_err(not_written)?);
            out.persist(&path).map_err(|error| not_written(error.error))?;
            let component = load_file(&engine, &path, &file_digest).map_err(|reason| {
                Error::unavailable("the compiled component cannot be loaded").with_cause(reason)
            })?;
            Ok((component, file_digest))
        });
        loaded.await.map_err(failed)?
    }
}

fn failed(cause: tokio::task::JoinError) -> Error {
    Error::new(ErrorCode::ComponentInvalid, "compiling the component failed").with_cause(cause)
}

pub(super) fn not_written(cause: io::Error) -> Error {
    Error::unavailable("the compiled component cannot be written; see that the data directory has space")
        .with_cause(cause)
}

/// Removes what a process left that ended while it compiled.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A file that has no name yet that anything is loaded by.
fn unfinished(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)
}

fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() {
        return Err(io::Error::other("it is no folder"));
    }
    if found.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// The largest compiled component.
const COMPILED_BYTES: u64 = 1 << 30;

fn load_file(engine: &SharedEngine, path: &Path, expected: &Sha256Digest) -> Result<Component, String> {
    let bytes = read_small(path, COMPILED_BYTES).map_err(|cause| cause.to_string())?;
    if Sha256Digest::of(&bytes) != *expected {
        return Err("its digest is not the noted one".to_owned());
    }
    #[expect(
        unsafe_code,
        reason = "the bytes are what `Component::serialize` gave this daemon: their digest is the noted one"
    )]
    let component = unsafe { Component::deserialize(engine.wasmtime(), &bytes) };
    component.map_err(|cause| format!("{cause:#}"))
}

/// The bytes of the component at `source`: what was verified under `digest`, and a
/// component at all.
///
/// # Errors
/// As [`Cache::load`].
pub(super) fn read_verified(source: &Path, digest: &Sha256Digest) -> Result<Vec<u8>, Error> {
    let unreadable = |cause: io::Error| {
        Error::new(ErrorCode::InstallFailed, "the installed component cannot be read")
            .with_retryable(true)
            .with_cause(cause)
    };
    let invalid = |message: String| Error::new(ErrorCode::ComponentInvalid, message);
    if fs::metadata(source).map_err(unreadable)?.len() > COMPONENT_BYTES {
        return Err(invalid(format!("the component is larger than {COMPONENT_BYTES} bytes")));
    }
    let bytes = fs::read(source).map_err(unreadable)?;
    if Sha256Digest::of(&bytes) != *digest {
        return Err(Error::new(
            ErrorCode::ArtifactDigestMismatch,
            "the installed component is not the one that was verified; install the connector again",
        ));
    }
    if wasmparser::Parser::is_core_wasm(&bytes) {
        return Err(invalid(
            "the file is a core WebAssembly module, not a component; build it with `portcullis connector build`".into(),
        ));
    }
    if !wasmparser::Parser::is_component(&bytes) {
        return Err(invalid("the file is no WebAssembly component".into()));
    }
    Ok(bytes)
}

/// What the compiler found wrong.
pub(super) fn not_compilable(cause: wasmtime::Error) -> Error {
    let reason = guest_text::plain(&format!("{cause:#}"), 500);
    Error::new(ErrorCode::ComponentInvalid, format!("the component cannot be compiled: {reason}"))
}

/// Writes beside the final name first, so that no half a file ever has that name.
fn write(path: &Path, bytes: &[u8]) -> io::Result<Sha256Digest> {
    use io::Write as _;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = unfinished(folder)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(Sha256Digest::of(bytes))
}
