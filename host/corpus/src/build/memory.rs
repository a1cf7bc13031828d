//! The memory budget of a build, and the memory that is used and available.

use std::fs::read_to_string;

use crate::error::{Error, Result};

/// Largest batch, bytes: enough text to keep all cores busy.
const MAX_BATCH_BYTES: u64 = 8 << 20;
const MIN_BATCH_BYTES: u64 = 128 << 10;
/// Number of copies of a batch in memory: two in the readers, the tokenised documents, and what the
/// allocator retains.
const BATCH_COPIES: u64 = 6;
/// Inverse of the share of the free memory that batches may use.
const BATCHES_SHARE: u64 = 3;
/// Size of the write buffers of a shard, bytes.
const STREAMS: u64 = 1 << 20;

/// Returns the memory that sorting needs in addition to its arrays, bytes: buffers, counters by
/// symbol, the library's own memory, and the buffers of every thread's walks. It is reserved from
/// the start of a build, so that sorting has it.
pub(super) fn reserve() -> u64 {
    (12 << 20) + ((rayon::current_num_threads() as u64) << 20)
}

/// The division of the memory for tokenising.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    /// Size of a batch of text, bytes.
    pub(super) batch_bytes: u64,
    /// Number of threads; 1 or more.
    pub(super) threads: usize,
}

impl Shares {
    /// Divides the unused part of a budget. Each thread needs `bytes_per_thread`.
    ///
    /// # Errors
    /// Fails if the budget does not suffice for one thread.
    pub(super) fn for_tokenising(
        budget: Option<u64>,
        bytes_per_thread: u64,
        shards: usize,
    ) -> Result<Self> {
        let threads = rayon::current_num_threads();
        let Some(budget) = budget else {
            return Ok(Self { batch_bytes: MAX_BATCH_BYTES, threads });
        };
        let used = resident() + reserve() + shards as u64 * STREAMS;
        let free = budget.saturating_sub(used);
        let batch_bytes = (free / BATCHES_SHARE / BATCH_COPIES).min(MAX_BATCH_BYTES);
        let max_threads = (free - BATCH_COPIES * batch_bytes) / bytes_per_thread;
        if batch_bytes < MIN_BATCH_BYTES || max_threads == 0 {
            let needed =
                u64::max(MIN_BATCH_BYTES * BATCH_COPIES * BATCHES_SHARE, bytes_per_thread * 3 / 2);
            return Err(Error::memory(budget, used + needed));
        }
        Ok(Self { batch_bytes, threads: threads.min(max_threads as usize) })
    }
}

/// Returns the resident memory of this process, bytes; 0 if the system does not report it.
pub(super) fn resident() -> u64 {
    read_kilobytes("/proc/self/status", "VmRSS:").unwrap_or(0)
}

/// Returns the memory that a process could use without swapping, bytes, within the limit of its
/// control group; `None` if the system does not report it.
pub fn available() -> Option<u64> {
    let machine = read_kilobytes("/proc/meminfo", "MemAvailable:")?;
    let limit = read_number("/sys/fs/cgroup/memory.max");
    let used = read_number("/sys/fs/cgroup/memory.current");
    match (limit, used) {
        (Some(limit), Some(used)) => Some(machine.min(limit.saturating_sub(used))),
        _ => Some(machine),
    }
}

fn read_number(path: &str) -> Option<u64> {
    read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the bytes that a line `name   123 kB` of a file reports.
fn read_kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kilobytes)
}
