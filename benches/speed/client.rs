//! A keep-alive HTTP client that adds as little as it can to what is measured.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// One connection.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    token: String,
}

impl Client {
    /// Connects to `host`, which is an address and a port.
    pub(crate) async fn connect(host: &str, token: &str) -> Self {
        let stream = TcpStream::connect(host).await.expect("the server accepts");
        stream.set_nodelay(true).expect("nodelay");
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
        tokio::spawn(connection);
        Self { sender, host: host.to_owned(), token: token.to_owned() }
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: Bytes) -> (u16, Bytes) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Full::new(body))
            .expect("a request");
        self.sender.ready().await.expect("the connection is open");
        let response = self.sender.send_request(request).await.expect("an answer");
        let status = response.status().as_u16();
        (status, response.into_body().collect().await.expect("a body").to_bytes())
    }

    /// Sends a request and reads the answer as JSON; any status but 2xx is a fault of the benchmark.
    pub(crate) async fn json(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send(method, path, Bytes::from(body.to_string())).await;
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {}",
            String::from_utf8_lossy(&answer)
        );
        serde_json::from_slice(&answer).unwrap_or(Value::Null)
    }

    /// How long one request takes.
    pub(crate) async fn time(&mut self, path: &str, body: &Bytes) -> Duration {
        let start = Instant::now();
        let (status, _) = self.send("POST", path, body.clone()).await;
        let elapsed = start.elapsed();
        assert_eq!(status, 200, "{path}");
        elapsed
    }
}
