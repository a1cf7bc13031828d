//! Arrays on large pages.
//!
//! Sorting and ranking access gigabytes at random. With pages of 4 KiB, accesses to a large array
//! miss the TLB as well as the caches. docs/benchmarks.md, "A shard larger than memory", has the
//! times with both kinds of pages.

use crate::files::system;

/// An empty array with room for `len` elements.
pub(super) fn with_capacity<T>(len: usize) -> Vec<T> {
    let array = Vec::with_capacity(len);
    system::use_large_pages(&array);
    array
}

/// An array of zeros.
pub(super) fn zeros<T: Clone + Default>(len: usize) -> Vec<T> {
    let mut array = with_capacity(len);
    array.resize(len, T::default());
    array
}
