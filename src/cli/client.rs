//! The client of the daemon's API, and how it is found.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Method, Url, redirect::Policy};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    args::ClientOptions,
    exit::{Exit, Failure},
};
use crate::{
    api::dto,
    config,
    daemon::{self, Endpoint},
    domain::error::ErrorCode,
};

/// How long a connection may take. The daemon is near.
const CONNECT: Duration = Duration::from_secs(5);
/// How long any answer but a call's may take.
const ANSWER: Duration = Duration::from_secs(60);

/// Speaks to one daemon.
pub(super) struct Client {
    http: reqwest::Client,
    endpoint: Url,
    token: SecretString,
    /// Where the token was read.
    token_file: Option<PathBuf>,
    /// How a further command finds the same daemon.
    finder: String,
    /// The part of it that `serve` takes too.
    data_dir: String,
}

impl Client {
    /// The daemon that the options name, else the one of the data directory.
    pub(super) fn find(options: &ClientOptions) -> Result<Self, Failure> {
        let data_dir = || config::data_dir_or_default(options.data_dir.as_deref()).map_err(Failure::from);
        let finder = finder(options);
        let given = options.data_dir.as_deref().filter(|_| options.endpoint.is_none());
        let serve = given.map(|dir| format!(" --data-dir {}", quoted(&text_of(dir)))).unwrap_or_default();
        let announced = |dir: &Path| announced(dir, &finder);
        let (endpoint, token, token_file) = match (&options.endpoint, &options.token_file) {
            (Some(endpoint), Some(file)) => (endpoint.clone(), token_in(file)?, file.clone()),
            // The token of one daemon is not shown to another one.
            (Some(_), None) => {
                return Err(Failure::usage("--endpoint needs --token-file: which token is that daemon's?"));
            }
            (None, Some(file)) => (announced(&data_dir()?)?, token_in(file)?, file.clone()),
            (None, None) => {
                let data_dir = data_dir()?;
                (announced(&data_dir)?, daemon::read_token(&data_dir)?, data_dir.join("token"))
            }
        };
        let client = Self::new(&endpoint, token)?;
        Ok(Self { token_file: Some(token_file), finder, data_dir: serve, ..client })
    }

