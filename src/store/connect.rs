//! Opening a database: where it lies, who may read it, how connections behave.

use std::{
    fs, io,
    path::{Path, PathBuf},
    str::FromStr as _,
    sync::Arc,
    time::Duration,
};

use sqlx::{
    AnyConnection, AnyPool, ConnectOptions as _, Connection as _, Row as _,
    any::{AnyConnectOptions, AnyPoolOptions},
    sqlite::SqliteConnectOptions,
};

use super::{SqlStore, changes::Changes, dialect::Dialect, failure, migrate, server::Server};
use crate::{
    domain::{error::Error, id::NodeId},
    ports::Clock,
};

/// How long a transaction waits for its turn inside this process.
const TURN: Duration = Duration::from_secs(30);
/// How long one waits for a connection to a server, which may be away.
const SERVER_TURN: Duration = Duration::from_secs(10);
const SQLITE_READERS: u32 = 4;
/// Apart, so that whoever reads need not wait behind those who wait for their turn.
const POSTGRES_WRITERS: u32 = 8;
const POSTGRES_READERS: u32 = 8;

/// What a store is opened with.
#[derive(Clone)]
pub struct StoreOptions {
    /// `sqlite:<path>` (see [`sqlite_url`]), `sqlite::memory:`, or `postgres://…`.
    pub url: String,
    /// The node whose runtime convergence this store keeps.
    pub node_id: NodeId,
    /// What leases are judged by in place of the database's own time, for an embedder
    /// that has a better one, or a test. The database's own is the server's for
    /// PostgreSQL, so that daemons with clocks that differ agree, and the machine's
    /// for SQLite.
    pub lease_clock: Option<Arc<dyn Clock>>,
}

/// The URL of a database file, whatever characters its path has; a Windows drive or
/// share included.
#[must_use]
pub fn sqlite_url(path: &Path) -> String {
    let mut url = String::from("sqlite:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Slashes too: a URL with a path would lose its `..`, which a link may need.
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

/// Where a database lies.
pub(super) enum Place {
    Memory,
    File(PathBuf),
    Server(Server),
}

impl Place {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            return Server::parse(url).map(Self::Server);
        }
        if !url.starts_with("sqlite:") {
            return Err(Error::invalid_request(
                "the database URL must start with sqlite: or postgres:, as in sqlite:portcullis.db",
            ));
        }
        if url == "sqlite::memory:" {
            return Ok(Self::Memory);
        }
        if url.contains('?') {
            return Err(Error::invalid_request(
                "the URL of a SQLite database takes no parameters; write ? in a path as %3F",
            ));
        }
        let options = SqliteConnectOptions::from_str(url)?;
        let path = options.get_filename();
        if path.as_os_str().is_empty() {
            return Err(Error::invalid_request("the database URL names no file, as in sqlite:portcullis.db"));
        }
        Ok(Self::File(path.to_owned()))
    }
}

