//! Empty databases for the rules, of the kind that a URL names: this program's own
//! store under its own contract.

use std::{
    collections::BTreeSet,
    fs, io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, postgres::PgDatabaseError};
use tempfile::TempDir;
use tokio::time::timeout;
use url::Url;

use super::{Opened, StoreFactory};
use crate::{
    domain::{error::Error, id::NodeId, timestamp::Timestamp},
    ports::{Clock, IdSource as _, RandomIds},
    store::{SqlStore, StoreOptions, connect::Place, server::Server, sqlite_url},
};

/// A clock that stands still until it is told to go on.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

/// A moment in 2027.
impl Default for ManualClock {
    fn default() -> Self {
        Self(AtomicI64::new(1_800_000_000_000))
    }
}

impl ManualClock {
    /// Moves it.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// Makes empty databases of [`SqlStore`].
///
/// - `postgres://…`: a schema `portcullis_check_<random>` each, in that database; no
///   other schema is touched.
/// - `sqlite:PATH`: a file each, in a private temporary folder beside PATH; PATH
///   itself is neither opened nor created.
/// - `sqlite::memory:`: in memory.
pub struct SqlDatabases {
    place: Arc<Ground>,
    made: AtomicU64,
}

enum Ground {
    Memory,
    Folder(TempDir),
    Server(Schemas),
}

/// The schemas of one database.
struct Schemas {
    url: Url,
    /// Shows itself without a password.
    server: Server,
    /// Those that are there, or soon may be.
    left: Mutex<BTreeSet<String>>,
}

impl SqlDatabases {
    /// Looks at where the databases will be, and makes none yet.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::InvalidRequest`] for a URL that names no
    /// database, [`crate::domain::error::ErrorCode::Unavailable`] for a folder that
    /// cannot be written to.
    pub fn beside(url: &str) -> Result<Self, Error> {
        let place = match Place::parse(url)? {
            Place::Memory => Ground::Memory,
            Place::File(path) => Ground::Folder(folder_beside(&path)?),
            Place::Server(server) => {
                let url = Url::parse(url).map_err(|cause| {
                    Error::invalid_request("the database URL cannot be read").with_cause(cause)
                })?;
                Ground::Server(Schemas { url, server, left: Mutex::default() })
            }
        };
        Ok(Self { place: Arc::new(place), made: AtomicU64::new(0) })
    }

    /// Where the databases are, for people; without a password.
    #[must_use]
    pub fn place(&self) -> String {
        match &*self.place {
            Ground::Memory => "SQLite in memory".to_owned(),
            Ground::Folder(folder) => format!("SQLite files in {}", folder.path().display()),
            Ground::Server(server) => format!("schemas portcullis_check_* of {}", server.server),
        }
    }

    /// Makes one.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`], and what to do, for a server
    /// that cannot be reached or a role that may not create schemas.
    pub async fn create(&self) -> Result<Arc<dyn StoreFactory>, Error> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let mut database = SqlDatabase {
            place: self.place.clone(),
            name: String::new(),
            url: "sqlite::memory:".to_owned(),
            clock: Arc::default(),
            memory: None,
            opened: Mutex::default(),
        };
        match &*self.place {
            Ground::Memory => database.memory = Some(database.connect(&NodeId::parse("first")?).await?),
            Ground::Folder(folder) => {
                database.name = format!("{number}.db");
                database.url = sqlite_url(&folder.path().join(&database.name));
            }
            Ground::Server(server) => {
                database.name = format!("portcullis_check_{}", RandomIds.fresh()?);
                server.create(&database.name).await?;
                database.url = server.url_of(&database.name).into();
            }
        }
        Ok(Arc::new(database))
    }

    /// Removes what is left of them, also when their rules were cut off.
    ///
    /// # Errors
    /// When something stays, and where.
    pub async fn remove(&self) -> Result<(), Error> {
        let Ground::Server(server) = &*self.place else { return Ok(()) };
        let left = server.left.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for schema in left {
            server.drop(&schema).await?;
        }
        Ok(())
    }
}

/// Goes away with its last database.
fn folder_beside(path: &Path) -> Result<TempDir, Error> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::Builder::new().prefix(".portcullis-check-").tempdir_in(parent).map_err(|cause| {
        Error::unavailable(format!(
            "no temporary folder can be made in {}: {}; name a file in a folder that is there and that you may write to",
            parent.display(),
            cause.kind()
        ))
        .with_retryable(false)
        .with_cause(cause)
    })
}

