//! The real daemon, as a process of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::client::Client;

/// A running daemon; it ends when this is dropped.
pub(crate) struct Daemon {
    process: Child,
    data_dir: PathBuf,
    pub(crate) host: String,
    pub(crate) token: String,
}

impl Daemon {
    /// Starts one on `data_dir` and waits until it listens.
    pub(crate) fn start(data_dir: &Path, catalog: &Path) -> Self {
        // What a killed daemon left behind would be read as the new one's.
        let announced = data_dir.join("daemon.json");
        let _ = fs::remove_file(&announced);
        let process = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .arg("serve")
            .arg("--data-dir")
            .arg(data_dir)
            .args(["--listen", "127.0.0.1:0", "--catalog-refresh-interval", "0", "--catalog"])
            .arg(catalog)
            .env("PORTCULLIS_LOG", "warn")
            .stdout(Stdio::null())
            .spawn()
            .expect("the daemon starts");
        let mut daemon =
            Self { process, data_dir: data_dir.to_owned(), host: String::new(), token: String::new() };
        let started = Instant::now();
        let endpoint = loop {
            let document =
                fs::read(&announced).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
            if let Some(endpoint) = document.as_ref().and_then(|document| document["endpoint"].as_str()) {
                break endpoint.to_owned();
            }
            assert!(started.elapsed() < Duration::from_secs(30), "the daemon does not start");
            assert!(daemon.process.try_wait().expect("its state").is_none(), "the daemon ended");
            thread::sleep(Duration::from_millis(1));
        };
        daemon.host = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
        daemon.token = fs::read_to_string(data_dir.join("token")).expect("the token").trim().to_owned();
        daemon
    }

    /// A connection to it.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.host, &self.token).await
    }

    /// Ends it by force, as a crash would.
    pub(crate) fn kill(mut self) -> PathBuf {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it ends");
        self.data_dir.clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads the catalog and installs `keys`, waiting for the end of each operation.
pub(crate) async fn install(client: &mut Client, keys: &[String]) {
    finish(client, "/v1/connector-market:refresh", "refresh").await;
    for key in keys {
        finish(client, &format!("/v1/connector-market/connectors/{key}:install"), key).await;
    }
}

async fn finish(client: &mut Client, path: &str, name: &str) {
    let market = client.json("GET", "/v1/connector-market", &Value::Null).await;
    let body = json!({ "clientRequestId": format!("bench-{name}"), "expectedRevision": market["revision"] });
    let accepted = client.json("POST", path, &body).await;
    let id = accepted["operation"]["operationId"].as_str().expect("an operation id").to_owned();
    let started = Instant::now();
    loop {
        let operation =
            client.json("GET", &format!("/v1/connector-market/operations/{id}"), &Value::Null).await;
        match operation["state"].as_str() {
            Some("completed") => return,
            Some("failed") => panic!("{name}: {operation}"),
            _ => assert!(started.elapsed() < Duration::from_secs(60), "{name} does not end: {operation}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
