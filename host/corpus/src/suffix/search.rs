//! Binary search for an n-gram in the suffix array.
//!
//! Suffixes are ordered by their bytes on disk, so a token's *bytes* decide, not its number: 256
//! (`00 01`) comes before 1 (`01 00`).

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::OnceLock;

use crate::error::Result;
use crate::files::prefix_file::PREFIX_BYTES;
use crate::files::shard::Shard;
use crate::suffix::first_tokens::FirstTokenTable;
use crate::suffix::sampled_prefixes::SampledPrefixes;
use crate::token_width::TokenWidth;

/// A half-open range of ranks. The suffixes that start with the same n-gram have consecutive ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RankRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl RankRange {
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn ranks(self) -> Range<u64> {
        self.start..self.end
    }
}

/// Returns the total number of ranks in some ranges.
pub(crate) fn num_ranks(ranges: &[RankRange]) -> u64 {
    ranges.iter().map(|range| range.len()).sum()
}

/// The suffix array of a shard, with caches that its searches fill.
#[derive(Debug)]
pub(crate) struct SuffixArray {
    pub(crate) shard: Shard,
    first_tokens: FirstTokenTable,
    prefixes: SampledPrefixes,
    /// True if a token other than the separator may end in FF. Empty until it is known.
    may_end_in_ff: OnceLock<bool>,
}

impl SuffixArray {
    /// Creates the suffix array of a shard. `num_ids` is an exclusive upper bound of the token ids;
    /// if it is low enough, no token ends in FF and none needs to be searched for.
    pub(crate) fn new(shard: Shard, num_ids: Option<u32>) -> Self {
        let first_tokens = FirstTokenTable::new(shard.width);
        let prefixes = SampledPrefixes::new(shard.num_tokens);
        let width = shard.width.bytes();
        let none_ends_in_ff =
            num_ids.is_some_and(|num_ids| width > 1 && num_ids <= 0xFF << (8 * (width - 1)));
        let may_end_in_ff = if none_ends_in_ff { OnceLock::from(false) } else { OnceLock::new() };
        Self { shard, first_tokens, prefixes, may_end_in_ff }
    }

    /// Returns the ranks of all suffixes that start with `ngram`, which is encoded as in the stream.
    /// Every suffix starts with the empty n-gram.
    pub(crate) fn find(&self, ngram: &[u8]) -> Result<RankRange> {
        let everything = RankRange { start: 0, end: self.shard.num_tokens };
        let Some((first, rest)) =
            ngram.split_at_checked(self.shard.width.bytes()).filter(|(first, _)| !first.is_empty())
        else {
            return Ok(everything);
        };
        match self.find_first_token(first, rest.is_empty())? {
            Some(range) if rest.is_empty() => Ok(range),
            range => self.find_within(range.unwrap_or(everything), ngram),
        }
    }

    /// True if a token other than the separator may have FF as its last byte. The official engine
    /// takes adjacent FF bytes at any alignment for a separator, and such a token can be part of
    /// one.
    pub(crate) fn may_end_in_ff(&self) -> Result<bool> {
        if let Some(&known) = self.may_end_in_ff.get() {
            return Ok(known);
        }
        let may_end_in_ff = match self.shard.width {
            TokenWidth::U8 => false,
            TokenWidth::U16 => {
                let mut occurrences = 0;
                for first in 0..0xFF {
                    occurrences += self.find(&[first, 0xFF])?.len();
                }
                occurrences > 0
            }
            // Tokens are not sorted by their last byte; all of them would have to be read.
            TokenWidth::U32 => true,
        };
        Ok(*self.may_end_in_ff.get_or_init(|| may_end_in_ff))
    }

    /// Returns the ranks of the suffixes that start with a token; `None` if the first-token table is
    /// not used. That is the case for u32 tokens, and for the first token of a longer n-gram at its
    /// first lookup.
    fn find_first_token(&self, token: &[u8], is_complete_ngram: bool) -> Result<Option<RankRange>> {
        if self.first_tokens.num_keys() == 0 {
            return Ok(None);
        }
        let key = token.iter().fold(0, |key, &byte| key << 8 | usize::from(byte));
        if !is_complete_ngram && self.first_tokens.mark_seen(key) {
            return Ok(None);
        }
        Ok(Some(RankRange { start: self.first_rank_of(key)?, end: self.first_rank_of(key + 1)? }))
    }

    /// Returns the first rank whose suffix starts with a token of this key or a greater one.
    fn first_rank_of(&self, key: usize) -> Result<u64> {
        if key == self.first_tokens.num_keys() {
            return Ok(self.shard.num_tokens);
        }
        if let Some(known) = self.first_tokens.get(key) {
            return Ok(known);
        }
        let token = &(key as u32).to_be_bytes()[4 - self.shard.width.bytes()..];
        let everything = RankRange { start: 0, end: self.shard.num_tokens };
        let pattern = Pattern::new(token);
        let rank = self.partition(everything, &pattern, |order| order == Ordering::Less)?.point;
        self.first_tokens.set(key, rank);
        Ok(rank)
    }