    /// A client of the daemon at `endpoint`.
    pub(super) fn new(endpoint: &str, token: SecretString) -> Result<Self, Failure> {
        let endpoint = Url::parse(endpoint)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
            .ok_or_else(|| Failure::usage(format!("the endpoint {endpoint:?} is no http://ip:port")))?;
        // No proxy and no redirect: the token goes to the daemon and nowhere else.
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .user_agent(concat!("portcullis/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|cause| Failure::unexpected(format!("the HTTP client does not start: {cause}")))?;
        Ok(Self { http, endpoint, token, token_file: None, finder: String::new(), data_dir: String::new() })
    }

    /// `portcullis` and `rest`, for the same daemon: what a hint says to run.
    pub(super) fn command(&self, rest: &str) -> String {
        format!("portcullis {rest}{}", self.finder)
    }

    /// Where the daemon listens.
    pub(super) fn endpoint(&self) -> &str {
        self.endpoint.as_str().trim_end_matches('/')
    }

    /// Asks for something.
    pub(super) async fn get(&self, path: &[&str]) -> Result<Value, Failure> {
        self.send::<()>(Method::GET, path, None, Some(ANSWER)).await
    }

    /// Asks for something, as `T`.
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Failure> {
        parse(self.get(path).await?)
    }

    /// Sends a command.
    pub(super) async fn post<B: Serialize>(&self, path: &[&str], body: &B) -> Result<Value, Failure> {
        self.send(Method::POST, path, Some(body), Some(ANSWER)).await
    }

    /// Sets something.
    pub(super) async fn put<B: Serialize>(&self, path: &[&str], body: &B) -> Result<Value, Failure> {
        self.send(Method::PUT, path, Some(body), Some(ANSWER)).await
    }

    /// Sends a call, which takes as long as it takes: the daemon limits it.
    pub(super) async fn call(&self, id: &str, body: &dto::CallBody) -> Result<Value, Failure> {
        self.send(Method::POST, &["v1", "capabilities", &format!("{id}:call")], Some(body), None).await
    }

    /// The connector `key`.
    pub(super) async fn connector(&self, key: &str) -> Result<dto::Connector, Failure> {
        self.read(&["v1", "connector-market", "connectors", key]).await
    }

    /// Everything at one revision.
    pub(super) async fn snapshot(&self) -> Result<dto::Snapshot, Failure> {
        self.read(&["v1", "connector-market"]).await
    }

    /// The operation `id`.
    pub(super) async fn operation(&self, id: &str) -> Result<dto::Operation, Failure> {
        self.read(&["v1", "connector-market", "operations", id]).await
    }

    async fn send<B: Serialize>(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&B>,
        limit: Option<Duration>,
    ) -> Result<Value, Failure> {
        let mut url = self.endpoint.clone();
        match url.path_segments_mut() {
            // Segments are percent-encoded here, so a key cannot become a path.
            Ok(mut segments) => drop(segments.pop_if_empty().extend(path)),
            Err(()) => return Err(Failure::usage("the endpoint takes no path")),
        }
        let mut request = self.http.request(method, url).bearer_auth(self.token.expose_secret());
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(limit) = limit {
            request = request.timeout(limit);
        }
        let response = request.send().await.map_err(|cause| self.unanswered(&cause))?;
        let status = response.status();
        let text = response.bytes().await.map_err(|cause| self.unanswered(&cause))?;
        if status.is_success() {
            return serde_json::from_slice(&text).map_err(|_| {
                Failure::unexpected(format!("{} answered {status} without JSON", self.endpoint()))
            });
        }
        match serde_json::from_slice::<dto::ErrorBody>(&text) {
            Ok(error) => Err(self.explained(Failure {
                request_id: error.request_id,
                ..Failure::coded(error.code, error.message, error.retryable)
            })),
            Err(_) => Err(Failure::unexpected(format!(
                "{} answered {status}, but not as a portcullis daemon does",
                self.endpoint()
            ))),
        }
    }

    /// Says of a wrong token where it came from.
    fn explained(&self, failure: Failure) -> Failure {
        match &self.token_file {
            Some(file) if failure.is(ErrorCode::Unauthenticated) => Failure {
                message: format!(
                    "the token in {} is not that of the daemon at {}",
                    file.display(),
                    self.endpoint()
                ),
                ..failure
            },
            _ => failure,
        }
    }

    fn unanswered(&self, cause: &reqwest::Error) -> Failure {
        if cause.is_timeout() && !cause.is_connect() {
            return Failure::new(Exit::Conflict, format!("{} did not answer in time", self.endpoint()));
        }
        let what = if cause.is_connect() { "nothing listens at" } else { "the connection broke to" };
        Failure::new(Exit::Unreachable, format!("{what} {}", self.endpoint()))
            .with_hint(format!("start it with: portcullis serve{}", self.data_dir))
    }
}

/// Reads an answer as `T`.
pub(super) fn parse<T: DeserializeOwned>(answer: Value) -> Result<T, Failure> {
    serde_json::from_value(answer).map_err(|cause| {
        Failure::unexpected(format!("the daemon's answer is not what this version reads: {cause}"))
    })
}

/// The options that found a daemon, as they are written after a command. What the
/// environment says need not be repeated.
fn finder(options: &ClientOptions) -> String {
    let texts = [
        ("--endpoint", "PORTCULLIS_ENDPOINT", options.endpoint.clone()),
        ("--token-file", "PORTCULLIS_TOKEN_FILE", options.token_file.as_deref().map(text_of)),
        ("--data-dir", "PORTCULLIS_DATA_DIR", options.data_dir.as_deref().map(text_of)),
    ];
    texts
        .into_iter()
        .filter_map(|(option, variable, given)| {
            let given = given.filter(|given| std::env::var(variable).as_ref() != Ok(given))?;
            Some(format!(" {option} {}", quoted(&given)))
        })
        .collect()
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

/// A word that a shell reads as it is.
fn quoted(word: &str) -> String {
    let plain = |one: char| one.is_alphanumeric() || "/._-:@%+=,".contains(one);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Where the daemon of a data directory says that it listens.
pub(super) fn announced(data_dir: &Path, finder: &str) -> Result<String, Failure> {
    match Endpoint::read(data_dir)? {
        Some(daemon) => Ok(daemon.endpoint),
        None if daemon::is_held(data_dir) => Err(Failure::new(
            Exit::Unreachable,
            format!("the daemon on {} is starting or stopping", data_dir.display()),
        )
        .with_hint(format!("try again in a moment: portcullis list{finder}"))),
        None => Err(Failure::new(Exit::Unreachable, format!("no daemon runs on {}", data_dir.display()))
            .with_hint(format!("start it with: portcullis serve --data-dir {}", quoted(&text_of(data_dir))))),
    }
}

fn token_in(path: &Path) -> Result<SecretString, Failure> {
    fs::read_to_string(path).map(|text| SecretString::from(text.trim())).map_err(|cause| {
        Failure::new(Exit::Refused, format!("the token file {} cannot be read: {cause}", path.display()))
            .with_hint("the daemon makes it on its first start; only the user that runs it may read it")
    })
}
