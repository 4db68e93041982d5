//! The limit: an HTTP handler that instantiates the same component on an engine
//! with the same settings and calls it. No schema, no policy, no accounting.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
};

use ::portcullis::sandbox::{SandboxSettings, configuration};
use axum::{Json, Router, extract::State, routing::post};
use serde_json::{Value, json};
use wasmtime::{
    Engine, Store,
    component::{Component, Linker},
};

wasmtime::component::bindgen!({ path: "wit/0.1.0", world: "connector", exports: { default: async } });

use exports::portcullis::connector::capabilities::CallContext;

/// The argument that makes this program the bare server.
pub(crate) const ROLE: &str = "bare-server";

/// An engine, a component that is ready to be instantiated, and its ticker.
pub(crate) struct Bare {
    engine: Engine,
    pre: ConnectorPre<()>,
}

impl Bare {
    /// Compiles `component` under the sandbox's own configuration.
    pub(crate) fn new(component: &[u8]) -> Self {
        let settings = SandboxSettings::new(std::env::temp_dir());
        let engine = Engine::new(&configuration(&settings)).expect("an engine");
        let ticker = engine.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(settings.tick);
                ticker.increment_epoch();
            }
        });
        let component = Component::new(&engine, component).expect("a component");
        let pre = Linker::new(&engine).instantiate_pre(&component).expect("it links");
        Self { pre: ConnectorPre::new(pre).expect("a connector"), engine }
    }

    /// A fresh instance.
    pub(crate) async fn instance(&self) -> (Store<()>, Connector) {
        let mut store = Store::new(&self.engine, ());
        store.epoch_deadline_async_yield_and_update(1);
        let connector = self.pre.instantiate_async(&mut store).await.expect("an instance");
        (store, connector)
    }

    /// Instantiates and calls.
    pub(crate) async fn call(&self, input: &String) -> Option<String> {
        let (mut store, connector) = self.instance().await;
        let context = CallContext {
            request_id: "bench".into(),
            account: None,
            connection: "device-echo".into(),
            deadline: u64::MAX,
        };
        let called =
            connector.portcullis_connector_capabilities().call_invoke(&mut store, "echo", input, &context);
        called.await.expect("no trap").expect("no error").structured
    }
}

/// Serves until it is killed; prints its address first.
pub(crate) fn serve(component: &Path) -> ExitCode {
    let bare = Arc::new(Bare::new(&std::fs::read(component).expect("the component")));
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime").block_on(async {
        let app = Router::new().route("/call", post(handle)).with_state(bare);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{}", listener.local_addr().expect("its address"));
        axum::serve(
            axum::serve::ListenerExt::tap_io(listener, |stream| {
                let _ = stream.set_nodelay(true);
            }),
            app,
        )
        .await
        .expect("it serves");
    });
    ExitCode::SUCCESS
}

async fn handle(State(bare): State<Arc<Bare>>, Json(body): Json<Value>) -> Json<Value> {
    let structured = bare.call(&body["input"].to_string()).await;
    let structured: Option<Value> = structured.and_then(|text| serde_json::from_str(&text).ok());
    Json(json!({ "structuredContent": structured }))
}

/// The bare server as a process of its own; it ends when this is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) host: String,
}

impl Server {
    /// Starts one for the component at `path`.
    pub(crate) fn start(path: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .arg(ROLE)
            .arg(path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the bare server starts");
        let mut host = String::new();
        let output = process.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut host).expect("its address");
        Self { process, host: host.trim().to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
