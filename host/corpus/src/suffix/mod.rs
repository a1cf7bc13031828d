//! Search in the suffix array, and the sorted positions of its results.

pub(crate) mod first_tokens;
pub(crate) mod position_cache;
pub(crate) mod positions;
mod radix;
pub(crate) mod sampled_prefixes;
pub(crate) mod search;
