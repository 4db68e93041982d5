//! A small web site on loopback: the catalog, a feed, and a feed that never comes.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::Notify, task::JoinHandle};

use super::{
    super::exit::Failure,
    editions::{Edition, FIRST},
};

/// The name under which the demo lets connectors reach this site.
pub(super) const HOST: &str = "feeds.localhost";

/// How many entries the feed has.
pub(super) const FEED_ENTRIES: usize = 4;
const FEED: &str = include_str!("feed.xml");

/// What the catalog serves now.
struct Shelf {
    edition: Edition,
    /// The connector whose artifact gets a flipped byte.
    tampered: Option<&'static str>,
}

struct Shared {
    shelf: Mutex<Shelf>,
    slow_asked: Notify,
}

/// The site; it closes when dropped.
pub(super) struct Site {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl Site {
    pub(super) async fn open() -> Result<Self, Failure> {
        let failed = |cause: std::io::Error| Failure::unexpected(format!("loopback cannot be used: {cause}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            shelf: Mutex::new(Shelf { edition: FIRST, tampered: None }),
            slow_asked: Notify::new(),
        });
        let routes = Router::new()
            .route("/catalog/{*path}", get(catalog))
            .route("/atom.xml", get(feed))
            .route("/slow.xml", get(slow))
            .with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // It serves until it is dropped; an error would show as a failed step.
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Self { address, shared, serving })
    }

    /// From now on the catalog serves `edition`, with one artifact tampered with or none.
    pub(super) fn put(&self, edition: Edition, tampered: Option<&'static str>) {
        *self.shared.shelf.lock().unwrap_or_else(PoisonError::into_inner) = Shelf { edition, tampered };
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn catalog_url(&self) -> String {
        format!("http://{}/catalog/", self.address)
    }

    pub(super) fn feed_url(&self) -> String {
        format!("http://{HOST}:{}/atom.xml", self.address.port())
    }

    pub(super) fn slow_url(&self) -> String {
        format!("http://{HOST}:{}/slow.xml", self.address.port())
    }

    /// Waits until the slow feed was asked for.
    pub(super) async fn slow_asked(&self) {
        self.shared.slow_asked.notified().await;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn catalog(State(shared): State<Arc<Shared>>, Path(path): Path<String>) -> Response {
    let shelf = shared.shelf.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((_, bytes)) = shelf.edition.iter().find(|(name, _)| *name == path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let tampered = shelf.tampered.is_some_and(|key| path.starts_with(&format!("artifacts/{key}/")));
    if !tampered {
        return bytes.into_response();
    }
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bytes.into_response()
}

async fn feed() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/atom+xml")], FEED)
}

/// Says that it was asked, and then nothing.
async fn slow(State(shared): State<Arc<Shared>>) -> Response {
    shared.slow_asked.notify_one();
    std::future::pending().await
}
