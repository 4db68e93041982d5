//! The one engine: its configuration, its fingerprint, and the ticker that
//! interrupts guests.

use std::{
    hash::{Hash as _, Hasher},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::settings::SandboxSettings;
use crate::domain::error::Error;

/// How much wasm stack a guest has; interpreters inside guests need this much.
const WASM_STACK: usize = 1 << 20;
/// A guest's whole stack: what is above the wasm stack is for host calls.
const FIBER_STACK: usize = 2 << 20;
/// Memory of a slot that is wiped in place rather than given back to the system.
const KEEP_RESIDENT: usize = 512 << 10;
/// Slots kept warm while nobody uses them.
const WARM_SLOTS: u32 = 128;
/// Core instances of one component: Python components link dozens.
const CORE_INSTANCES: u32 = 128;

/// The engine with its ticker. The ticker ends when this is dropped.
pub(crate) struct Engine {
    engine: wasmtime::Engine,
    fingerprint: String,
    _ticker: Ticker,
}

impl Engine {
    /// Builds the engine and starts its ticker.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] when this machine has not
    /// the address space or the thread that it needs.
    pub(crate) fn new(settings: &SandboxSettings) -> Result<Self, Error> {
        let engine = wasmtime::Engine::new(&configuration(settings)).map_err(|cause| {
            Error::unavailable(
                "the sandbox cannot reserve its instances; lower poolInstances or raise the limit on address space",
            )
            .with_retryable(false)
            .with_cause(cause.to_string())
        })?;
        let fingerprint = fingerprint(&engine);
        let ticker = Ticker::start(&engine, settings.tick)?;
        Ok(Self { engine, fingerprint, _ticker: ticker })
    }

    /// The wasmtime engine.
    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.engine
    }

    /// Names every setting and version that compiled code depends on.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// How the sandbox sets wasmtime up. Public so that what is compared with the
/// sandbox can run on the same settings.
#[must_use]
pub fn configuration(settings: &SandboxSettings) -> Config {
    let instances = settings.pool_instances;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_stacks(instances.saturating_mul(2))
        .total_core_instances(instances.saturating_mul(16).max(CORE_INSTANCES))
        .total_memories(instances.saturating_mul(2))
        .total_tables(instances.saturating_mul(4))
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(4)
        .max_tables_per_component(64)
        .max_tables_per_module(8)
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(2 << 20)
        .table_elements(usize::try_from(settings.ceilings.table_elements).unwrap_or(usize::MAX))
        .max_memory_size(usize::try_from(settings.ceilings.memory_bytes).unwrap_or(usize::MAX))
        .max_unused_warm_slots(WARM_SLOTS.min(instances))
        .linear_memory_keep_resident(KEEP_RESIDENT)
        .table_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto);
    let mut config = Config::new();
    // A memory is reserved whole (4 GiB and a guard), so that loads and stores need
    // no bounds checks and a memory never moves.
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .memory_may_move(false)
        .memory_init_cow(true)
        .epoch_interruption(true)
        .parallel_compilation(true)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(FIBER_STACK)
        .wasm_backtrace_max_frames(None)
        .native_unwind_info(false)
        .wasm_component_model(true);
    config
}

fn fingerprint(engine: &wasmtime::Engine) -> String {
    struct Collect(Sha256);
    impl Hasher for Collect {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        fn finish(&self) -> u64 {
            0
        }
    }
    let mut collect = Collect(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut collect);
    hex::encode(&collect.0.finalize()[..16])
}

/// An OS thread, so that guests that fill every core cannot hold it up.
struct Ticker {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    fn start(engine: &wasmtime::Engine, tick: Duration) -> Result<Self, Error> {
        let (stop, stopped) = mpsc::channel::<()>();
        let engine = engine.weak();
        let thread = std::thread::Builder::new()
            .name("guest-ticker".into())
            .spawn(move || {
                while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(tick) {
                    let Some(engine) = engine.upgrade() else { return };
                    engine.increment_epoch();
                }
            })
            .map_err(|cause| {
                Error::unavailable("the sandbox cannot start its ticker thread").with_cause(cause)
            })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the guest ticker panicked");
        }
    }
}

/// Shares one engine among the sandbox's parts.
pub(crate) type SharedEngine = Arc<Engine>;
