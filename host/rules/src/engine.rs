//! The engines that rules run in.

use wasmtime::{Config, Enabled, Engine, Inlining, OptLevel, PoolingAllocationConfig};

use crate::Limits;
use crate::limits::{INSTANCES, MEMORIES, TABLES, TICK, max_instances};

/// Largest file that is compiled with inlining, bytes.
///
/// Inlining makes calls 6 % cheaper, for 2.4 times the compile time. A rule in Rust has a third of
/// this size; one with an interpreter is ten times larger.
const MAX_INLINED_BYTES: usize = 1 << 20;

/// Returns `Yes` if a file of this size, bytes, is compiled with inlining.
pub(crate) fn inlining(bytes: usize) -> Inlining {
    if bytes <= MAX_INLINED_BYTES { Inlining::Yes } else { Inlining::No }
}

/// Returns the settings that decide the machine code. Those of the compiler and of the engine that
/// runs it must be equal.
pub(crate) fn config(limits: &Limits, inlining: Inlining) -> Config {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .compiler_inlining(inlining)
        .epoch_interruption(true)
        .max_wasm_stack(limits.stack_bytes)
        // Rewards are equal on every processor: relaxed SIMD has one result, and a NaN one form.
        .relaxed_simd_deterministic(true)
        .cranelift_nan_canonicalization(true)
        // The rule reports a panic's text itself. Addresses in its machine code would not help,
        // and cost load time.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        .native_unwind_info(false);
    config
}

/// Creates an engine to run rules in, with a clock that stops when the engine is dropped.
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

/// Returns the settings of the instance pool. Memory is mapped once, and reset between instances.
/// The sizes here are address space; [`Limits`] decides how much of it a rule may use.
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
        // Clearing the pages that a call wrote is cheaper than mapping new ones. A call of a
        // shipped rule writes to fewer than these.
        .linear_memory_keep_resident(4 << 20)
        .pagemap_scan(Enabled::Auto)
        .table_keep_resident(1 << 12);
    pool
}

/// Largest table that a valid module can declare, elements.
const MAX_TABLE_ELEMENTS: usize = 10_000_000;
