//! A PostgreSQL server: what its URL may say, and the first connection, which tells
//! what is wrong in words that a pool of connections does not have.

use std::{fmt, io, str::FromStr as _, sync::Arc, time::Duration};

use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Row as _, postgres::PgConnectOptions};

use crate::domain::error::Error;

/// How long the server may take to answer a first connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the URL may say after `?`. The driver would ignore anything else, and log it,
/// a misspelled password included.
const PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// Where a server's database is. Shows itself without user, password and parameters.
#[derive(Clone)]
pub(super) struct Server(Arc<PgConnectOptions>);

impl Server {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        // Nothing of the text is repeated: it may hold a password.
        let parsed = url::Url::parse(url).map_err(|cause| {
            Error::invalid_request(
                "the database URL cannot be read; write postgres://user@host:port/database, \
                 and any of :/?#[]@% within a name or a password as %3A and so on",
            )
            .with_cause(cause)
        })?;
        if !matches!(parsed.scheme(), "postgres" | "postgresql") {
            return Err(Error::invalid_request(
                "the database URL must start with postgres://, as in postgres://user@host/portcullis",
            ));
        }
        // Of a URL that was put together wrongly, a password may stand anywhere.
        let named = |name: &str| parsed.query_pairs().any(|(key, _)| key == name);
        let hosted = parsed.host_str().is_some_and(|host| !host.is_empty());
        let database = parsed.path().strip_prefix('/').unwrap_or_default();
        if !(hosted || named("host") || named("hostaddr")) || database.contains(['/', ':', '@', '\\']) {
            return Err(Error::invalid_request(
                "the database URL is not postgres://user:password@host:port/database; write any of :/?#[]@% within \
                 a name or a password as %3A and so on",
            ));
        }
        let known = |name: &str| PARAMETERS.contains(&name) || name.starts_with("options[");
        if !parsed.query_pairs().all(|(name, _)| known(&name)) {
            return Err(Error::invalid_request(
                "the database URL has a parameter that is not known; known are sslmode, sslrootcert, sslcert, \
                 sslkey, host, port, dbname, user, password, application_name and options",
            ));
        }
        let options = PgConnectOptions::from_str(url).map_err(|cause| {
            Error::invalid_request(
                "a parameter of the database URL has a value that cannot be: port and statement-cache-capacity are \
                 numbers; sslmode is disable, allow, prefer, require, verify-ca or verify-full",
            )
            .with_cause(cause)
        })?;
        Ok(Self(Arc::new(options.disable_statement_logging())))
    }

    /// Connects. What the server holds is not looked at yet.
    ///
    /// # Errors
    /// What keeps it from being used, with what to do.
    pub(super) async fn connect(&self) -> Result<PgConnection, Error> {
        let connecting = PgConnection::connect_with(&self.0);
        match tokio::time::timeout(PATIENCE, connecting).await {
            Ok(Ok(conn)) => Ok(conn),
            // A certificate that is not trusted arrives as data that is not valid.
            Ok(Err(sqlx::Error::Io(cause))) if cause.kind() == io::ErrorKind::InvalidData => {
                Err(self.unencrypted(cause))
            }
            Ok(Err(sqlx::Error::Io(cause))) => Err(self.unreachable(cause)),
            Ok(Err(cause @ sqlx::Error::Tls(_))) => Err(self.unencrypted(cause)),
            Ok(Err(cause)) => {
                let known = Error::from(cause);
                let message = format!("{self}: {}", known.message);
                Err(Error { message, ..known })
            }
            Err(_) => Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Whether there is a schema to keep tables in.
    pub(super) async fn check_schema(&self, conn: &mut PgConnection) -> Result<(), Error> {
        let row = sqlx::query("SELECT CAST(current_schema() AS TEXT)").fetch_one(conn).await?;
        let schema: Option<String> = row.try_get(0)?;
        schema.map(drop).ok_or_else(|| {
            Error::unavailable(format!(
                "{self} has no schema that the user may use; create the one that search_path names, or grant its use"
            ))
            .with_retryable(false)
        })
    }

    pub(super) fn options(&self) -> PgConnectOptions {
        PgConnectOptions::clone(&self.0)
    }

    fn unencrypted(&self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::unavailable(format!(
            "no encrypted connection to {self} could be made; check sslmode and sslrootcert in the database URL"
        ))
        .with_retryable(false)
        .with_cause(cause)
    }

    fn unreachable(&self, cause: io::Error) -> Error {
        Error::unavailable(format!(
            "{self} cannot be reached ({}); start it, or correct the database URL",
            cause.kind()
        ))
        .with_cause(cause)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the PostgreSQL server ")?;
        match self.0.get_socket() {
            Some(socket) => write!(f, "{}", socket.display())?,
            None => write!(f, "{}:{}", self.0.get_host(), self.0.get_port())?,
        }
        write!(f, " (database {})", self.0.get_database().unwrap_or("of the user's name"))
    }
}

/// Checks the URL of a PostgreSQL database without connecting.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::InvalidRequest`] with what to write instead; no
/// part of the URL is repeated, which may hold a password.
pub fn check_postgres_url(url: &str) -> Result<(), Error> {
    Server::parse(url).map(drop)
}
