//! Who may ask: the bearer token, and the names that guard against DNS rebinding.
//!
//! A web page can make a browser on this machine send requests here under a name
//! that its owner points at 127.0.0.1. Such a request bears the foreign name in
//! `Host`, so only names that are ours are let in; and it bears `Origin`, which
//! must then be our own.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use http::{HeaderMap, HeaderName, header};
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

use super::ApiState;
use crate::domain::error::{Error, ErrorCode};

/// The names under which the daemon may be addressed.
#[derive(Clone, Debug)]
pub struct Access {
    listen: SocketAddr,
    hosts: Vec<String>,
}

impl Access {
    /// Loopback names and the listening address, each with our port; and `hosts`,
    /// where a name without a port is good for any port. On an address that stands
    /// for all interfaces, any IP address with our port is ours too: rebinding
    /// needs a name.
    #[must_use]
    pub fn new(listen: SocketAddr, hosts: impl IntoIterator<Item = String>) -> Self {
        Self { listen, hosts: hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect() }
    }

    fn admits(&self, authority: &str) -> bool {
        let authority = authority.to_ascii_lowercase();
        let (name, port) = split_port(&authority);
        if self.hosts.iter().any(|host| *host == authority || host == name) {
            return true;
        }
        if port.unwrap_or(80) != self.listen.port() {
            return false;
        }
        let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        match address.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback() || ip == self.listen.ip() || self.listen.ip().is_unspecified(),
            Err(_) => name == "localhost",
        }
    }
}

/// Splits `name:port`, minding the colons of a bracketed IPv6 address. A port
/// that is none leaves the whole as the name, which then matches nothing.
fn split_port(authority: &str) -> (&str, Option<u16>) {
    let colon = authority.rfind(':').filter(|&at| !authority[at..].contains(']'));
    match colon.and_then(|at| Some((at, authority[at + 1..].parse().ok()?))) {
        Some((at, port)) => (&authority[..at], Some(port)),
        None => (authority, None),
    }
}

/// The path that needs no token: whoever restarts daemons has none.
const OPEN: &str = "/healthz";

/// Lets a request in, or says why not.
pub(super) fn admit(state: &ApiState, request: &Request) -> Result<(), Error> {
    let authority = authority(request)?;
    if !state.access.admits(authority) {
        return Err(refused(format!(
            "this daemon does not answer to the host name {authority:?}; use its address or configure the name"
        )));
    }
    if let Some(origin) = single(request.headers(), header::ORIGIN)?
        && !is_same_site(origin, authority)
    {
        return Err(refused(format!("requests from the origin {origin:?} are refused")));
    }
    if request.uri().path() == OPEN {
        return Ok(());
    }
    let token = single(request.headers(), header::AUTHORIZATION)?.and_then(bearer);
    if token.is_some_and(|token| is_token(token, &state.token)) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::Unauthenticated,
        "send the daemon's token as \"Authorization: Bearer …\"; it is in the file \"token\" of the data directory",
    ))
}

fn refused(message: String) -> Error {
    Error::new(ErrorCode::OriginRefused, message)
}

/// Whom the request is for. A target that bears a host must agree with `Host`.
fn authority(request: &Request) -> Result<&str, Error> {
    let header = single(request.headers(), header::HOST)?;
    match (request.uri().authority().map(http::uri::Authority::as_str), header) {
        (Some(target), Some(header)) if !target.eq_ignore_ascii_case(header) => {
            Err(refused("the request target and the Host header name different hosts".into()))
        }
        (Some(authority), _) | (None, Some(authority)) => Ok(authority),
        (None, None) => Err(refused("the Host header is required".into())),
    }
}

/// A header that may stand at most once.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Error> {
    let mut values = headers.get_all(&name).iter();
    let (first, second) = (values.next(), values.next());
    match (first.map(|value| value.to_str()), second) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(refused(format!("the header {name} must be sent once, in plain ASCII"))),
    }
}

fn is_same_site(origin: &str, authority: &str) -> bool {
    origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"))
        .is_some_and(|host| host.eq_ignore_ascii_case(authority))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
}

fn is_token(shown: &str, expected: &SecretString) -> bool {
    let expected = expected.expose_secret();
    // An empty token would let everyone in.
    !expected.is_empty() && bool::from(shown.as_bytes().ct_eq(expected.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_ours_are_admitted() {
        let loopback = Access::new("127.0.0.1:7700".parse().unwrap(), ["Gate.Example".into()]);
        for ours in [
            "127.0.0.1:7700",
            "localhost:7700",
            "LOCALHOST:7700",
            "[::1]:7700",
            "gate.example",
            "gate.example:443",
        ] {
            assert!(loopback.admits(ours), "{ours}");
        }
        for foreign in [
            "127.0.0.1",
            "127.0.0.1:80",
            "evil.example:7700",
            "localhost.evil.example:7700",
            "10.0.0.1:7700",
            "127.0.0.1:7700:7700",
            "",
            ":7700",
            "localhost:99999",
            "notgate.example",
        ] {
            assert!(!loopback.admits(foreign), "{foreign}");
        }
        let everywhere = Access::new("0.0.0.0:7700".parse().unwrap(), []);
        assert!(everywhere.admits("10.0.0.1:7700"));
        assert!(!everywhere.admits("evil.example:7700"));
    }
}
