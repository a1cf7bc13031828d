//! System calls of Linux, and an instruction, for which no dependency has a safe wrapper.
#![allow(unsafe_code, reason = "foreign functions, and an intrinsic function")]

/// Size of a page, bytes.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Size of a large page, bytes.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// True if the page of a mapped byte is in memory, or if the system does not report it. It reports
/// it only to processes that own the file or may write to it.
pub(crate) fn is_in_memory(byte: &u8) -> bool {
    let page = std::ptr::from_ref(byte).map_addr(|address| address & !(PAGE_BYTES - 1));
    let mut status = 1_u8;
    // SAFETY: the page holds a byte that is borrowed, so it stays mapped, and the call writes one
    // byte for one page. It neither reads nor writes the page, and takes the pointer as mutable
    // only in its signature.
    let is_reported = unsafe { libc::mincore(page.cast_mut().cast(), 1, &raw mut status) } == 0;
    !is_reported || status & 1 == 1
}

/// Returns the number of page faults of this thread that waited for the disk; 0 if the system does
/// not report it.
pub(crate) fn major_faults() -> u64 {
    // SAFETY: the type consists of integers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `rusage`, or nothing if it fails.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_majflt as u64
}

/// Requests large pages for the part of an array that fills them completely. This is a hint: without
/// large pages the array has small ones.
pub(crate) fn use_large_pages<T>(array: &Vec<T>) {
    let bytes = array.capacity() * size_of::<T>();
    let start = array.as_ptr().cast::<u8>();
    let skipped = start.align_offset(LARGE_PAGE_BYTES);
    let length = bytes.saturating_sub(skipped) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    if length > 0 {
        // SAFETY: the pages are inside the array's allocation, and the advice changes nothing that a
        // program can read.
        unsafe { libc::madvise(start.add(skipped).cast_mut().cast(), length, libc::MADV_HUGEPAGE) };
    }
}

/// Requests that the processor loads the cache line with the start of a value, and does not wait for
/// it. Other processors than x86-64 load it when it is read.
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, and it changes nothing that a program
        // can read.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
