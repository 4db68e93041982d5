//! The whole daemon on a data directory: boot, bootstrap, restart, stop.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Args, FromArgMatches};
use portcullis::{
    config::{ServeArgs, ServeSettings},
    daemon::{Daemon, Endpoint, run},
    domain::{
        capability::{CallRequest, CallResponse},
        error::{Error, ErrorCode},
        id::OperationId,
        operation::{Operation, OperationState},
    },
    market::{ConnectorMutation, Mutation},
    ports::{RandomIds, SystemClock},
};
use serde_json::json;
use tokio::{net::TcpListener, sync::oneshot};

use super::fakes::{eventually, key};

const LIMIT: Duration = Duration::from_secs(20);

fn settings(data_dir: &Path) -> ServeSettings {
    let catalog = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/catalog/v1");
    let flags = [
        "serve",
        "--listen=127.0.0.1:0",
        "--catalog-refresh-interval=0",
        "--pool-size=16",
        "--drain-deadline=1",
        &format!("--catalog={}", catalog.display()),
        &format!("--data-dir={}", data_dir.display()),
    ];
    let command = ServeArgs::augment_args(clap::Command::new("serve")).mut_args(|arg| arg.env(None));
    let args = ServeArgs::from_arg_matches(&command.get_matches_from(flags)).expect("arguments");
    ServeSettings::resolve(args).expect("valid settings")
}

async fn boot(data_dir: &Path) -> Result<Daemon, Error> {
    Daemon::boot(settings(data_dir), Arc::new(SystemClock), Arc::new(RandomIds)).await
}

async fn mutation(daemon: &Daemon) -> Mutation {
    let snapshot = daemon.application.snapshot(&daemon.scope()).await.expect("a snapshot");
    Mutation {
        client_request_id: format!("test-{}", snapshot.revision.0).parse().expect("an id"),
        expected_revision: snapshot.revision,
        scope: daemon.scope(),
    }
}

