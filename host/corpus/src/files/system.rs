//! Calls to Linux that no library here has safe words for.
#![allow(unsafe_code, reason = "foreign functions")]

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Whether the page of a mapped byte is in memory. Yes where the system does not tell: it does not tell those who neither own nor
/// may write the file.
pub(crate) fn is_in_memory(byte: &u8) -> bool {
    let page = std::ptr::from_ref(byte).map_addr(|address| address & !(PAGE_BYTES - 1));
    let mut held = 1_u8;
    // SAFETY: the page holds a byte that is borrowed, so it stays mapped, and the call writes one byte for one page. It neither
    // reads nor writes the page, and takes the pointer as mutable only in its signature.
    let answered = unsafe { libc::mincore(page.cast_mut().cast(), 1, &raw mut held) } == 0;
    !answered || held & 1 == 1
}

/// Pages that this thread has waited for the disk for; 0 where the system does not tell.
pub(crate) fn major_faults() -> u64 {
    // SAFETY: the type is made of integers, for all of which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `rusage`, or nothing where it fails.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_majflt as u64
}
