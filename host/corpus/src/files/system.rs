//! Calls to Linux that no library here has safe words for.
#![allow(unsafe_code, reason = "foreign functions")]

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes of a large page.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Whether the page of a mapped byte is in memory. Yes where the system does not tell: it does not
/// tell those who neither own nor may write the file.
pub(crate) fn is_in_memory(byte: &u8) -> bool {
    let page = std::ptr::from_ref(byte).map_addr(|address| address & !(PAGE_BYTES - 1));
    let mut held = 1_u8;
    // SAFETY: the page holds a byte that is borrowed, so it stays mapped, and the call writes one
    // byte for one page. It neither reads nor writes the page, and takes the pointer as mutable
    // only in its signature.
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

/// Asks for large pages under an array's memory, as far as these are its alone. A hint: where there
/// are none, small ones serve.
pub(crate) fn use_large_pages<T>(array: &Vec<T>) {
    let bytes = array.capacity() * size_of::<T>();
    let start = array.as_ptr().cast::<u8>();
    let skipped = start.align_offset(LARGE_PAGE_BYTES);
    let length = bytes.saturating_sub(skipped) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    if length > 0 {
        // SAFETY: the pages lie inside the array's allocation, and the advice changes nothing that
        // a program can read.
        unsafe { libc::madvise(start.add(skipped).cast_mut().cast(), length, libc::MADV_HUGEPAGE) };
    }
}