async fn ended(daemon: &Daemon, id: &OperationId) -> Operation {
    let wait = async {
        loop {
            let operation = daemon.application.operation(&daemon.scope(), id).await.expect("visible");
            if !operation.is_active() {
                return operation;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("it ends")
}

async fn install_echo(daemon: &Daemon) {
    let refresh = daemon.application.refresh_catalog(mutation(daemon).await).await.expect("accepted");
    assert_eq!(ended(daemon, &refresh.operation.operation_id).await.state, OperationState::Completed);
    let command = ConnectorMutation {
        mutation: mutation(daemon).await,
        connector_key: key("echo"),
        expected_connector_revision: None,
    };
    let install = daemon.application.install(command).await.expect("accepted");
    let operation = ended(daemon, &install.operation.operation_id).await;
    assert_eq!(operation.state, OperationState::Completed);
}

async fn call_echo(daemon: &Daemon) -> Result<CallResponse, Error> {
    let request = CallRequest {
        request_id: "call".parse().expect("an id"),
        account: daemon.scope().account_id,
        capability: "echo.echo".parse().expect("a capability"),
        input: json!({ "message": "hello" }),
        deadline: None,
        progress: None,
    };
    daemon.host.call(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_installed_answers_again_after_a_restart_and_a_fence_silences_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let data_dir = folder.path().join("data");
    let first = boot(&data_dir).await.expect("booted");
    let refused = call_echo(&first).await.expect_err("nothing is published before the bootstrap");
    assert_eq!(refused.code, ErrorCode::Unavailable);
    first.bootstrap(&first.scope()).await.expect("bootstrapped");
    let mut events = first.events();
    install_echo(&first).await;
    call_echo(&first).await.expect("it answers");
    let event = tokio::time::timeout(LIMIT, events.recv()).await.expect("soon").expect("announced");
    assert!(event.sequence > 0);
    first.close(LIMIT).await.expect("closed");
    first.close(LIMIT).await.expect("closed already");

    let second = boot(&data_dir).await.expect("the lock is free again");
    second.bootstrap(&second.scope()).await.expect("bootstrapped");
    let account = second.scope().account_id;
    eventually("echo is back", || !second.host.capabilities(account.as_ref()).is_empty()).await;
    call_echo(&second).await.expect("it answers");

    second.fence(&second.scope()).await.expect("fenced");
    assert!(second.host.capabilities(account.as_ref()).is_empty());
    call_echo(&second).await.expect_err("it is silent");
    second.bootstrap(&second.scope()).await.expect("bootstrapped");
    eventually("echo is back", || !second.host.capabilities(account.as_ref()).is_empty()).await;
    call_echo(&second).await.expect("it answers");
    second.close(LIMIT).await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_announces_itself_while_it_serves_and_drains_before_it_stops() {
    let folder = tempfile::tempdir().expect("a folder");
    let data_dir = folder.path().join("data");
    let (sender, receiver) = oneshot::channel();
    let running = tokio::spawn(run(settings(&data_dir), |daemon, listener: TcpListener| async move {
        let soft = daemon.lifecycle().soft().clone();
        let _ = sender.send((Arc::clone(&daemon), listener.local_addr().expect("an address")));
        soft.cancelled().await;
        // A call that is still running when the stop begins.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!daemon.lifecycle().hard().is_cancelled(), "it is drained, not cut off");
    }));
    let (daemon, address) = receiver.await.expect("it serves");
    eventually("it is announced", || Endpoint::read(&data_dir).expect("readable").is_some()).await;
    let endpoint = Endpoint::read(&data_dir).expect("readable").expect("announced");
    assert_eq!(endpoint.endpoint, format!("http://{address}"));
    assert!(daemon.health().ready);

    let error = boot(&data_dir).await.expect_err("one daemon a directory");
    assert!(error.message.contains("another daemon"), "{}", error.message);

    daemon.lifecycle().stop_softly();
    tokio::time::timeout(LIMIT, running).await.expect("it stops").expect("no panic").expect("cleanly");
    assert_eq!(Endpoint::read(&data_dir).expect("readable"), None);
    assert!(!daemon.health().ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_outlasts_the_drain_is_fenced() {
    let folder = tempfile::tempdir().expect("a folder");
    let data_dir = folder.path().join("data");
    let (sender, receiver) = oneshot::channel();
    let running = tokio::spawn(run(settings(&data_dir), |daemon, _listener| async move {
        let _ = sender.send(Arc::clone(&daemon));
        std::future::pending::<()>().await;
    }));
    let daemon = receiver.await.expect("it serves");
    let started = tokio::time::Instant::now();
    daemon.lifecycle().stop_softly();
    tokio::time::timeout(LIMIT, running).await.expect("it stops").expect("no panic").expect("cleanly");
    assert!(started.elapsed() >= Duration::from_secs(1), "the drain deadline is one second");
    let error = call_echo(&daemon).await.expect_err("closed");
    assert!(error.retryable || error.code == ErrorCode::CapabilityNotFound, "{error:?}");
}

#[tokio::test]
async fn an_address_that_is_taken_is_told_before_anything_is_opened() {
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let data_dir = folder.path().join("data");
    let address = taken.local_addr().expect("an address");
    let settings = ServeSettings { listen: address, ..settings(&data_dir) };
    let error = run(settings, |_, _| async {}).await.expect_err("taken");
    assert!(error.message.contains(&address.to_string()), "{}", error.message);
    assert!(error.message.contains("--listen"), "{}", error.message);
    assert!(!data_dir.join("portcullis.db").exists() && !data_dir.join("token").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_fails_ends_the_daemon_with_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = run(settings(&folder.path().join("data")), |_, _| async {});
    let error = tokio::time::timeout(LIMIT, running).await.expect("it stops").expect_err("it failed");
    assert!(error.message.contains("listener"), "{}", error.message);
}