impl SqlStore {
    /// Opens a database, and brings its tables to what this program knows.
    ///
    /// A file that is not there is created, private to this user, and so are the
    /// folders above it.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] for a database that is of
    /// a newer program, of another program, damaged or not reachable, and
    /// [`crate::domain::error::ErrorCode::InvalidRequest`] for a URL that names
    /// none. What was found stays as it was.
    pub async fn open(options: StoreOptions) -> Result<Self, Error> {
        sqlx::any::install_default_drivers();
        let StoreOptions { url, node_id, lease_clock } = options;
        let place = Place::parse(&url)?;
        let (dialect, writer, reader) = match &place {
            Place::Memory => {
                // Every further connection would open another, empty database.
                let writer = pool(&url, 1, Dialect::Sqlite.session()).await?;
                (Dialect::Sqlite, writer.clone(), writer)
            }
            Place::File(path) => {
                create_private(path)?;
                let url = format!("{}?mode=rw", sqlite_url(path));
                inspect(&url, Dialect::Sqlite).await?;
                let writer = pool(&url, 1, Dialect::Sqlite.session()).await?;
                let reader = pool(&url, SQLITE_READERS, Dialect::Sqlite.read_only_session()).await?;
                (Dialect::Sqlite, writer, reader)
            }
            Place::Server(server) => {
                let mut first = server.connect().await?;
                server.check_schema(&mut first).await?;
                first.close().await?;
                let writer = pool(&url, POSTGRES_WRITERS, Dialect::Postgres.session()).await?;
                let reader = pool(&url, POSTGRES_READERS, Dialect::Postgres.read_only_session()).await?;
                (Dialect::Postgres, writer, reader)
            }
        };
        migrate::run(&writer, dialect, lease_clock.as_deref()).await?;
        let changes = Arc::new(match place {
            Place::Server(server) => Changes::of_server(server),
            Place::Memory | Place::File(_) => Changes::of_this_process(),
        });
        Ok(Self { writer, reader, dialect, node_id, lease_clock, changes })
    }
}

async fn pool(url: &str, connections: u32, session: Option<&'static str>) -> Result<AnyPool, Error> {
    let options = AnyConnectOptions::from_str(url)?.disable_statement_logging();
    let of_server = url.starts_with("postgres");
    let pool = AnyPoolOptions::new()
        .max_connections(connections)
        .min_connections(1)
        .acquire_timeout(if of_server { SERVER_TURN } else { TURN })
        // An in-memory database ends with its connection.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(of_server)
        .after_connect(move |conn, _| {
            Box::pin(async move {
                if let Some(session) = session {
                    sqlx::raw_sql(session).execute(conn).await?;
                }
                Ok(())
            })
        })
        // A full disk makes SQLite roll back by itself, which the driver does not
        // notice: it would refuse to begin anything on this connection again.
        .before_acquire(|conn, _| {
            let usable = !conn.is_in_transaction();
            Box::pin(async move { Ok(usable) })
        });
    Ok(pool.connect_with(options).await?)
}

/// Refuses what is not ours, before anything is written to it.
async fn inspect(url: &str, dialect: Dialect) -> Result<(), Error> {
    let options = AnyConnectOptions::from_str(url)?.disable_statement_logging();
    let mut conn = AnyConnection::connect_with(&options).await?;
    let known = migrate::pending(&mut conn, dialect).await;
    let whole = match dialect.check() {
        Some(check) if known.is_ok() => whole(&mut conn, check).await,
        _ => Ok(()),
    };
    conn.close().await?;
    known.and(whole)
}

async fn whole(conn: &mut AnyConnection, check: &'static str) -> Result<(), Error> {
    let row = sqlx::query(check).fetch_one(conn).await?;
    match row.try_get::<&str, _>(0)? {
        "ok" => Ok(()),
        damage => Err(failure::damaged().with_cause(damage.to_owned())),
    }
}

fn create_private(path: &Path) -> Result<(), Error> {
    let failed = |what: &Path, cause: io::Error| {
        Error::unavailable(format!("{} cannot be created: {}", what.display(), cause.kind()))
            .with_retryable(false)
            .with_cause(cause)
    };
    let mut folder = fs::DirBuilder::new();
    let mut file = fs::OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        folder.mode(0o700);
        file.mode(0o600);
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        folder.recursive(true).create(parent).map_err(|cause| failed(parent, cause))?;
    }
    // SQLite gives its write-ahead log the mode of the database.
    match file.write(true).create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(cause) => Err(failed(path, cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_its_url() {
        for path in
            ["/var/lib/p c/ü?#%.db", "here/../there.db", r"C:\data\p.db", r"\\server\share\p.db", ":memory:"]
        {
            match Place::parse(&sqlite_url(Path::new(path))) {
                Ok(Place::File(file)) => assert_eq!(file, Path::new(path)),
                _ => panic!("{path} is no file any more"),
            }
        }
    }
}
