//! The first-token table: where in the suffix array each token's suffixes begin.
//!
//! It saves a search its first dozen steps, which are the ones that touch the most pages. The table
//! has one entry per possible token and fills itself: a search enters a token's boundaries when the
//! token is asked for a second time. So opening stays cheap for every size of index, and a first
//! query, when nothing of the index may be in memory, reads no more than its own answer needs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::token_width::TokenWidth;

#[derive(Debug)]
pub(crate) struct FirstTokenTable {
    /// `boundaries[key]`: the first rank whose suffix starts with a token of that key or a greater
    /// one, plus [`KNOWN`]; less where it is not yet known. A token's key is its bytes read as a
    /// big-endian number, which orders tokens as the suffix array does. Empty for u32 tokens: four
    /// billion entries would be too many.
    boundaries: Vec<AtomicU64>,
}

/// Entries of a boundary that was never asked for, of one that was asked for once, and of rank 0.
const NEVER_ASKED: u64 = 0;
const ASKED: u64 = 1;
const KNOWN: u64 = 2;

impl FirstTokenTable {
    pub(crate) fn new(width: TokenWidth) -> Self {
        let entries = match width {
            TokenWidth::U8 | TokenWidth::U16 => width.separator() as usize + 1,
            TokenWidth::U32 => 0,
        };
        Self { boundaries: (0..entries).map(|_| AtomicU64::new(NEVER_ASKED)).collect() }
    }

    /// One more than the largest key; 0 for u32 tokens.
    pub(crate) fn num_keys(&self) -> usize {
        self.boundaries.len()
    }

    /// Whether a token is asked for the first time.
    pub(crate) fn is_new(&self, key: usize) -> bool {
        let is_new = self.boundaries[key].load(Relaxed) == NEVER_ASKED;
        if is_new {
            // This may overwrite another thread's entry, which is then searched for again.
            self.boundaries[key].store(ASKED, Relaxed);
        }
        is_new
    }

    pub(crate) fn get(&self, key: usize) -> Option<u64> {
        self.boundaries[key].load(Relaxed).checked_sub(KNOWN)
    }

    /// Two threads may enter the same boundary at once: they found the same rank.
    pub(crate) fn set(&self, key: usize, rank: u64) {
        self.boundaries[key].store(rank + KNOWN, Relaxed);
    }
}
