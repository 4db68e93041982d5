//! The data directory: private, one daemon's at a time, and what lies in it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::{
    domain::{error::Error, id::NodeId},
    ports::IdSource,
};

const LOCK: &str = "lock";
const NODE: &str = "node";
const TOKEN: &str = "token";
const ENDPOINT: &str = "daemon.json";
const TOKEN_BYTES: usize = 32;

/// Where a running daemon can be reached; the content of `daemon.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The base URL.
    pub endpoint: String,
    /// The process.
    pub pid: u32,
}

impl Endpoint {
    /// This process, listening at `address`; an address that means every
    /// interface is reached over loopback.
    #[must_use]
    pub fn of_this_process(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let address = SocketAddr::new(ip, address.port());
        Self { endpoint: format!("http://{address}"), pid: std::process::id() }
    }

    /// What the daemon that runs on `data_dir` has announced; none when none runs.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] when the file cannot be read.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, Error> {
        let path = data_dir.join(ENDPOINT);
        match fs::read(&path) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(failed("read", &path, cause)),
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|cause| {
                Error::unavailable(format!("{} is damaged; start the daemon again", path.display()))
                    .with_cause(cause)
            }),
        }
    }
}

/// The token of the daemon that keeps its data in `data_dir`.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::Unavailable`] when there is none, or when
/// others could have read or written it.
pub fn read_token(data_dir: &Path) -> Result<SecretString, Error> {
    let path = data_dir.join(TOKEN);
    let mut file = File::open(&path).map_err(|cause| {
        if cause.kind() == ErrorKind::NotFound {
            Error::unavailable(format!("{} does not exist; no daemon was started there", path.display()))
        } else {
            failed("read", &path, cause)
        }
    })?;
    let mode = file.metadata().map_err(|cause| failed("read", &path, cause))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(Error::unavailable(format!(
            "{} can be read by other users; delete it, and the next start of the daemon makes a new one",
            path.display()
        ))
        .with_retryable(false));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|cause| failed("read", &path, cause))?;
    let token = SecretString::from(text.trim());
    if token.expose_secret().len() < TOKEN_BYTES
        || token.expose_secret().contains(|c: char| !c.is_ascii_graphic())
    {
        return Err(Error::unavailable(format!(
            "{} holds no token; delete it, and the next start of the daemon makes a new one",
            path.display()
        ))
        .with_retryable(false));
    }
    Ok(token)
}

