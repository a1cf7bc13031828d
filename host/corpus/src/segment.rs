//! Where the suffixes that start with an n-gram lie in the suffix array.
//!
//! Suffixes are ordered byte by byte as they lie on disk, so a token's *bytes* decide, never its number: 256 (`00 01`)
//! comes before 1 (`01 00`).

use std::cmp::Ordering;

use crate::error::Result;
use crate::keys::{KEY_BYTES, Level};
use crate::shard::Shard;

/// A half-open range of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Segment {
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }
}

/// An n-gram as the stream's bytes, ready to be compared with suffixes: mostly as one number.
pub(crate) struct Pattern<'a> {
    bytes: &'a [u8],
    /// The first bytes as a big-endian number, zeros behind them.
    head: u64,
    /// Which bits of a suffix's key count.
    mask: u64,
}

impl<'a> Pattern<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let length = bytes.len().min(KEY_BYTES);
        let mut head = [0; KEY_BYTES];
        head[..length].copy_from_slice(&bytes[..length]);
        let mask = u64::MAX.checked_shl(8 * (KEY_BYTES - length) as u32).unwrap_or(0);
        Self { bytes, head: u64::from_be_bytes(head), mask }
    }

    /// How a suffix of this key compares; `None` where the key alone does not say.
    fn compare_key(&self, key: u64) -> Option<Ordering> {
        let order = (key & self.mask).cmp(&self.head);
        (order != Ordering::Equal || self.bytes.len() <= KEY_BYTES).then_some(order)
    }

    /// Compares the first bytes of a suffix, as many as the n-gram has; a suffix that ends before is smaller.
    fn compare(&self, suffix: &[u8]) -> Ordering {
        if let Some(head) = suffix.first_chunk()
            && let Some(order) = self.compare_key(u64::from_be_bytes(*head))
        {
            return order;
        }
        suffix[..self.bytes.len().min(suffix.len())].cmp(self.bytes)
    }
}

impl Shard {
    /// The ranks of all suffixes that start with `ngram`, given as the stream's bytes. The empty n-gram starts them all.
    pub(crate) fn find(&self, ngram: &[u8]) -> Result<Segment> {
        let everything = Segment { start: 0, end: self.num_tokens };
        let Some((first, rest)) = ngram.split_at_checked(self.width.bytes()).filter(|(first, _)| !first.is_empty())
        else {
            return Ok(everything);
        };
        match self.first.segment(self, first, rest.is_empty())? {
            Some(segment) if rest.is_empty() => Ok(segment),
            Some(segment) => self.find_within(segment, ngram),
            None => self.find_within(everything, ngram),
        }
    }

    /// The same, given a range of ranks that holds them all.
    fn find_within(&self, within: Segment, ngram: &[u8]) -> Result<Segment> {
        let pattern = Pattern::new(ngram);
        let (start, beyond) = self.partition(within, &pattern, |order| order == Ordering::Less)?;
        // On its way the first search has met the end, or came near it: most n-grams are rare.
        let (end, _) = self.partition(Segment { start, end: beyond }, &pattern, |order| order == Ordering::Equal)?;
        Ok(Segment { start, end })
    }

    /// The first rank whose order does not satisfy `before`, which the ranks of a prefix of the range must do; and of the ranks
    /// that were looked at and are greater than the pattern the first, or else the range's end.
    pub(crate) fn partition(
        &self,
        within: Segment,
        pattern: &Pattern<'_>,
        before: impl Fn(Ordering) -> bool,
    ) -> Result<(u64, u64)> {
        let Segment { mut start, mut end } = within;
        let mut beyond = end;
        let mut is_before = |rank: u64, order: Ordering| {
            if order == Ordering::Greater {
                beyond = rank;
            }
            before(order)
        };
        if let Some(saved) = &self.saved_keys {
            Segment { start, end } = self.narrow(Segment { start, end }, saved, pattern, &mut is_before)?;
        }
        Segment { start, end } = self.narrow(Segment { start, end }, &self.keys, pattern, &mut is_before)?;
        while start < end {
            let middle = start + (end - start) / 2;
            if is_before(middle, self.compare(middle, pattern)?) {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok((start, beyond))
    }

    /// The part of a range that the keys leave to search.
    fn narrow(
        &self,
        Segment { mut start, mut end }: Segment,
        keys: &impl Level,
        pattern: &Pattern<'_>,
        is_before: &mut impl FnMut(u64, Ordering) -> bool,
    ) -> Result<Segment> {
        let (mut low, mut high) = keys.inside(Segment { start, end });
        while low < high {
            let middle = low + (high - low) / 2;
            let rank = keys.rank(middle);
            let order = match keys.key(self, middle)?.and_then(|key| pattern.compare_key(key)) {
                Some(order) => order,
                None => self.compare(rank, pattern)?,
            };
            if is_before(rank, order) {
                (low, start) = (middle + 1, rank + 1);
            } else {
                (high, end) = (middle, rank);
            }
        }
        Ok(Segment { start, end })
    }

    fn compare(&self, rank: u64, pattern: &Pattern<'_>) -> Result<Ordering> {
        Ok(pattern.compare(self.suffix(rank)?))
    }
}
