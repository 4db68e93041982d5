//! Speaks HTTP to a daemon as any program would, also as a wrong one.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use serde_json::{Value, json};

use super::{Daemon, eventually};

/// One request, as it goes over the wire.
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// Beside `Host`, `Connection` and `Content-Length`.
    pub(super) headers: Vec<(&'a str, String)>,
    pub(super) body: &'a [u8],
}

/// Sends a request; none when the connection ended without an answer.
pub(super) fn send(endpoint: &str, asked: &Asked<'_>) -> Option<(u16, Value)> {
    let address = endpoint.strip_prefix("http://").unwrap();
    let Asked { method, path, headers, body } = asked;
    let mut stream = TcpStream::connect(address).ok()?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += &format!("Content-Length: {}\r\n\r\n", body.len());
    // A body that nobody wants may meet a closed connection; the answer is there all the same.
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.write_all(body));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

impl Daemon {
    /// Sends a request with the token and answers status and body.
    #[track_caller]
    pub(super) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.ask_raw(method, path, body.as_bytes()).expect("the daemon answers")
    }

    /// As [`Self::ask`], with a body of any bytes; none when the daemon went away.
    pub(super) fn ask_raw(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        send(&self.endpoint(), &Asked { method, path, headers: self.headers(), body })
    }

    /// What an honest JSON request bears.
    pub(super) fn headers(&self) -> Vec<(&'static str, String)> {
        vec![
            ("Authorization", format!("Bearer {}", self.token())),
            ("Content-Type", "application/json".to_owned()),
        ]
    }

    /// Calls a capability.
    #[track_caller]
    pub(super) fn call(&self, id: &str, input: &Value) -> (u16, Value) {
        self.ask("POST", &format!("/v1/capabilities/{id}:call"), Some(&json!({ "input": input })))
    }

    /// Calls a capability of a connector that was installed before the daemon was
    /// started: until it is up, callers are told to come back.
    #[track_caller]
    pub(super) fn call_when_started(&self, id: &str, input: &Value) -> (u16, Value) {
        eventually("the connector is started", || {
            let (status, answer) = self.call(id, input);
            if status == 503 {
                let told = (&answer["code"], &answer["retryable"]);
                assert_eq!(told, (&json!("connector_market_unavailable"), &json!(true)), "{answer}");
                return None;
            }
            Some((status, answer))
        })
    }

    /// What stands at `path`.
    #[track_caller]
    pub(super) fn see(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// The whole market.
    #[track_caller]
    pub(super) fn snapshot(&self) -> Value {
        self.see("/v1/connector-market")
    }

    /// One connector.
    #[track_caller]
    pub(super) fn connector(&self, key: &str) -> Value {
        self.see(&format!("/v1/connector-market/connectors/{key}"))
    }

    /// The routes of one connector.
    #[track_caller]
    pub(super) fn routes(&self, key: &str) -> Vec<Value> {
        let mut routes = self.see("/v1/routes");
        let mut routes = std::mem::take(routes["routes"].as_array_mut().unwrap());
        routes.retain(|route| route["connectorKey"] == key);
        routes
    }

    /// The operations of one connector.
    #[track_caller]
    pub(super) fn operations(&self, key: &str) -> Vec<Value> {
        let mut snapshot = self.snapshot();
        let mut operations = std::mem::take(snapshot["operations"].as_array_mut().unwrap());
        operations.retain(|operation| operation["connectorKey"] == key);
        operations
    }

    /// A command on a connector at its own revision.
    #[track_caller]
    pub(super) fn command(&self, key: &str, verb: &str, request_id: &str) -> (u16, Value) {
        let body = json!({
            "clientRequestId": request_id,
            "expectedRevision": 0,
            "expectedConnectorRevision": self.connector(key)["revision"],
        });
        self.ask("POST", &format!("/v1/connector-market/connectors/{key}:{verb}"), Some(&body))
    }

    /// The operation when it has ended.
    #[track_caller]
    pub(super) fn ended(&self, operation_id: &Value) -> Value {
        let path = format!("/v1/connector-market/operations/{}", operation_id.as_str().unwrap());
        eventually("the operation ends", || {
            let operation = self.see(&path);
            ["completed", "failed"].iter().any(|end| operation["state"] == *end).then_some(operation)
        })
    }

    /// Installs a connector, or updates it.
    #[track_caller]
    pub(super) fn install(&self, key: &str) {
        let revision = self.connector(key)["revision"].clone();
        let (status, accepted) = self.command(key, "install", &format!("install-{key}-{revision}"));
        assert_eq!(status, 202, "{accepted}");
        let ended = self.ended(&accepted["operation"]["operationId"]);
        assert_eq!(ended["state"], "completed", "{ended}");
    }
}
