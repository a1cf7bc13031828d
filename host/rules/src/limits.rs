//! How much of everything a rule may have.

use std::sync::LazyLock;
use std::time::Duration;

use corver_settings::Limits;
use wasmtime::ResourceLimiter;

/// Returns the processor seconds for compiling a file of this size.
pub(crate) fn compile_seconds(limits: &Limits, bytes: usize) -> u64 {
    limits.compile_s.saturating_mul((bytes as u64).div_ceil(1 << 20).max(1))
}

/// The step of the clock that stops slow calls.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Core instances, memories and tables of one rule. A Rust rule that became a component has four,
/// one and two; one that brings an interpreter has tens of instances.
pub(crate) const INSTANCES: usize = 64;
pub(crate) const MEMORIES: usize = 2;
pub(crate) const TABLES: usize = 8;

/// So many instances may wait for counts at the same time: one for every core, and enough to look
/// up much at once.
pub(crate) fn max_waiting() -> usize {
    // Asked once: the answer takes a dozen system calls.
    static CORES: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    CORES.max(16)
}

/// Instances at the same time: those of two large batches, and as many as one's of small ones.
pub(crate) fn max_instances() -> u32 {
    3 * max_waiting() as u32
}

/// What wasmtime asks before an instance grows; a refusal ends the call at once.
#[derive(Debug)]
pub(crate) struct Allowance {
    memory_left: usize,
    table_left: usize,
}

/// A growth that was refused.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("growing by {asked} {what} is {over} beyond the limit")]
pub(crate) struct Refused {
    pub(crate) what: &'static str,
    pub(crate) asked: usize,
    over: usize,
}

pub(crate) const MEMORY: &str = "bytes of memory";
pub(crate) const TABLE: &str = "table elements";

impl Allowance {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { memory_left: limits.memory_bytes, table_left: limits.table_elements }
    }
}

fn take(
    left: &mut usize,
    what: &'static str,
    current: usize,
    desired: usize,
) -> wasmtime::Result<bool> {
    let asked = desired.saturating_sub(current);
    match left.checked_sub(asked) {
        Some(rest) => *left = rest,
        None => return Err(Refused { what, asked, over: asked - *left }.into()),
    }
    Ok(true)
}

impl ResourceLimiter for Allowance {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        take(&mut self.memory_left, MEMORY, current, desired)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        take(&mut self.table_left, TABLE, current, desired)
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
