//! What may leave the sandbox.

use std::{net::SocketAddr, time::Duration};

use portcullis::{
    domain::{error::ErrorCode, manifest::HostName},
    ports::ImplementationHost as _,
    sandbox::DevelopmentHost,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
};

use super::{
    calls::until,
    world::{Connector, World, call},
};

/// A server that answers each connection with `answer` and tells what it was asked.
/// It keeps the connection open, so that only the host can end it.
async fn server(answer: &'static str) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (asked, questions) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let _ = asked.send(String::from_utf8_lossy(&head).into_owned());
                let _ = stream.write_all(answer.as_bytes()).await;
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
                let _ = asked.send("closed".to_owned());
            });
        }
    });
    (address, questions)
}

async fn world(address: SocketAddr) -> World {
    let development = DevelopmentHost { host: HostName::parse("dev.example.com").expect("a host"), address };
    let world = World::with(|settings| settings.development_hosts = vec![development]);
    let hosts = vec!["dev.example.com", "api.example.com", "localhost.localdomain"];
    let connector = Connector { hosts, ..Connector::misbehave() };
    world.activate(&connector).await.expect("a route");
    world
}

async fn fetch(world: &World, input: Value) -> Value {
    world.ask("bad.fetch", input).await
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

#[tokio::test]
async fn a_development_host_is_reached_at_its_address() {
    let (address, mut asked) = server(OK).await;
    let world = world(address).await;
    let answer =
        fetch(&world, json!({"url": "http://dev.example.com:1234/a?b=c", "headers": {"x-mine": "1"}})).await;
    assert_eq!((&answer["status"], &answer["body"]), (&json!(200), &json!("hello")));
    let question = asked.recv().await.expect("a request").to_ascii_lowercase();
    assert!(question.starts_with("get /a?b=c http/1.1\r\n"), "{question}");
    assert!(
        question.contains("host: dev.example.com:1234\r\n") && question.contains("x-mine: 1\r\n"),
        "{question}"
    );
    assert_eq!(asked.recv().await.as_deref(), Some("closed"), "the connection ends with the call");
    assert_eq!(world.host.counts().egress_requests, 1);
}

#[tokio::test]
async fn everything_outside_of_the_grant_is_denied_and_counted() {
    let (address, mut asked) = server(OK).await;
    let world = world(address).await;
    let port = address.port();
    let refused = [
        "https://other.example.com/".to_owned(),
        "https://sub.dev.example.com/".to_owned(),
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        "http://api.example.com/".to_owned(),
        "https://api.example.com:8443/".to_owned(),
        "https://user@api.example.com/".to_owned(),
        "https://user:pass@dev.example.com/".to_owned(),
        // It resolves to a loopback address.
        "https://localhost.localdomain/".to_owned(),
    ];
    for (at, url) in refused.iter().enumerate() {
        let answer = fetch(&world, json!({"url": url})).await;
        let error = answer["error"].as_str().unwrap_or_default().to_owned();
        if url.contains("localhost.localdomain") && error.starts_with("DNS") {
            // This machine does not know the name; nothing left either way.
            continue;
        }
        assert_eq!(error, "HTTP-request-denied", "{url}: {answer}");
        assert_eq!(world.host.counts().egress_refusals, at as u64 + 1, "{url}");
    }
    for method in ["CONNECT", "TRACE"] {
        let answer = fetch(&world, json!({"url": "http://dev.example.com/", "method": method})).await;
        assert_eq!(answer["error"], "HTTP-request-denied", "{method}");
    }
    assert!(asked.try_recv().is_err(), "nothing left");
    assert_eq!(world.host.counts().egress_requests, 0);
}

#[tokio::test]
async fn headers_of_the_connection_are_not_the_guests() {
    let (address, mut asked) = server(OK).await;
    let world = world(address).await;
    for name in ["host", "connection", "transfer-encoding", "upgrade", "proxy-authorization", "keep-alive"] {
        let answer = fetch(&world, json!({"url": "http://dev.example.com/", "headers": {name: "x"}})).await;
        assert_eq!(answer["at"], "headers", "{name}: {answer}");
    }
    assert!(asked.try_recv().is_err(), "nothing left");
}

#[tokio::test]
async fn a_redirect_is_the_guests_to_follow() {
    let (address, mut asked) =
        server("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n").await;
    let world = world(address).await;
    let answer = fetch(&world, json!({"url": "http://dev.example.com/"})).await;
    assert_eq!(answer["status"], 302);
    asked.recv().await.expect("one request");
    assert_eq!(asked.recv().await.as_deref(), Some("closed"));
    assert!(asked.try_recv().is_err(), "the host followed nothing");
}

#[tokio::test]
async fn a_silent_server_holds_a_call_no_longer_than_its_deadline() {
    let (address, mut asked) = server("").await;
    let development = DevelopmentHost { host: HostName::parse("dev.example.com").expect("a host"), address };
    let world = World::with(|settings| settings.development_hosts = vec![development]);
    let connector = Connector { hosts: vec!["dev.example.com"], ..Connector::misbehave() };
    world.activate(&connector.limits(json!({"wallMs": 300}))).await.expect("a route");
    let outcome = world.call("bad.fetch", json!({"url": "http://dev.example.com/"})).await;
    match outcome {
        Err(error) => assert_eq!(error.code, ErrorCode::CapabilityDeadlineExceeded),
        // The request's own patience ends with the call; the guest may be told first.
        Ok(response) => {
            let answer = response.result.structured_content.expect("an answer");
            assert_eq!(answer["error"], "connection-read-timeout");
        }
    }
    asked.recv().await.expect("a request");
    assert_eq!(asked.recv().await.as_deref(), Some("closed"));
}

#[tokio::test]
async fn a_fence_takes_the_connection_with_it() {
    let (address, mut asked) = server("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel").await;
    let world = world(address).await;
    let running = tokio::spawn({
        let host = world.host.clone();
        async move { host.call(call("bad.fetch", json!({"url": "http://dev.example.com/"}))).await }
    });
    asked.recv().await.expect("a request");
    world.deactivate("bad", 1).await.expect("gone");
    assert_eq!(running.await.expect("a call").expect_err("a refusal").code, ErrorCode::CapabilityFenced);
    let closed = tokio::time::timeout(Duration::from_secs(5), asked.recv()).await.expect("in time");
    assert_eq!(closed.as_deref(), Some("closed"));
    until(|| world.host.routes().is_empty()).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_ordinary_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let world = world(address).await;
    let answer = fetch(&world, json!({"url": "http://dev.example.com/"})).await;
    assert!(answer["error"].as_str().is_some_and(|error| error.starts_with("connection-")), "{answer}");
    let answer = fetch(&world, json!({"url": "https://dev.example.com/"})).await;
    assert!(answer["error"].is_string(), "{answer}");
    assert_eq!(world.host.counts().egress_refusals, 0);
}
