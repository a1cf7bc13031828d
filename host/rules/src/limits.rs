//! Limits of a rule that its settings do not have, and enforcement of memory and tables.

use std::sync::LazyLock;
use std::time::Duration;

use corver_settings::Limits;
use wasmtime::ResourceLimiter;

/// Returns the processor seconds for compiling a file of this size.
pub(crate) fn compile_seconds(limits: &Limits, bytes: usize) -> u64 {
    limits.compile_s.saturating_mul((bytes as u64).div_ceil(1 << 20).max(1))
}

/// Period of the clock that stops slow calls.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Core instances, memories and tables of one rule. A Rust rule that became a component has four,
/// one and two; one that brings an interpreter has tens of instances.
pub(crate) const INSTANCES: usize = 64;
pub(crate) const MEMORIES: usize = 2;
pub(crate) const TABLES: usize = 8;

/// Returns the number of a batch's instances that may wait for replies at the same time.
///
/// There is at least one per core. 16 make each request to a backend large enough.
pub(crate) fn max_waiting() -> usize {
    // Cached, because it takes a dozen system calls.
    static CORES: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    CORES.max(16)
}

/// Returns the number of instances at the same time: enough for two large batches, and as many
/// again for small ones.
pub(crate) fn max_instances() -> u32 {
    3 * max_waiting() as u32
}

/// Memory and table elements that an instance may still allocate. wasmtime consults it before each
/// growth; an error ends the call immediately.
#[derive(Debug)]
pub(crate) struct Allowance {
    memory_left: usize,
    table_left: usize,
}

/// A growth beyond the limit.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("growing by {requested} {unit} is {excess} beyond the limit")]
pub(crate) struct GrowthError {
    /// [`MEMORY`] or [`TABLE`].
    pub(crate) unit: &'static str,
    pub(crate) requested: usize,
    excess: usize,
}

pub(crate) const MEMORY: &str = "bytes of memory";
pub(crate) const TABLE: &str = "table elements";

impl Allowance {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { memory_left: limits.memory_bytes, table_left: limits.table_elements }
    }
}

/// Subtracts a growth from `left`, or fails if it is larger.
fn grow(
    left: &mut usize,
    unit: &'static str,
    current: usize,
    desired: usize,
) -> wasmtime::Result<bool> {
    let requested = desired.saturating_sub(current);
    if requested > *left {
        return Err(GrowthError { unit, requested, excess: requested - *left }.into());
    }
    *left -= requested;
    Ok(true)
}

impl ResourceLimiter for Allowance {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        grow(&mut self.memory_left, MEMORY, current, desired)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        grow(&mut self.table_left, TABLE, current, desired)
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }

    fn tables(&self) -> usize {
        TABLES
    }
}
