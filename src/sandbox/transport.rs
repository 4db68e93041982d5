//! Connections to where a request may go: resolve, check, dial, TLS.

use std::{io, net::SocketAddr, sync::Arc};

use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    sync::OnceCell,
};
use tokio_rustls::TlsConnector;
use wasmtime_wasi_http::Error as HttpError;

use super::grant::{Destination, Grant, Refusal};

/// A connection, encrypted or not.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Why there is no connection.
pub(crate) enum ConnectError {
    /// It may not be.
    Refused(Refusal),
    /// It did not work.
    Failed(HttpError),
}

/// Makes connections. The certificates of the system are read at first need.
#[derive(Default)]
pub(crate) struct Transport {
    tls: OnceCell<Arc<ClientConfig>>,
}

impl Transport {
    /// Connects to `destination`. Only addresses that passed the check are dialed,
    /// so that a name cannot change its mind between the two.
    pub(crate) async fn connect(
        &self,
        destination: &Destination,
    ) -> Result<Box<dyn Connection>, ConnectError> {
        let addresses = match destination.development {
            Some(address) => vec![address],
            None => resolve(&destination.host).await?,
        };
        let stream = dial(&addresses).await.map_err(ConnectError::Failed)?;
        if !destination.tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(destination.host.clone())
            .map_err(|_| ConnectError::Failed(HttpError::HttpRequestUriInvalid))?;
        let config = self.tls.get_or_try_init(tls_config).await.map_err(ConnectError::Failed)?;
        let stream = TlsConnector::from(Arc::clone(config))
            .connect(name, stream)
            .await
            .map_err(|cause| ConnectError::Failed(HttpError::Tls(cause)))?;
        Ok(Box::new(stream))
    }
}

async fn resolve(host: &str) -> Result<Vec<SocketAddr>, ConnectError> {
    let unknown = || ConnectError::Failed(HttpError::DnsError { rcode: None, info_code: None });
    let resolved: Vec<SocketAddr> = lookup_host((host, 443)).await.map_err(|_| unknown())?.collect();
    if resolved.is_empty() {
        return Err(unknown());
    }
    Grant::addresses(host, resolved).map_err(ConnectError::Refused)
}

async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, HttpError> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Small requests should not wait for a full packet; a socket that
                // cannot do without is as good.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(cause) => last = cause,
        }
    }
    Err(HttpError::Connect(last))
}

async fn tls_config() -> Result<Arc<ClientConfig>, HttpError> {
    let broken = || HttpError::ConfigurationError;
    let found =
        tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await.map_err(|_| broken())?;
    for error in &found.errors {
        tracing::warn!(%error, "a certificate of the system cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        tracing::error!("the system has no root certificates; connectors cannot reach any https host");
        return Err(broken());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| broken())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_of_this_machine_is_refused_after_it_resolved() {
        let destination = Destination { host: "localhost".to_owned(), tls: true, development: None };
        let Err(ConnectError::Refused(refusal)) = Transport::default().connect(&destination).await else {
            panic!("localhost must be refused");
        };
        assert_eq!(
            (refusal.rule, refusal.address.is_some_and(|address| address.is_loopback())),
            ("address", true)
        );
    }
}
