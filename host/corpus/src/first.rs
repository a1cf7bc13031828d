//! Ranks by first token: spares a search its first dozen steps, which are the ones that touch the most pages.
//!
//! The table has one entry per possible token and fills itself: a boundary is searched for when it is first needed and
//! remembered. So opening stays cheap whatever the size of the index, and a token costs its search once per process.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Result;
use crate::format::TokenWidth;
use crate::segment::{Pattern, Segment};
use crate::shard::Shard;

#[derive(Debug)]
pub(crate) struct FirstTokens {
    /// `boundaries[k]`: the first rank whose suffix starts with a token of key ≥ k, plus one; 0 where not yet known. A
    /// token's key is its bytes read as a big-endian number, which orders tokens as the suffix array does.
    /// Empty for u32 tokens: four billion entries would not pay.
    boundaries: Vec<AtomicU64>,
}

impl FirstTokens {
    pub(crate) fn new(width: TokenWidth) -> Self {
        let entries = match width {
            TokenWidth::U8 | TokenWidth::U16 => width.separator() as usize + 2,
            TokenWidth::U32 => 0,
        };
        Self { boundaries: (0..entries).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The ranks of the suffixes that start with one token; `None` where this table does not know.
    pub(crate) fn segment(&self, shard: &Shard, token: &[u8]) -> Result<Option<Segment>> {
        if self.boundaries.is_empty() {
            return Ok(None);
        }
        let key = token.iter().fold(0, |key, &byte| key << 8 | usize::from(byte));
        Ok(Some(Segment { start: self.boundary(shard, key)?, end: self.boundary(shard, key + 1)? }))
    }

    fn boundary(&self, shard: &Shard, key: usize) -> Result<u64> {
        if key + 1 == self.boundaries.len() {
            return Ok(shard.num_tokens);
        }
        // Two threads may search for the same boundary at once: they find, and store, the same number.
        if let known @ 1.. = self.boundaries[key].load(Relaxed) {
            return Ok(known - 1);
        }
        let width = shard.width.bytes();
        let token = &(key as u32).to_be_bytes()[4 - width..];
        let everything = Segment { start: 0, end: shard.num_tokens };
        let rank = shard.partition(everything, &Pattern::new(token), |order| order == Ordering::Less)?;
        self.boundaries[key].store(rank + 1, Relaxed);
        Ok(rank)
    }
}