    /// Returns the ranks of [`SuffixArray::find`], given a range of ranks that includes them.
    fn find_within(&self, within: RankRange, ngram: &[u8]) -> Result<RankRange> {
        let pattern = Pattern::new(ngram);
        let first = self.partition(within, &pattern, |order| order == Ordering::Less)?;
        // Most n-grams are rare, so the first search has come near the end of the range, too.
        let rest = RankRange { start: first.point, end: first.greater };
        let last = self.partition(rest, &pattern, |order| order == Ordering::Equal)?;
        Ok(RankRange { start: first.point, end: last.point })
    }

    /// Binary search for the first rank whose order does not satisfy `goes_left`, which must hold
    /// for a prefix of the range.
    fn partition(
        &self,
        within: RankRange,
        pattern: &Pattern<'_>,
        goes_left: impl Fn(Ordering) -> bool,
    ) -> Result<Partition> {
        let mut range = within;
        let mut greater = within.end;
        let mut is_before = |rank: u64, order: Ordering| {
            if order == Ordering::Greater {
                greater = rank;
            }
            goes_left(order)
        };
        let mut finest = u64::MAX;
        for (level, prefixes) in self.shard.prefixes.iter().flat_map(|file| file.levels().rev()) {
            let prefix_of = |number: u64| {
                let prefix = u64::from_be_bytes(prefixes[number as usize]);
                Ok((prefix != 0).then_some(prefix))
            };
            range = self.narrow(range, level.stride, prefix_of, pattern, &mut is_before)?;
            finest = level.stride;
        }
        if self.prefixes.stride < finest {
            let prefix_of = |number: u64| self.prefixes.get(number, &self.shard);
            range = self.narrow(range, self.prefixes.stride, prefix_of, pattern, &mut is_before)?;
        }
        let RankRange { mut start, mut end } = range;
        while start < end {
            let middle = start + (end - start) / 2;
            if is_before(middle, self.compare(middle, pattern)?) {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(Partition { point: start, greater })
    }

    /// Binary search among the suffixes of every `stride`th rank. Returns the part of the range that
    /// remains to be searched. `prefix_of` returns the prefix of a suffix by its number among them;
    /// `None` if the suffix must be read.
    fn narrow(
        &self,
        RankRange { mut start, mut end }: RankRange,
        stride: u64,
        prefix_of: impl Fn(u64) -> Result<Option<u64>>,
        pattern: &Pattern<'_>,
        is_before: &mut impl FnMut(u64, Ordering) -> bool,
    ) -> Result<RankRange> {
        let mut low = start.div_ceil(stride);
        let mut high = end.div_ceil(stride);
        while low < high {
            let middle = low + (high - low) / 2;
            let rank = middle * stride;
            let order = match prefix_of(middle)?.and_then(|prefix| pattern.compare_prefix(prefix)) {
                Some(order) => order,
                None => self.compare(rank, pattern)?,
            };
            if is_before(rank, order) {
                low = middle + 1;
                start = rank + 1;
            } else {
                high = middle;
                end = rank;
            }
        }
        Ok(RankRange { start, end })
    }

    fn compare(&self, rank: u64, pattern: &Pattern<'_>) -> Result<Ordering> {
        Ok(pattern.compare(self.shard.suffix(rank)?))
    }
}

/// The result of a binary search.
struct Partition {
    /// First rank that does not satisfy the condition.
    point: u64,
    /// First rank that was compared and found greater than the pattern; the end of the range if
    /// there was none.
    greater: u64,
}

/// An encoded n-gram, prepared for comparisons with suffixes, most of which compare one number.
struct Pattern<'a> {
    bytes: &'a [u8],
    /// First bytes as a big-endian number, padded with zeros.
    head: u64,
    /// Bits of a suffix's prefix that are compared.
    mask: u64,
}

impl<'a> Pattern<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let length = bytes.len().min(PREFIX_BYTES);
        let mut head = [0; PREFIX_BYTES];
        head[..length].copy_from_slice(&bytes[..length]);
        let mask = u64::MAX.checked_shl(8 * (PREFIX_BYTES - length) as u32).unwrap_or(0);
        Self { bytes, head: u64::from_be_bytes(head), mask }
    }

    /// Compares a suffix that has this prefix with the n-gram; `None` if the prefix does not decide.
    fn compare_prefix(&self, prefix: u64) -> Option<Ordering> {
        let order = (prefix & self.mask).cmp(&self.head);
        (order != Ordering::Equal || self.bytes.len() <= PREFIX_BYTES).then_some(order)
    }

    /// Compares as many bytes of a suffix as the n-gram has. A suffix that ends earlier is smaller.
    fn compare(&self, suffix: &[u8]) -> Ordering {
        if let Some(head) = suffix.first_chunk()
            && let Some(order) = self.compare_prefix(u64::from_be_bytes(*head))
        {
            return order;
        }
        suffix[..self.bytes.len().min(suffix.len())].cmp(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_compares_suffixes_by_leading_bytes() {
        let long = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        for length in 0..=long.len() {
            let pattern = Pattern::new(&long[..length]);
            for suffix in
                [&long[..], &long[..5], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 0], &[0; 20], &[9; 3], &[]]
            {
                let expected = suffix[..length.min(suffix.len())].cmp(&long[..length]);
                assert_eq!(pattern.compare(suffix), expected, "{length} {suffix:?}");
            }
        }
    }
}
