//! Ranks by first token: spares a search its first dozen steps, which are the ones that touch the most pages.
//!
//! The table has one entry per possible token and fills itself: the boundaries of a token are searched for when it is asked
//! for a second time, and remembered. So opening stays cheap whatever the size of the index, and a first query, when
//! nothing of the index may be in memory, reads no more of it than its own answer needs.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Result;
use crate::format::TokenWidth;
use crate::segment::{Pattern, Segment};
use crate::shard::Shard;

#[derive(Debug)]
pub(crate) struct FirstTokens {
    /// `boundaries[k]`: the first rank whose suffix starts with a token of key ≥ k, plus [`KNOWN`]; less where it is not yet
    /// known. A token's key is its bytes read as a big-endian number, which orders tokens as the suffix array does.
    /// Empty for u32 tokens: four billion entries would not pay.
    boundaries: Vec<AtomicU64>,
}

/// What stands for a boundary that nobody has asked for, for one that was asked for once, and for rank 0.
const NEVER_ASKED: u64 = 0;
const ASKED: u64 = 1;
const KNOWN: u64 = 2;

impl FirstTokens {
    pub(crate) fn new(width: TokenWidth) -> Self {
        let entries = match width {
            TokenWidth::U8 | TokenWidth::U16 => width.separator() as usize + 2,
            TokenWidth::U32 => 0,
        };
        Self { boundaries: (0..entries).map(|_| AtomicU64::new(NEVER_ASKED)).collect() }
    }

    /// The ranks of the suffixes that start with one token; `None` where this table does not know them, and where it is
    /// better not to search for them: when the n-gram has more tokens, and this one is asked for the first time.
    pub(crate) fn segment(&self, shard: &Shard, token: &[u8], alone: bool) -> Result<Option<Segment>> {
        if self.boundaries.is_empty() {
            return Ok(None);
        }
        let key = token.iter().fold(0, |key, &byte| key << 8 | usize::from(byte));
        if !alone && self.boundaries[key].load(Relaxed) == NEVER_ASKED {
            self.boundaries[key].store(ASKED, Relaxed); // or it has just become known: then it is searched for again
            return Ok(None);
        }
        Ok(Some(Segment { start: self.boundary(shard, key)?, end: self.boundary(shard, key + 1)? }))
    }

    fn boundary(&self, shard: &Shard, key: usize) -> Result<u64> {
        if key + 1 == self.boundaries.len() {
            return Ok(shard.num_tokens);
        }
        // Two threads may search for the same boundary at once: they find, and store, the same number.
        if let known @ KNOWN.. = self.boundaries[key].load(Relaxed) {
            return Ok(known - KNOWN);
        }
        let width = shard.width.bytes();
        let token = &(key as u32).to_be_bytes()[4 - width..];
        let everything = Segment { start: 0, end: shard.num_tokens };
        let (rank, _) = shard.partition(everything, &Pattern::new(token), |order| order == Ordering::Less)?;
        self.boundaries[key].store(rank + KNOWN, Relaxed);
        Ok(rank)
    }
}
