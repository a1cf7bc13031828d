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

/// Looking for the list costs as much as reading the text of a few ranges.
const MANY_RANGES: usize = 16;

/// Tells which ranges lie in one document: by the text between their ends, or by the list of the
/// documents' starts. Reading that list takes a while and makes each range cheap, and whether it is
/// worth it depends on how many ranges come. So the text is read for as many ranges as the list has
/// pages, unless the list is kept from an earlier query.
pub(crate) struct Boundaries<'a> {
    suffix_array: &'a SuffixArray,
    mode: Mode,
    positions: &'a PositionCache,
    starts: Option<Arc<Positions>>,
    /// Ranges whose text was read.
    read: u64,
}

impl<'a> Boundaries<'a> {
    pub(crate) fn new(
        suffix_array: &'a SuffixArray,
        mode: Mode,
        positions: &'a PositionCache,
    ) -> Self {
        Self { suffix_array, mode, positions, starts: None, read: 0 }
    }

    /// Appends to `whole` the ranges inside which no document begins; one that begins with the last
    /// occurrence's token is not inside.
    pub(crate) fn keep_whole(
        &mut self,
        ranges: &[MatchRange],
        whole: &mut Vec<MatchRange>,
    ) -> Result<()> {
        let shard = &self.suffix_array.shard;
        self.read += ranges.len() as u64;
        if self.starts.is_none() && ranges.len() >= MANY_RANGES {
            self.starts = match self.positions.kept_documents(shard) {
                kept @ Some(_) if self.may_use_list()? => kept,
                None if self.read > shard.pages_of_offsets() && self.may_use_list()? => {
                    self.positions.documents(shard)?
                }
                _ => None,
            };
        }
        let lies_in_one_document = |range: &MatchRange| match self.starts.as_deref() {
            Some(starts) => {
                let next = starts.first_at_or_after(range.left);
                next == starts.len() || starts.get(next) >= range.right
            }
            None => is_whole(shard, self.mode, range),
        };
        // A plain loop: `extend` and `filter` are not inlined here, and would be called for each
        // range.
        for range in ranges {
            if lies_in_one_document(range) {
                whole.push(*range);
            }
        }
        Ok(())
    }

    /// Whether the documents' starts are all that the mode takes for boundaries.
    fn may_use_list(&self) -> Result<bool> {
        Ok(self.mode != Mode::Compatible || !self.suffix_array.may_end_in_ff()?)
    }
}

fn is_whole(shard: &Shard, mode: Mode, range: &MatchRange) -> bool {
    let width = shard.width.bytes();
    let inside = &shard.stream()[range.left as usize * width..range.right as usize * width];
    match mode {
        Mode::Compatible => !scan::holds_ones(inside, width),
        Mode::Exact | Mode::Span => !scan::holds_separator(inside, shard.width),
    }
}
