//! A call over HTTP, keep-alive, one client: the daemon against the bare handler,
//! turn by turn in one run.

use bytes::Bytes;

use super::{Bar, Row, bare, client::Client, daemon, guest, percentile};

pub(crate) const NAME: &str = "call over HTTP, p50, echo";

const CALLS: usize = 10_000;
const WARM_UP: usize = 1_000;
const TURN: usize = 250;

pub(crate) fn measure() -> Row {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = vec!["echo".to_owned()];
    let catalog = guest::catalog_of_echoes(folder.path(), &keys);
    let server = bare::Server::start(&folder.path().join("echo.wasm"));
    let daemon = daemon::Daemon::start(&folder.path().join("data"), &catalog);
    let body = Bytes::from_static(br#"{"input":{"message":"hello"}}"#);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut client = daemon.client().await;
        daemon::install(&mut client, &keys).await;
        let mut limit = Client::connect(&server.host, "").await;
        while ours.len() < CALLS + WARM_UP {
            for _ in 0..TURN {
                theirs.push(limit.time("/call", &body).await);
            }
            for _ in 0..TURN {
                ours.push(client.time("/v1/capabilities/echo.echo:call", &body).await);
            }
        }
    });
    Row {
        name: NAME,
        measured: percentile(&mut ours[WARM_UP..], 50),
        reference: Some(percentile(&mut theirs[WARM_UP..], 50)),
        bar: Bar::Ratio(1.5),
        condition: Ok(()),
    }
}
