//! Arrays on large pages.
//!
//! Sorting and ranking go through gigabytes in no order. On pages of 4 KiB most of their time is spent on translating addresses
//! once an array is far larger than what the processor's tables cover, and a virtual machine translates twice.

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
