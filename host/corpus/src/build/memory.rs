//! Memory that this process takes, and could take.

use std::fs::read_to_string;

/// Bytes resident now, as the system counts them; 0 where it does not tell.
pub(super) fn resident() -> u64 {
    bytes_of("/proc/self/status", "VmRSS:").unwrap_or(0)
}

/// Bytes of memory that a process could take now, without swapping and within the limit of its control group, if it has
/// one; `None` where the system does not tell.
pub fn available() -> Option<u64> {
    let of_machine = bytes_of("/proc/meminfo", "MemAvailable:")?;
    let of_group = |file: &str| read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?.trim().parse::<u64>().ok();
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
