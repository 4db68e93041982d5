//! A web server on loopback that answers as it is told, and remembers what it was asked.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use http::{HeaderMap, header};

/// What a path answers.
#[derive(Clone, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Without a content length.
    pub(crate) chunked: bool,
    /// Breaks off after the body.
    pub(crate) broken: bool,
}

impl Answer {
    pub(crate) fn ok(body: &[u8]) -> Self {
        Self { status: 200, body: body.to_vec(), ..Self::default() }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { status, body: b"<html>no</html>".to_vec(), ..Self::default() }
    }

    pub(crate) fn redirect(location: &str) -> Self {
        Self { status: 302, ..Self::default() }.with("location", location)
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

#[derive(Default)]
struct Script {
    answers: HashMap<String, Answer>,
    seen: Vec<(String, HeaderMap)>,
}

pub(crate) struct Server {
    pub(crate) url: String,
    script: Arc<Mutex<Script>>,
    running: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let script = Arc::new(Mutex::new(Script::default()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/catalog/", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&script));
        let running = tokio::spawn(async move { axum::serve(listener, router).await.expect("served") });
        Self { url, script, running }
    }

    /// From now on `path` answers so.
    pub(crate) fn set(&self, path: &str, answer: Answer) {
        self.script.lock().expect("a script").answers.insert(path.to_owned(), answer);
    }

    /// The paths that were asked for.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.script.lock().expect("a script").seen.iter().map(|(path, _)| path.clone()).collect()
    }

    /// The headers of the last request.
    pub(crate) fn last_headers(&self) -> HeaderMap {
        self.script.lock().expect("a script").seen.last().expect("a request").1.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn answer(State(script): State<Arc<Mutex<Script>>>, request: Request) -> Response {
    let path = request.uri().path_and_query().expect("a path").to_string();
    let mut script = script.lock().expect("a script");
    script.seen.push((path.clone(), request.headers().clone()));
    let answer = script.answers.get(&path).cloned().unwrap_or_else(|| Answer::status(404));
    let etag = answer.headers.iter().find(|(name, _)| *name == "etag").map(|(_, value)| value.as_str());
    let known = request.headers().get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let unchanged = etag.is_some() && etag == known;
    let mut response = Response::builder().status(if unchanged { 304 } else { answer.status });
    for (name, value) in &answer.headers {
        response = response.header(*name, value);
    }
    let body = if unchanged {
        Body::empty()
    } else if answer.chunked || answer.broken {
        let end = answer.broken.then(|| Err(std::io::Error::other("it breaks off")));
        let chunks = [Ok(Bytes::from(answer.body))].into_iter().chain(end);
        Body::from_stream(futures::stream::iter(chunks))
    } else {
        Body::from(answer.body)
    };
    response.body(body).expect("an answer")
}