/// Whether a process that lives holds `data_dir`: a daemon that starts, runs or
/// stops. The lock is tried only where that process lives, so that looking never
/// keeps a daemon from starting; a system without `/proc` is not asked.
#[must_use]
pub fn is_held(data_dir: &Path) -> bool {
    let path = data_dir.join(LOCK);
    let pid: Option<u32> = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    pid.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists())
        && File::open(&path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The data directory, held by this process until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Makes the directory if need be, sees to it that it is private, and takes it.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] when another daemon holds
    /// it, when it is open to others, or when it cannot be used; names it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|cause| failed("make", path, cause))?;
        let path = path.canonicalize().map_err(|cause| failed("find", path, cause))?;
        keep_private(&path)?;
        let lock_path = path.join(LOCK);
        let mut lock = private_file()
            .create(true)
            .read(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(|cause| failed("open", &lock_path, cause))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = (&mut lock).take(16).read_to_string(&mut pid);
                let holder =
                    if pid.trim().is_empty() { String::new() } else { format!(" (process {})", pid.trim()) };
                return Err(Error::unavailable(format!(
                    "another daemon{holder} runs on {}; stop it, or choose another directory with --data-dir",
                    path.display()
                ))
                .with_retryable(false));
            }
            Err(TryLockError::Error(cause)) => return Err(failed("lock", &lock_path, cause)),
        }
        // The number is for the message above alone; the lock is what counts.
        lock.set_len(0)
            .and_then(|()| lock.write_all(std::process::id().to_string().as_bytes()))
            .map_err(|cause| failed("write", &lock_path, cause))?;
        let directory = Self { path, lock };
        // Left by a daemon that was killed.
        directory.retract()?;
        Ok(directory)
    }

    /// Lets another daemon have it, before this value is dropped.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] when the system does not unlock it.
    pub fn release(&self) -> Result<(), Error> {
        self.lock.unlock().map_err(|cause| failed("unlock", &self.path, cause))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path.join("portcullis.db")
    }

    /// The folder of artifacts and what was unpacked from them.
    #[must_use]
    pub fn artifacts(&self) -> PathBuf {
        self.path.join("artifacts")
    }

    /// Whether an earlier start put artifacts there.
    #[must_use]
    pub fn holds_artifacts(&self) -> bool {
        fs::read_dir(self.artifacts()).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// The folder of compiled components.
    #[must_use]
    pub fn compiled(&self) -> PathBuf {
        self.path.join("compiled")
    }

    /// What tells this directory's daemon from others on the same database; made
    /// on first use.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] when it can be neither read nor made.
    pub fn node_id(&self, ids: &dyn IdSource) -> Result<NodeId, Error> {
        let path = self.path.join(NODE);
        match fs::read_to_string(&path) {
            Ok(text) => NodeId::parse(text.trim()).map_err(|cause| {
                Error::unavailable(format!("{} holds no node id; restore it from a backup", path.display()))
                    .with_retryable(false)
                    .with_cause(cause)
            }),
            Err(cause) if cause.kind() == ErrorKind::NotFound => {
                let id = NodeId::parse(ids.fresh()?)?;
                self.write_once(&path, id.as_str())?;
                Ok(id)
            }
            Err(cause) => Err(failed("read", &path, cause)),
        }
    }

    /// The bearer token; made on first use.
    ///
    /// # Errors
    /// As [`read_token`].
    pub fn token(&self) -> Result<SecretString, Error> {
        let path = self.path.join(TOKEN);
        if !path.try_exists().map_err(|cause| failed("read", &path, cause))? {
            let mut bytes = [0_u8; TOKEN_BYTES];
            getrandom::fill(&mut bytes).map_err(|cause| {
                Error::unavailable("the system has no randomness to give").with_cause(cause.to_string())
            })?;
            self.write_once(&path, &URL_SAFE_NO_PAD.encode(bytes))?;
        }
        read_token(&self.path)
    }

    /// Tells clients on this machine where the daemon is.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] when the file cannot be written.
    pub fn announce(&self, endpoint: &Endpoint) -> Result<(), Error> {
        let path = self.path.join(ENDPOINT);
        let text = serde_json::to_string(endpoint)
            .map_err(|cause| Error::unavailable("the endpoint cannot be written down").with_cause(cause))?;
        self.draft(&text)?.persist(&path).map(drop).map_err(|cause| failed("write", &path, cause.error))
    }

    /// Takes that back.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] when the file cannot be removed.
    pub fn retract(&self) -> Result<(), Error> {
        let path = self.path.join(ENDPOINT);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => Err(failed("remove", &path, cause)),
            _ => Ok(()),
        }
    }

    /// Whole or not at all, and never over something that is there.
    fn write_once(&self, path: &Path, text: &str) -> Result<(), Error> {
        let written = self.draft(text)?.persist_noclobber(path);
        written.map(drop).map_err(|cause| failed("write", path, cause.error))?;
        File::open(&self.path)
            .and_then(|dir| dir.sync_all())
            .map_err(|cause| failed("sync", &self.path, cause))
    }

    /// A temporary file with mode 0600, synced.
    fn draft(&self, text: &str) -> Result<tempfile::NamedTempFile, Error> {
        let write = || -> io::Result<_> {
            let mut file = tempfile::Builder::new()
                .prefix(".draft-")
                .permissions(Permissions::from_mode(0o600))
                .tempfile_in(&self.path)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            Ok(file)
        };
        write().map_err(|cause| failed("write in", &self.path, cause))
    }
}

fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// A directory that others can enter is tightened if it is empty or ours, and
/// refused otherwise: it may be one that others need.
fn keep_private(path: &Path) -> Result<(), Error> {
    let metadata = fs::metadata(path).map_err(|cause| failed("read", path, cause))?;
    if metadata.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    let mut entries = fs::read_dir(path).map_err(|cause| failed("read", path, cause))?;
    if entries.next().is_some() && !path.join(NODE).exists() {
        return Err(Error::unavailable(format!(
            "{} is open to other users and holds files that are not the daemon's; \
             choose a new directory with --data-dir, or chmod 700 this one",
            path.display()
        ))
        .with_retryable(false));
    }
    fs::set_permissions(path, Permissions::from_mode(0o700))
        .map_err(|cause| failed("make private", path, cause))
}

fn failed(verb: &str, path: &Path, cause: io::Error) -> Error {
    Error::unavailable(format!("cannot {verb} {}: {cause}", path.display())).with_cause(cause)
}
