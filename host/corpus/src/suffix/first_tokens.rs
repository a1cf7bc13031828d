//! The first-token table: the first rank of each token's suffixes.
//!
//! It saves a search its first dozen steps, which touch the most pages. The table has one entry per
//! possible token and is filled lazily: a search enters a token's boundaries at the token's second
//! lookup. So opening an index is cheap at any size, and the first query, which may find the index
//! cold, reads only the pages that it needs itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::token_width::TokenWidth;

/// A lazily filled table of the first rank of each token. Threads share it.
#[derive(Debug)]
pub(crate) struct FirstTokenTable {
    /// `boundaries[key]`: the first rank whose suffix starts with a token of that key or a greater
    /// one, plus [`KNOWN`]; less than [`KNOWN`] if it is not yet known. A token's key is its bytes
    /// read as a big-endian number, which orders tokens as the suffix array does. Empty for u32
    /// tokens: four billion entries would be too many.
    boundaries: Vec<AtomicU64>,
}

/// Entry of a token that was never looked up.
const UNSEEN: u64 = 0;
/// Entry of a token that was looked up once.
const SEEN: u64 = 1;
/// Entry of a token whose first rank is 0.
const KNOWN: u64 = 2;

impl FirstTokenTable {
    pub(crate) fn new(width: TokenWidth) -> Self {
        let entries = match width {
            TokenWidth::U8 | TokenWidth::U16 => width.separator() as usize + 1,
            TokenWidth::U32 => 0,
        };
        Self { boundaries: (0..entries).map(|_| AtomicU64::new(UNSEEN)).collect() }
    }

    /// Returns the largest key plus one; 0 for u32 tokens.
    pub(crate) fn num_keys(&self) -> usize {
        self.boundaries.len()
    }

    /// Marks a token as looked up. Returns true if this is the first time.
    pub(crate) fn mark_seen(&self, key: usize) -> bool {
        let is_first = self.boundaries[key].load(Relaxed) == UNSEEN;
        if is_first {
            // This may overwrite another thread's entry, which is then searched for again.
            self.boundaries[key].store(SEEN, Relaxed);
        }
        is_first
    }

    /// Returns the first rank of a key; `None` if it is not yet known.
    pub(crate) fn get(&self, key: usize) -> Option<u64> {
        self.boundaries[key].load(Relaxed).checked_sub(KNOWN)
    }

    /// Enters the first rank of a key. Threads may race: they store the same rank.
    pub(crate) fn set(&self, key: usize, rank: u64) {
        self.boundaries[key].store(rank + KNOWN, Relaxed);
    }
}
