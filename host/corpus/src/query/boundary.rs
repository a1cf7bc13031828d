//! Ranges that cross a document boundary.

use std::sync::Arc;

use crate::error::Result;
use crate::files::shard::Shard;
use crate::query::cnf::Mode;
use crate::query::join::MatchRange;
use crate::query::scan;
use crate::suffix::position_cache::PositionCache;
use crate::suffix::positions::Positions;
use crate::suffix::search::SuffixArray;

/// Where documents begin.
pub(crate) enum Boundaries<'a> {
    /// Reads the text between a range's ends: best for few ranges.
    Scan { shard: &'a Shard, mode: Mode },
    /// Looks up the next document's start: best for many ranges.
    List(Arc<Positions>),
}

impl<'a> Boundaries<'a> {
    pub(crate) fn scan(shard: &'a Shard, mode: Mode) -> Self {
        Self::Scan { shard, mode }
    }

    /// A list where one is kept and where the documents' starts are all that the mode takes for boundaries.
    pub(crate) fn list(suffix_array: &'a SuffixArray, mode: Mode, positions: &PositionCache) -> Result<Self> {
        let shard = &suffix_array.shard;
        if mode == Mode::Compatible && suffix_array.may_end_in_ff()? {
            return Ok(Self::scan(shard, mode));
        }
        Ok(positions.documents(shard)?.map_or_else(|| Self::scan(shard, mode), Self::List))
    }

    /// Appends to `whole` the ranges inside which no document begins; one that begins with the last occurrence's token
    /// is not inside.
    pub(crate) fn keep_whole(&self, ranges: &[MatchRange], whole: &mut Vec<MatchRange>) {
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
