//! Arrays on large pages.
//!
//! Sorting and ranking access gigabytes at random. With pages of 4 KiB, each access misses the TLB in
//! addition to the caches. Sorting 1.03e9 tokens took 126 s with large pages, and 200 s without.

use crate::files::system;

/// Returns an empty array with capacity for `len` elements.
pub(super) fn with_capacity<T>(len: usize) -> Vec<T> {
    let array = Vec::with_capacity(len);
    system::use_large_pages(&array);
    array
}

/// Returns an array of zeros.
pub(super) fn zeros<T: Clone + Default>(len: usize) -> Vec<T> {
    let mut array = with_capacity(len);
    array.resize(len, T::default());
    array
}
