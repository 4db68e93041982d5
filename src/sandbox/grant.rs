//! The one place that says yes: whether a request may leave, and to which address.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use http::{HeaderName, Method, Uri, uri::Scheme};

use super::{address::is_global, settings::DevelopmentHost};
use crate::domain::manifest::{CredentialPlacement, HostName, WasmComponent};

/// Why a request may not leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The rule, as a stable word.
    pub(crate) rule: &'static str,
    /// The host that was asked for.
    pub(crate) host: String,
    /// The address that broke the rule, where one did.
    pub(crate) address: Option<IpAddr>,
}

/// Where a request may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The host, also the name that its certificate must bear.
    pub(crate) host: String,
    /// Whether the connection is encrypted.
    pub(crate) tls: bool,
    /// The address of a host marked for development; anything else is resolved,
    /// and the result goes through [`Grant::addresses`].
    pub(crate) development: Option<SocketAddr>,
}

/// What one connector may reach. The default reaches nothing.
#[derive(Debug, Default)]
pub(crate) struct Grant {
    allowed: HashMap<String, Option<SocketAddr>>,
    reserved_headers: Vec<HeaderName>,
}

impl Grant {
    /// What the manifest asks for, where the operator's development hosts are bent
    /// to their addresses.
    pub(crate) fn new(component: &WasmComponent, development: &[DevelopmentHost]) -> Self {
        let address =
            |host: &HostName| development.iter().find(|one| one.host == *host).map(|one| one.address);
        let reserved = component.credential.iter().filter_map(|credential| match &credential.placement {
            CredentialPlacement::Header { name, .. } => HeaderName::try_from(name.as_str()).ok(),
            CredentialPlacement::Query { .. } => None,
        });
        Self {
            allowed: component
                .allowed_hosts
                .iter()
                .map(|host| (host.as_str().to_owned(), address(host)))
                .collect(),
            reserved_headers: reserved.collect(),
        }
    }

    /// Headers that only the host sets; a guest's are taken away.
    pub(crate) fn reserved_headers(&self) -> &[HeaderName] {
        &self.reserved_headers
    }

    /// Decides about a request before anything is resolved.
    pub(crate) fn destination(&self, method: &Method, uri: &Uri) -> Result<Destination, Refusal> {
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        let refuse = |rule| Err(Refusal { rule, host: host.clone(), address: None });
        let Some(authority) = uri.authority() else { return refuse("host") };
        if authority.as_str().contains('@') {
            return refuse("userinfo");
        }
        if *method == Method::CONNECT || *method == Method::TRACE {
            return refuse("method");
        }
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return refuse("scheme"),
        };
        let Some(development) = self.allowed.get(&host) else { return refuse("host") };
        if development.is_none() {
            if !tls {
                return refuse("scheme");
            }
            // A port that does not parse must not pass for a missing one.
            let has_port = authority.as_str().len() > authority.host().len();
            if has_port && authority.port_u16() != Some(443) {
                return refuse("port");
            }
        }
        Ok(Destination { host, tls, development: *development })
    }

    /// Decides about what a name resolved to. One address that is not global spoils
    /// all: such an answer is a mistake or an attack.
    pub(crate) fn addresses(host: &str, resolved: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Refusal> {
        match resolved.iter().find(|one| !is_global(one.ip())) {
            Some(one) => Err(Refusal { rule: "address", host: host.to_owned(), address: Some(one.ip()) }),
            None => Ok(resolved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        let component = serde_json::from_value(serde_json::json!({
            "world": "portcullis:connector/connector@0.1.0",
            "allowedHosts": ["api.example.com", "dev.example.com"],
            "credential": {"hosts": ["api.example.com"], "placement": {"in": "header", "name": "X-Api-Key"}},
        }));
        let component: WasmComponent = component.expect("a component");
        let development = DevelopmentHost {
            host: HostName::parse("dev.example.com").expect("a host"),
            address: ([127, 0, 0, 1], 9).into(),
        };
        Grant::new(&component, &[development])
    }

    fn decide(uri: &str) -> Result<Destination, &'static str> {
        grant().destination(&Method::GET, &uri.parse().expect("a uri")).map_err(|refusal| refusal.rule)
    }

    #[test]
    fn only_exact_hosts_over_https_pass() {
        assert_eq!(decide("https://api.example.com/x").map(|to| (to.tls, to.development)), Ok((true, None)));
        assert!(decide("https://API.example.com:443/").is_ok());
        assert_eq!(decide("http://api.example.com/"), Err("scheme"));
        assert_eq!(decide("ftp://api.example.com/"), Err("scheme"));
        assert_eq!(decide("https://api.example.com:8443/"), Err("port"));
        assert_eq!(decide("https://api.example.com:/"), Err("port"));
        for other in ["example.com", "x.api.example.com", "api.example.com.", "127.0.0.1", "[::1]"] {
            assert_eq!(decide(&format!("https://{other}/")), Err("host"), "{other}");
        }
        assert_eq!(decide("https://me@api.example.com/"), Err("userinfo"));
        assert_eq!(decide("https://api.example.com@evil.example/"), Err("userinfo"));
    }

    #[test]
    fn a_development_host_may_be_plain_at_any_port() {
        let to = decide("http://dev.example.com:1234/").expect("allowed");
        assert_eq!((to.tls, to.development), (false, Some(([127, 0, 0, 1], 9).into())));
    }

    #[test]
    fn tunnels_and_traces_never_leave() {
        let uri: Uri = "https://api.example.com/".parse().expect("a uri");
        for method in [Method::CONNECT, Method::TRACE] {
            assert_eq!(grant().destination(&method, &uri).map_err(|refusal| refusal.rule), Err("method"));
        }
    }

    #[test]
    fn one_private_address_spoils_an_answer() {
        let public: SocketAddr = ([1, 1, 1, 1], 443).into();
        let private: SocketAddr = ([10, 0, 0, 1], 443).into();
        assert_eq!(Grant::addresses("h", vec![public]), Ok(vec![public]));
        let refusal = Grant::addresses("h", vec![public, private]).expect_err("refused");
        assert_eq!((refusal.rule, refusal.address), ("address", Some(private.ip())));
    }

    #[test]
    fn the_credential_header_is_reserved_and_the_default_reaches_nothing() {
        assert_eq!(grant().reserved_headers(), [HeaderName::from_static("x-api-key")]);
        let uri: Uri = "https://api.example.com/".parse().expect("a uri");
        assert!(Grant::default().destination(&Method::GET, &uri).is_err());
    }
}
