//! Where the suffixes that start with an n-gram lie in the suffix array.
//!
//! Suffixes are ordered byte by byte as they lie on disk, so a token's *bytes* decide, never its number: 256 (`00 01`)
//! comes before 1 (`01 00`).

use std::cmp::Ordering;

use crate::error::Result;
use crate::shard::Shard;

/// A half-open range of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Segment {
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
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
        match self.first.segment(self, first)? {
            Some(segment) if rest.is_empty() => Ok(segment),
            Some(segment) => self.find_within(segment, ngram),
            None => self.find_within(everything, ngram),
        }
    }

    /// The same, given a range of ranks that holds them all.
    pub(crate) fn find_within(&self, within: Segment, ngram: &[u8]) -> Result<Segment> {
        let start = self.partition(within, |shard, rank| Ok(shard.compare(rank, ngram)? == Ordering::Less))?;
        // Most n-grams are rare: double the step from the first hit, then halve it.
        let (mut inside, mut step) = (start, 1);
        while inside + step < within.end && self.compare(inside + step - 1, ngram)? == Ordering::Equal {
            inside += step;
            step *= 2;
        }
        let beyond = Segment { start: inside, end: within.end.min(inside + step) };
        let end = self.partition(beyond, |shard, rank| Ok(shard.compare(rank, ngram)? == Ordering::Equal))?;
        Ok(Segment { start, end })
    }

    /// The first rank that does not hold `before`, which must hold for a prefix of the range.
    pub(crate) fn partition(&self, within: Segment, before: impl Fn(&Self, u64) -> Result<bool>) -> Result<u64> {
        let Segment { mut start, mut end } = within;
        while start < end {
            let middle = start + (end - start) / 2;
            if before(self, middle)? {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(start)
    }

    /// Compares the first bytes of a suffix, as many as the n-gram has; a suffix that ends before is smaller.
    fn compare(&self, rank: u64, ngram: &[u8]) -> Result<Ordering> {
        let suffix = &self.stream()[self.position(rank)? as usize * self.width.bytes()..];
        Ok(suffix[..ngram.len().min(suffix.len())].cmp(ngram))
    }
}
