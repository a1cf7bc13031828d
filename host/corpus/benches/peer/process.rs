//! Counters that the system has for this process since its start.

/// Processor time of all threads, in seconds; the system counts in hundredths.
pub fn processor_seconds() -> f64 {
    (field(14) + field(15)) as f64 / 100.0
}

/// A field of `/proc/self/stat`, numbered from 1 as in the system's manual.
fn field(number: usize) -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    // The second field is the command's name in brackets, which may hold anything.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name
        .split_whitespace()
        .nth(number - 3)
        .and_then(|field| field.parse().ok())
        .expect("a number")
}