impl Schemas {
    fn url_of(&self, schema: &str) -> Url {
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("options[search_path]", schema);
        url
    }

    async fn connect(&self, schema: &str) -> Result<PgConnection, Error> {
        Server::parse(self.url_of(schema).as_str())?.connect().await
    }

    async fn create(&self, schema: &str) -> Result<(), Error> {
        let mut conn = self.connect(schema).await?;
        self.left.lock().unwrap_or_else(PoisonError::into_inner).insert(schema.to_owned());
        let created =
            sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&mut conn).await;
        if let Err(cause) = created {
            self.left.lock().unwrap_or_else(PoisonError::into_inner).remove(schema);
            return Err(may_not_create(&mut conn, cause).await);
        }
        // A pooler between may leave the search path out: then every table would go
        // where other people's tables are.
        let row = sqlx::query("SELECT CAST(current_schema() AS TEXT)").fetch_one(&mut conn).await?;
        let current: Option<String> = row.try_get(0)?;
        if current.as_deref() != Some(schema) {
            self.drop(schema).await?;
            return Err(Error::unavailable(
                "the connection does not keep its search_path, as behind a pooler; name the server itself",
            )
            .with_retryable(false));
        }
        Ok(conn.close().await?)
    }

    async fn drop(&self, schema: &str) -> Result<(), Error> {
        let mut conn = self.connect(schema).await?;
        let statement = format!("SET lock_timeout = '10s'; DROP SCHEMA IF EXISTS {schema} CASCADE");
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut conn).await.map_err(|cause| {
            Error::unavailable(format!("the schema {schema} is still there; drop it yourself"))
                .with_cause(cause)
        })?;
        self.left.lock().unwrap_or_else(PoisonError::into_inner).remove(schema);
        Ok(conn.close().await?)
    }
}

/// What a refused CREATE SCHEMA means.
async fn may_not_create(conn: &mut PgConnection, cause: sqlx::Error) -> Error {
    const NAMES: &str =
        "SELECT quote_ident(CAST(current_database() AS TEXT)), quote_ident(CAST(current_user AS TEXT))";
    let refusal = cause.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    if refusal.is_none_or(|refusal| refusal.code() != "42501") {
        return cause.into();
    }
    let names = sqlx::query(NAMES).fetch_one(conn).await;
    let names = names.and_then(|row| Ok((row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?)));
    match names {
        Ok((database, role)) => Error::unavailable(format!(
            "the role {role} may not create schemas in the database {database}; \
             let its owner run: GRANT CREATE ON DATABASE {database} TO {role}"
        ))
        .with_retryable(false),
        Err(_) => cause.into(),
    }
}

/// One of them; each handle has connections of its own, as a second daemon would,
/// but in memory, where there is one connection for all.
struct SqlDatabase {
    place: Arc<Ground>,
    /// The file, or the schema.
    name: String,
    url: String,
    clock: Arc<ManualClock>,
    memory: Option<SqlStore>,
    opened: Mutex<Vec<SqlStore>>,
}

impl SqlDatabase {
    async fn connect(&self, node: &NodeId) -> Result<SqlStore, Error> {
        let (url, lease_clock) = (self.url.clone(), Some(self.clock.clone() as Arc<dyn Clock>));
        let store = SqlStore::open(StoreOptions { url, node_id: node.clone(), lease_clock }).await?;
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(store.clone());
        Ok(store)
    }
}

#[async_trait]
impl StoreFactory for SqlDatabase {
    async fn open(&self, node: &NodeId) -> Result<Opened, Error> {
        Ok(Opened::of(match &self.memory {
            Some(store) => store.for_node(node.clone()),
            None => self.connect(node).await?,
        }))
    }

    fn advance_clock(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn remove(&self) -> Result<(), Error> {
        let opened = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        for store in opened {
            // Whoever hangs loses its connection with its file or schema.
            let _ = timeout(Duration::from_secs(2), store.close()).await;
        }
        match &*self.place {
            Ground::Memory => Ok(()),
            Ground::Folder(folder) => remove_files(&folder.path().join(&self.name)),
            Ground::Server(server) => server.drop(&self.name).await,
        }
    }
}

/// The database, and what SQLite keeps beside it.
fn remove_files(database: &Path) -> Result<(), Error> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut path = database.as_os_str().to_owned();
        path.push(suffix);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                let path = Path::new(&path).display();
                return Err(Error::unavailable(format!("{path} is not removed")).with_cause(cause));
            }
            _ => {}
        }
    }
    Ok(())
}
