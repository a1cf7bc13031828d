//! Memory that this process takes, and could take.

use std::fs::read_to_string;

use crate::error::{Error, Result};

/// Enough text to keep all cores busy.
const MAX_BATCH_BYTES: u64 = 8 << 20;
const MIN_BATCH_BYTES: u64 = 128 << 10;
/// How many times over a batch is held: two that are read, the documents of one, what the allocator
/// keeps.
const BATCHES: u64 = 6;
/// Batches may take one part in this many of the memory that is left.
const BATCHES_SHARE: u64 = 3;
/// What is written through buffers, per shard.
const STREAMS: u64 = 1 << 20;

/// What sorting takes besides its arrays: buffers, counters by symbol, the library's own, and the
/// buffers of every thread's walks. Reserved from the start, so that sorting finds it.
pub(super) fn reserve() -> u64 {
    (12 << 20) + ((rayon::current_num_threads() as u64) << 20)
}

/// How the memory for tokenising is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    /// Bytes of text that are tokenised at once.
    pub(super) batch_bytes: u64,
    pub(super) threads: usize,
}

impl Shares {
    /// Divides what the process has not used of its budget. Each thread needs `bytes_per_thread`
    /// for itself.
    ///
    /// # Errors
    /// Where not even one thread could work.
    pub(super) fn for_tokenising(
        budget: Option<u64>,
        bytes_per_thread: u64,
        shards: usize,
    ) -> Result<Self> {
        let threads = rayon::current_num_threads();
        let Some(budget) = budget else {
            return Ok(Self { batch_bytes: MAX_BATCH_BYTES, threads });
        };
        let taken = resident() + reserve() + shards as u64 * STREAMS;
        let room = budget.saturating_sub(taken);
        let batch_bytes = (room / BATCHES_SHARE / BATCHES).min(MAX_BATCH_BYTES);
        let affordable = (room - BATCHES * batch_bytes) / bytes_per_thread;
        if batch_bytes < MIN_BATCH_BYTES || affordable == 0 {
            let least =
                u64::max(MIN_BATCH_BYTES * BATCHES * BATCHES_SHARE, bytes_per_thread * 3 / 2);
            return Err(Error::memory(budget, taken + least));
        }
        Ok(Self { batch_bytes, threads: threads.min(affordable as usize) })
    }
}

/// Bytes resident now, as the system counts them; 0 where it does not tell.
pub(super) fn resident() -> u64 {
    bytes_of("/proc/self/status", "VmRSS:").unwrap_or(0)
}

/// Bytes of memory that a process could take now, without swapping and within the limit of its
/// control group, if it has one; `None` where the system does not tell.
pub fn available() -> Option<u64> {
    let of_machine = bytes_of("/proc/meminfo", "MemAvailable:")?;
    let of_group = |file: &str| {
        read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?.trim().parse::<u64>().ok()
    };
    match (of_group("memory.max"), of_group("memory.current")) {
        (Some(limit), Some(taken)) => Some(of_machine.min(limit.saturating_sub(taken))),
        _ => Some(of_machine),
    }
}

/// A line `name   123 kB`.
fn bytes_of(path: &str, name: &str) -> Option<u64> {
    let text = read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kilobytes)
}
