//! Keeping a server's database for one daemon: each daemon has routes of its own, and
//! none of them would learn what another one has removed.
//!
//! The hold is the server's, on a connection of its own, so it ends with the process
//! however that ends. It is taken again when the connection was lost.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::{task::AbortHandle, time::sleep};

use super::{connect::Place, server::Server};
use crate::domain::error::Error;

const TAKE: &str = "SELECT pg_try_advisory_lock(hashtextextended('portcullis serve', \
     CAST((SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema()) AS BIGINT)))";

/// How long a daemon that is ending is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the connection is tried.
const WATCH: Duration = Duration::from_secs(2);

/// A database that no other daemon has; given back when dropped.
#[derive(Debug)]
pub struct HeldAlone(AbortHandle);

impl Drop for HeldAlone {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Holds the database of `url` for this process. A SQLite file needs no hold: its
/// folder has one. `taken` is called when the connection was lost, and another daemon
/// has taken its place.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::Unavailable`], not retryable, while another
/// daemon has it; as [`super::SqlStore::open`] when the server cannot be reached.
pub async fn hold_alone(
    url: &str,
    taken: impl FnOnce() + Send + 'static,
) -> Result<Option<HeldAlone>, Error> {
    let Place::Server(server) = Place::parse(url)? else { return Ok(None) };
    let mut conn = server.connect().await?;
    let trying = async {
        while !take(&mut conn).await? {
            sleep(PAUSE).await;
        }
        Ok::<_, Error>(())
    };
    match tokio::time::timeout(PATIENCE, trying).await {
        Ok(held) => held?,
        Err(_) => {
            return Err(Error::unavailable(format!(
                "another daemon uses {server}; stop it, or give this one a schema of its own with \
                 options[search_path]=name in the database URL"
            ))
            .with_retryable(false));
        }
    }
    let watching = tokio::spawn(async move {
        while keep(&mut conn, &server).await {}
        taken();
    });
    Ok(Some(HeldAlone(watching.abort_handle())))
}

/// Watches until the connection is lost, and takes the database again; tells whether
/// it could.
async fn keep(conn: &mut PgConnection, server: &Server) -> bool {
    while conn.ping().await.is_ok() {
        sleep(WATCH).await;
    }
    loop {
        if let Ok(mut again) = server.connect().await
            && let Ok(held) = take(&mut again).await
        {
            *conn = again;
            return held;
        }
        sleep(PAUSE).await;
    }
}

async fn take(conn: &mut PgConnection) -> Result<bool, Error> {
    Ok(sqlx::query(TAKE).fetch_one(conn).await?.try_get(0)?)
}
