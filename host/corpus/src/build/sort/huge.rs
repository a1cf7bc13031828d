//! Arrays on large pages.
//!
//! Sorting and ranking read and write gigabytes at random. On pages of 4 KiB nearly every access must also wait until its
//! address is translated. Where the system gives large pages to those that ask, it is asked.

/// Bytes of a large page.
const PAGE: usize = 2 << 20;

/// An empty array with room for `len` elements.
pub(super) fn with_capacity<T>(len: usize) -> Vec<T> {
    let array = Vec::with_capacity(len);
    advise(&array);
    array
}

/// An array of zeros.
pub(super) fn zeros<T: Clone + Default>(len: usize) -> Vec<T> {
    let mut array = with_capacity(len);
    array.resize(len, T::default());
    array
}

/// Asks for large pages under an array's memory, as far as these are its alone. Only a hint: without them all is slower.
#[allow(unsafe_code)] // rustix marks this call as unsafe, too
fn advise<T>(array: &Vec<T>) {
    let bytes = array.capacity() * size_of::<T>();
    let start = array.as_ptr().cast::<u8>();
    let skipped = start.align_offset(PAGE);
    let length = bytes.saturating_sub(skipped) / PAGE * PAGE;
    if length > 0 {
        // SAFETY: the pages lie inside the array's allocation, and the advice changes nothing that a program can read.
        unsafe { libc::madvise(start.add(skipped).cast_mut().cast(), length, libc::MADV_HUGEPAGE) };
    }
}
