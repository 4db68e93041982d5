//! One polite and suspicious HTTP client: GET under a base URL, and nowhere else.

use std::{sync::Once, time::Duration};

use http::{HeaderMap, StatusCode, header};
use reqwest::{Client, Response, redirect};
use url::{Host, Url};

use crate::domain::{
    error::{Error, ErrorCode},
    manifest::is_safe_relative_path,
};

const REDIRECTS: usize = 3;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// What went wrong with a request, before its caller gives it a code.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) retryable: bool,
    cause: Option<reqwest::Error>,
}

impl Failure {
    fn refused(message: String) -> Self {
        Self { message, retryable: false, cause: None }
    }

    /// The network failed, which may heal.
    pub(super) fn network(message: String, cause: reqwest::Error) -> Self {
        // The URL is told by the message; in the cause it would be told twice.
        Self { message, retryable: true, cause: Some(cause.without_url()) }
    }

    pub(super) fn into_error(self, code: ErrorCode) -> Error {
        let error = Error::new(code, self.message).with_retryable(self.retryable);
        match self.cause {
            Some(cause) => error.with_cause(cause),
            None => error,
        }
    }
}

/// Everything under one base URL.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    client: Client,
    base: Url,
}

impl Remote {
    /// Checks a base URL: https, or http where the host is a loopback one or one
    /// of `plain_http_hosts`; no userinfo, query or fragment.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidRequest`], naming the rule.
    pub(super) fn new(base: &str, plain_http_hosts: &[String]) -> Result<Self, Error> {
        let refuse = |why: &str| Err(Error::invalid_request(format!("catalog URL: {why}")));
        let Ok(mut base) = Url::parse(base) else { return refuse("it is not a URL") };
        let Some(host) = base.host() else { return refuse("it has no host") };
        let loopback = is_loopback(&host);
        let named = plain_http_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&host.to_string()));
        match base.scheme() {
            "https" => {}
            "http" if loopback || named => {}
            "http" => {
                return refuse(&format!(
                    "{host} is not a loopback host; use https, or allow plain http for this host"
                ));
            }
            other => return refuse(&format!("{other} is no scheme for a catalog; use https")),
        }
        if !base.username().is_empty() || base.password().is_some() {
            return refuse("it must have no user name and no password");
        }
        if base.query().is_some() || base.fragment().is_some() {
            return refuse("it must have no query and no fragment");
        }
        if !base.path().ends_with('/') {
            let path = format!("{}/", base.path());
            base.set_path(&path);
        }
        install_crypto_provider();
        let mut client = Client::builder()
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(IDLE_TIMEOUT)
            .user_agent(concat!("portcullis/", env!("CARGO_PKG_VERSION")));
        if loopback {
            client = client.no_proxy();
        }
        let client = client
            .build()
            .map_err(|cause| Error::unavailable("the HTTP client could not be set up").with_cause(cause))?;
        Ok(Self { client, base })
    }

    /// The base URL.
    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// The URL of a clean relative path; it stays under the base. `?`, `#` and `%`
    /// are part of the name and are encoded.
    pub(super) fn resolve(&self, key: &str) -> Result<Url, Failure> {
        if !is_safe_relative_path(key) {
            return Err(Failure::refused(format!("{key:?} is no clean relative path")));
        }
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => {
                segments.pop_if_empty().extend(key.split('/'));
            }
            Err(()) => return Err(Failure::refused("the catalog URL has no path".into())),
        }
        if url.origin() == self.base.origin() && url.path().starts_with(self.base.path()) {
            Ok(url)
        } else {
            Err(Failure::refused(format!("{key:?} leaves the catalog")))
        }
    }

    /// Sends GET, follows at most three redirects within the origin, and answers
    /// with 200, or with 304 where `headers` asked for it.
    pub(super) async fn get(&self, url: Url, headers: HeaderMap) -> Result<Response, Failure> {
        let conditional =
            headers.contains_key(header::IF_NONE_MATCH) || headers.contains_key(header::IF_MODIFIED_SINCE);
        let first = url.clone();
        let mut url = url;
        for _ in 0..=REDIRECTS {
            let request = self
                .client
                .get(url.clone())
                .headers(headers.clone())
                .header(header::ACCEPT_ENCODING, "identity");
            let response = request.send().await.map_err(|cause| {
                Failure::network(format!("{first} could not be reached: {}", reason(&cause)), cause)
            })?;
            match response.status() {
                StatusCode::OK => return Ok(response),
                StatusCode::NOT_MODIFIED if conditional => return Ok(response),
                status if is_redirect(status) => url = self.redirected(&first, &url, &response)?,
                status => {
                    return Err(Failure {
                        message: format!("{first} answered {status}"),
                        retryable: is_passing(status),
                        cause: None,
                    });
                }
            }
        }
        Err(Failure::refused(format!("{first} redirects more than {REDIRECTS} times")))
    }

    fn redirected(&self, first: &Url, from: &Url, response: &Response) -> Result<Url, Failure> {
        let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        let Some(to) = location.and_then(|location| from.join(location).ok()) else {
            return Err(Failure::refused(format!("{first} redirects to nowhere")));
        };
        let plain = to.username().is_empty() && to.password().is_none();
        if to.origin() == self.base.origin() && plain {
            Ok(to)
        } else {
            Err(Failure::refused(format!(
                "{first} redirects to another origin, {}; a catalog serves its own files",
                to.origin().ascii_serialization()
            )))
        }
    }
}

/// Whether a host is this machine by its name alone.
fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => name.eq_ignore_ascii_case("localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Whether the same request may be answered otherwise a little later.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

/// Why a request failed, in a few words without the URL.
fn reason(cause: &reqwest::Error) -> &'static str {
    if cause.is_timeout() {
        "it took too long"
    } else if cause.is_connect() {
        "no connection"
    } else {
        "the exchange broke off"
    }
}

/// The one cryptography provider of every TLS client in the process; whoever
/// comes second finds it installed.
fn install_crypto_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _already_installed = rustls::crypto::ring::default_provider().install_default();
    });
}
