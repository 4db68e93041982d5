//! What the host keeps beside one instance, and the views on it that host calls get.

use std::sync::Arc;

use wasmtime::{Store, component::ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::{
    egress::Egress,
    imports::{CallLog, ClientView, LogView, ProgressReports, ReportingView, StateBuffer, StateView},
    limits::Limiter,
    wasi,
};

/// Host objects that one guest may hold: streams, requests, pollables. What they keep
/// counts for no memory limit: this and [`FIELD_BYTES`] bound it.
const HOST_OBJECTS: usize = 1 << 10;
/// The most that one set of header fields may hold.
const FIELD_BYTES: usize = 16 << 10;
/// Bytes that one host call or one answer may copy out of the guest.
const COPIED_BYTES: usize = 64 << 20;

/// The host's side of one instance.
pub(crate) struct InstanceState {
    table: ResourceTable,
    /// Made at first need: many guests call nothing of it.
    wasi: Option<WasiCtx>,
    http: WasiHttpCtx,
    egress: Egress,
    log: Arc<CallLog>,
    /// Memory and tables.
    pub(crate) limiter: Limiter,
    /// Reports to the caller.
    pub(crate) progress: ProgressReports,
    /// What was read and written.
    pub(crate) state: StateBuffer,
}

impl InstanceState {
    /// The state of a call that has not begun.
    pub(crate) fn new(
        limiter: Limiter,
        egress: Egress,
        log: CallLog,
        progress: ProgressReports,
        state: StateBuffer,
    ) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HOST_OBJECTS);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(FIELD_BYTES);
        Self { table, wasi: None, http, egress, log: Arc::new(log), limiter, progress, state }
    }

    /// A store that yields at every tick.
    pub(crate) fn into_store(self, engine: &wasmtime::Engine) -> Store<Self> {
        let mut store = Store::new(engine, self);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(COPIED_BYTES);
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        store
    }

    /// For `log`.
    pub(crate) fn log(&mut self) -> LogView<'_> {
        LogView(&self.log)
    }

    /// For `progress`.
    pub(crate) fn progress(&mut self) -> ReportingView<'_> {
        ReportingView(&mut self.progress)
    }

    /// For `state`.
    pub(crate) fn state(&mut self) -> StateView<'_> {
        StateView(&mut self.state)
    }

    /// For `client`.
    pub(crate) fn client(&mut self) -> ClientView {
        ClientView
    }
}

impl WasiView for InstanceState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let log = &self.log;
        WasiCtxView { ctx: self.wasi.get_or_insert_with(|| wasi::context(log)), table: &mut self.table }
    }
}

impl WasiHttpView for InstanceState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.egress }
    }
}
