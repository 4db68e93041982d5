//! The listener: real sockets, slow clients, stopping.

use std::{net::SocketAddr, time::Duration};

use portcullis::api::{self, Shutdown};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::fakes::{Api, OnCall, TOKEN};

async fn serve(api: &Api) -> (SocketAddr, Shutdown, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::default();
    let state = api.state(&address.to_string());
    (address, shutdown.clone(), tokio::spawn(api::serve(listener, state, shutdown)))
}

async fn call(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /v1/capabilities/feeds.read:call HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{{\"input\":{{}}}}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen");
}

#[tokio::test]
async fn a_call_in_flight_ends_softly_and_its_connection_is_closed() {
    let api = Api::default();
    let (address, shutdown, served) = serve(&api).await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    let mut stream = call(address).await;
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200");
    shutdown.soft.cancel();
    served.await.unwrap();
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn the_hard_stop_drops_a_call_that_does_not_end() {
    let api = Api::on_call(OnCall::Hang);
    let (address, shutdown, served) = serve(&api).await;
    let _stream = call(address).await;
    until("the call", || api.host.calls.lock().unwrap().len() == 1).await;
    shutdown.soft.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!served.is_finished(), "a running call is waited for");
    shutdown.hard.cancel();
    served.await.unwrap();
    assert_eq!(*api.host.dropped.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_call() {
    let api = Api::on_call(OnCall::Hang);
    let (address, _shutdown, _served) = serve(&api).await;
    let stream = call(address).await;
    until("the call", || api.host.calls.lock().unwrap().len() == 1).await;
    drop(stream);
    until("the end of the call", || *api.host.dropped.lock().unwrap() == 1).await;
}

#[tokio::test]
async fn garbage_is_refused_and_others_go_on() {
    let (address, _shutdown, _served) = serve(&Api::default()).await;
    let mut garbage = TcpStream::connect(address).await.unwrap();
    garbage.write_all(b"\x16\x03\x01 this is no HTTP\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    garbage.read_to_end(&mut answer).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    let mut stream = call(address).await;
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200");
}
