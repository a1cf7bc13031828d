//! Which ranges reach into another document.

use std::sync::Arc;

use crate::cache::ListCache;
use crate::cnf::Mode;
use crate::error::Result;
use crate::format::TokenWidth;
use crate::index::Index;
use crate::join::Range;
use crate::positions::Positions;
use crate::scan;
use crate::shard::Shard;

/// Where documents begin, asked block by block.
pub(crate) enum Boundaries<'a> {
    /// Looks at the text between a range's ends: best for few ranges.
    Scan { shard: &'a Shard, mode: Mode },
    /// Looks up the next document's start: best for many ranges.
    List(Arc<Positions>),
}

impl<'a> Boundaries<'a> {
    pub(crate) fn scan(shard: &'a Shard, mode: Mode) -> Self {
        Self::Scan { shard, mode }
    }

    /// For many ranges.
    pub(crate) fn list(shard: &'a Shard, mode: Mode, lists: &ListCache) -> Result<Self> {
        Ok(documents(shard, mode, lists)?.map_or_else(|| Self::scan(shard, mode), Self::List))
    }

    /// Appends to `whole` the ranges inside which no document begins; one that begins with the last occurrence's token
    /// is not inside.
    pub(crate) fn keep_whole(&self, ranges: &[Range], whole: &mut Vec<Range>) {
        match self {
            Self::Scan { shard, mode } => whole.extend(ranges.iter().filter(|range| {
                let width = shard.width.bytes();
                let inside = &shard.stream()[range.left as usize * width..range.right as usize * width];
                match mode {
                    Mode::Compatible => !scan::holds_ones(inside, width),
                    Mode::Exact | Mode::Span => !scan::holds_separator(inside, shard.width),
                }
            })),
            Self::List(starts) => whole.extend(ranges.iter().filter(|range| {
                let next = starts.first_at_or_after(range.left);
                next == starts.len() || starts.get(next) >= range.right
            })),
        }
    }
}

/// The starts of all documents, where these are what a mode takes for boundaries and lists are kept.
pub(crate) fn documents(shard: &Shard, mode: Mode, lists: &ListCache) -> Result<Option<Arc<Positions>>> {
    if mode == Mode::Compatible && shard.may_fake_separators()? {
        return Ok(None);
    }
    lists.documents(shard)
}

impl Index {
    /// Tells how many ids the vocabulary has: with few enough no token can look like a part of a separator, and nobody need
    /// search for one.
    pub(crate) fn has_ids_below(&self, num_ids: u32) {
        let width = self.token_width();
        let last_byte_is_ones = 0xFF << (8 * (width.bytes() - 1));
        if width != TokenWidth::U8 && num_ids <= last_byte_is_ones {
            for shard in &self.shards {
                let _ = shard.fakes_separators.set(false); // or it is known already
            }
        }
    }
}

impl Shard {
    /// The starts of all documents, read from the offsets alone: looking at each separator would read the whole stream.
    pub(crate) fn document_starts(&self) -> Result<Positions> {
        let mut starts = Vec::with_capacity(self.num_documents() as usize);
        for document in 0..self.num_documents() {
            let start = self.unproven_document_start(document)?;
            if starts.last().is_some_and(|&last| start <= last) {
                return Err(self.corrupt_offset(document, start * self.width.bytes() as u64));
            }
            starts.push(start);
        }
        Ok(Positions::new(starts, self.num_tokens))
    }

    /// Whether some token could look like a part of a separator, so that the official engine, which looks for adjacent
    /// FF bytes at any alignment, might see a boundary between two tokens: one whose last byte is FF would do.
    fn may_fake_separators(&self) -> Result<bool> {
        if let Some(&known) = self.fakes_separators.get() {
            return Ok(known);
        }
        let found = match self.width {
            TokenWidth::U8 => false,
            TokenWidth::U16 => {
                let mut occurrences = 0;
                for first in 0..0xFF {
                    occurrences += self.find(&[first, 0xFF])?.len();
                }
                occurrences > 0
            }
            // Tokens are not sorted by their last byte; finding out would take a look at each.
            TokenWidth::U32 => true,
        };
        Ok(*self.fakes_separators.get_or_init(|| found))
    }
}
