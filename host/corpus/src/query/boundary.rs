//! Removal of ranges, and of neighbours, on the other side of a document boundary.

use std::sync::Arc;

use crate::error::Result;
use crate::files::shard::Shard;
use crate::query::cnf::Mode;
use crate::query::join::{MatchRange, Neighbourhood};
use crate::query::scan;
use crate::suffix::position_cache::PositionCache;
use crate::suffix::positions::PositionList;
use crate::suffix::search::SuffixArray;

/// Number of ranges from which the list of document starts is considered: looking it up costs as
/// much as reading the text of a few ranges.
const MANY_RANGES: usize = 16;

/// A filter for ranges inside one document. It reads the text between a range's ends, or searches
/// the list of document starts.
///
/// Reading the list is expensive and makes each range cheap. The better choice depends on the number
/// of ranges, which is not known. So the text is read for as many ranges as the list has pages,
/// unless the list is cached by an earlier query.
pub(crate) struct Boundaries<'a> {
    suffix_array: &'a SuffixArray,
    mode: Mode,
    positions: &'a PositionCache,
    /// List of document starts; `None` until it is needed.
    starts: Option<Arc<PositionList>>,
    /// Number of ranges so far.
    num_ranges: u64,
}

impl<'a> Boundaries<'a> {
    pub(crate) fn new(
        suffix_array: &'a SuffixArray,
        mode: Mode,
        positions: &'a PositionCache,
    ) -> Self {
        Self { suffix_array, mode, positions, starts: None, num_ranges: 0 }
    }

    /// Appends to `out` the ranges inside which no document begins. A document may begin with the
    /// token of a range's right end.
    pub(crate) fn filter(
        &mut self,
        ranges: &[MatchRange],
        out: &mut Vec<MatchRange>,
    ) -> Result<()> {
        self.find_starts(ranges.len())?;
        let starts = self.starts.as_deref();
        // A plain loop: `extend` and `filter` are not inlined here, and would be called for each
        // range.
        for range in ranges {
            let is_in_one_document = match starts {
                Some(starts) => {
                    let next = starts.first_at_or_after(range.left);
                    next == starts.len() || starts.get(next) >= range.right
                }
                None => text_has_no_boundary(&self.suffix_array.shard, self.mode, range),
            };
            if is_in_one_document {
                out.push(*range);
            }
        }
        Ok(())
    }

    /// Appends to `out` the occurrences with a neighbour in the same document.
    pub(crate) fn filter_occurrences(
        &mut self,
        occurrences: &[Neighbourhood],
        out: &mut Vec<MatchRange>,
    ) -> Result<()> {
        self.find_starts(occurrences.len())?;
        let starts = self.starts.as_deref();
        for occurrence in occurrences {
            let has_neighbour = match starts {
                Some(starts) => has_neighbour_between(starts, occurrence),
                None => has_neighbour_in_text(&self.suffix_array.shard, occurrence),
            };
            if has_neighbour {
                out.push(MatchRange::at(occurrence.position));
            }
        }
        Ok(())
    }

    /// Finds the list of document starts, if it is worth its cost for this many further ranges.
    fn find_starts(&mut self, num_ranges: usize) -> Result<()> {
        let shard = &self.suffix_array.shard;
        self.num_ranges += num_ranges as u64;
        if self.starts.is_none() && num_ranges >= MANY_RANGES {
            self.starts = match self.positions.cached_document_starts(shard) {
                cached @ Some(_) if self.starts_suffice()? => cached,
                None if self.num_ranges > shard.pages_of_offsets() && self.starts_suffice()? => {
                    self.positions.document_starts(shard)?
                }
                _ => None,
            };
        }
        Ok(())
    }

    /// True if the mode has no other boundaries than the document starts.
    fn starts_suffice(&self) -> Result<bool> {
        Ok(self.mode != Mode::Compatible || !self.suffix_array.may_end_in_ff()?)
    }
}

fn text_has_no_boundary(shard: &Shard, mode: Mode, range: &MatchRange) -> bool {
    let width = shard.width.bytes();
    let inside = &shard.stream()[range.left as usize * width..range.right as usize * width];
    match mode {
        Mode::Compatible => !scan::contains_ones(inside, width),
        Mode::Exact | Mode::ExactFirst | Mode::Span => {
            !scan::contains_separator(inside, shard.width)
        }
    }
}

/// True if a neighbour is between the starts of the occurrence's document and of the next.
fn has_neighbour_between(starts: &PositionList, occurrence: &Neighbourhood) -> bool {
    let next = starts.first_at_or_after(occurrence.position + 1);
    let start = if next == 0 { 0 } else { starts.get(next - 1) };
    let end = if next == starts.len() { u64::MAX } else { starts.get(next) };
    (occurrence.before_end > start) | (occurrence.after < end)
}

/// True if no document begins between a neighbour and the occurrence. A document begins with its
/// separator, so one may begin with the token of the first of the two.
fn has_neighbour_in_text(shard: &Shard, occurrence: &Neighbourhood) -> bool {
    let has_separator = |from: u64, to: u64| {
        let width = shard.width.bytes();
        let text = &shard.stream()[from as usize * width..to as usize * width];
        scan::contains_separator(text, shard.width)
    };
    let Neighbourhood { position, before_end, after } = *occurrence;
    (after != u64::MAX && !has_separator(position + 1, after + 1))
        || (before_end != 0 && !has_separator(before_end, position + 1))
}
