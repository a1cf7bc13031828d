//! The engines that rules run in.

use wasmtime::{Config, Enabled, Engine, Inlining, OptLevel, PoolingAllocationConfig};

use crate::Limits;
use crate::limits::{INSTANCES, MEMORIES, TABLES, TICK, max_instances};

/// Files up to this size, in bytes, are compiled with small functions put into their callers: calls
/// get 6 % cheaper, for 2.4 times the compile time. A rule in Rust is a third of it, one that
/// brings an interpreter ten times larger.
const INLINED: usize = 1 << 20;

/// Whether a file of so many bytes is compiled with inlining.
pub(crate) fn inlining(bytes: usize) -> Inlining {
    if bytes <= INLINED { Inlining::Yes } else { Inlining::No }
}

/// What decides the machine code, and how it is run.
pub(crate) fn config(limits: &Limits, inlining: Inlining) -> Config {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .compiler_inlining(inlining)
        .epoch_interruption(true)
        .max_wasm_stack(limits.stack_bytes)
        // A fault is reported in the rule's own words. Addresses in its machine code would not
        // help, and cost load time.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        .native_unwind_info(false);
    config
}

/// An engine to run rules in, with a clock of its own, which stops with it.
pub(crate) fn engine(limits: &Limits, inlining: Inlining) -> wasmtime::Result<Engine> {
    let engine = Engine::new(config(limits, inlining).allocation_strategy(pool()))?;
    let clock = engine.weak();
    std::thread::Builder::new().name("rule clock".into()).spawn(move || {
        while let Some(live) = clock.upgrade() {
            live.increment_epoch();
            drop(live);
            std::thread::sleep(TICK);
        }
    })?;
    Ok(engine)
}

/// Memory is mapped once and then reset: what an instance wrote is undone before the next one. The
/// sizes here are address space; what a rule may use of it is [`Limits`]' to say.
fn pool() -> PoolingAllocationConfig {
    let instances = max_instances();
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances * INSTANCES as u32)
        .total_memories(instances * MEMORIES as u32)
        .total_tables(instances * TABLES as u32)
        .max_memories_per_module(MEMORIES as u32)
        .max_tables_per_module(TABLES as u32)
        .table_elements(MAX_TABLE_ELEMENTS)
        .max_core_instance_size(16 << 20)
        .max_component_instance_size(64 << 20)
        // The pages that a call wrote are cleared and kept, which is cheaper than new ones, as far
        // as a call of a shipped rule reaches.
        .linear_memory_keep_resident(4 << 20)
        .pagemap_scan(Enabled::Auto)
        .table_keep_resident(1 << 12);
    pool
}

/// What a valid module can declare at most.
const MAX_TABLE_ELEMENTS: usize = 10_000_000;
