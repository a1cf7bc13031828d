//! Scans of the text for the terms of a clause.
//!
//! A scan looks for a term's rarest token: most blocks of text do not contain it, and the compiler
//! turns the comparison of one token with a block of tokens into vector instructions.

use crate::files::shard::Shard;
use crate::suffix::search::RankRange;
use crate::token_width::TokenWidth;

/// Number of tokens that are compared together: a few vector registers.
const BLOCK: usize = 32;
/// Number of tokens that are compared together in the remainder of a text: one vector register.
const SMALL_BLOCK: usize = 8;

/// A scanner for the terms of a clause that occur in a shard.
pub(crate) struct Scanner<'a> {
    shard: &'a Shard,
    terms: Vec<Term<'a>>,
}

struct Term<'a> {
    bytes: &'a [u8],
    /// Index of the token that is probably the rarest.
    rarest: usize,
}

impl<'a> Term<'a> {
    /// Creates a term whose rarest token is the one with the largest id. Vocabularies are ordered
    /// roughly by falling frequency, and counting the tokens would read more pages of a cold index
    /// than the query itself.
    fn new(width: TokenWidth, bytes: &'a [u8]) -> Self {
        let tokens = 0..bytes.len() / width.bytes();
        Self {
            bytes,
            rarest: tokens.max_by_key(|&token| width.read(bytes, token as u64)).unwrap_or_default(),
        }
    }
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(shard: &'a Shard, terms: &'a [Vec<u8>], rank_ranges: &[RankRange]) -> Self {
        let present = terms.iter().zip(rank_ranges).filter(|(_, range)| range.len() > 0);
        Self { shard, terms: present.map(|(bytes, _)| Term::new(shard.width, bytes)).collect() }
    }

    /// Creates a scanner for a single term.
    pub(crate) fn for_term(shard: &'a Shard, bytes: &'a [u8]) -> Self {
        Self { shard, terms: vec![Term::new(shard.width, bytes)] }
    }

    /// Returns the last occurrence that starts in `[from, to)`, and the number of tokens read.
    pub(crate) fn last_in(&self, from: u64, to: u64) -> (Option<u64>, u64) {
        let mut best = None;
        let mut num_read = 0;
        for term in &self.terms {
            // Only an occurrence behind that of the terms before is of use.
            let from = best.map_or(from, |position: u64| position + 1).max(from);
            let (found, read) = match self.shard.width {
                TokenWidth::U8 => last_in::<1>(self.shard.stream(), term, from, to),
                TokenWidth::U16 => last_in::<2>(self.shard.stream(), term, from, to),
                TokenWidth::U32 => last_in::<4>(self.shard.stream(), term, from, to),
            };
            best = found.or(best);
            num_read += read;
        }
        (best, num_read)
    }

    /// Returns the first occurrence that starts in `[from, to)`, and the number of tokens read.
    pub(crate) fn first_in(&self, from: u64, to: u64) -> (Option<u64>, u64) {
        let mut best = None;
        let mut num_read = 0;
        for term in &self.terms {
            let to = best.unwrap_or(to);
            let (found, read) = match self.shard.width {
                TokenWidth::U8 => first_in::<1>(self.shard.stream(), term, from, to),
                TokenWidth::U16 => first_in::<2>(self.shard.stream(), term, from, to),
                TokenWidth::U32 => first_in::<4>(self.shard.stream(), term, from, to),
            };
            best = found.or(best);
            num_read += read;
        }
        (best, num_read)
    }
}

/// Converts start positions `[from, to)` of a term to positions of its rarest token, cut at the end
/// of the text.
fn rarest_positions(
    num_tokens: usize,
    term_tokens: usize,
    rarest: usize,
    from: u64,
    to: u64,
) -> (usize, usize) {
    let last_start = (num_tokens + 1).saturating_sub(term_tokens) as u64; // exclusive
    let starts_to = to.min(last_start);
    if from >= starts_to {
        return (0, 0);
    }
    (from as usize + rarest, starts_to as usize + rarest)
}

fn last_in<const W: usize>(
    stream: &[u8],
    term: &Term<'_>,
    from: u64,
    to: u64,
) -> (Option<u64>, u64) {
    let text = stream.as_chunks::<W>().0;
    let term_tokens = term.bytes.as_chunks::<W>().0;
    let (from, to) = rarest_positions(text.len(), term_tokens.len(), term.rarest, from, to);
    let mut end = to;
    while let Some(found) = rfind(&text[from..end], term_tokens[term.rarest]) {
        let start = from + found - term.rarest;
        if text[start..].starts_with(term_tokens) {
            return (Some(start as u64), (to - from - found) as u64);
        }
        end = from + found;
    }
    (None, (to - from) as u64)
}

fn first_in<const W: usize>(
    stream: &[u8],
    term: &Term<'_>,
    from: u64,
    to: u64,
) -> (Option<u64>, u64) {
    let text = stream.as_chunks::<W>().0;
    let term_tokens = term.bytes.as_chunks::<W>().0;
    let (from, to) = rarest_positions(text.len(), term_tokens.len(), term.rarest, from, to);
    let mut begin = from;
    while let Some(found) = find(&text[begin..to], term_tokens[term.rarest]) {
        let start = begin + found - term.rarest;
        if text[start..].starts_with(term_tokens) {
            return (Some(start as u64), (begin + found + 1 - from) as u64);
        }
        begin += found + 1;
    }
    (None, (to - from) as u64)
}

fn find<const W: usize>(text: &[[u8; W]], token: [u8; W]) -> Option<usize> {
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    let (small_blocks, last) = rest.as_chunks::<SMALL_BLOCK>();
    let start = text.len() - rest.len();
    find_in_blocks(blocks, token)
        .or_else(|| find_in_blocks(small_blocks, token).map(|at| start + at))
        .or_else(|| last.iter().position(|&t| t == token).map(|at| text.len() - last.len() + at))
}

fn find_in_blocks<const W: usize, const N: usize>(
    blocks: &[[[u8; W]; N]],
    token: [u8; W],
) -> Option<usize> {
    let number = blocks.iter().position(|block| contains(block, token))?;
    blocks[number].iter().position(|&t| t == token).map(|within| number * N + within)
}

fn rfind<const W: usize>(text: &[[u8; W]], token: [u8; W]) -> Option<usize> {
    let (rest, blocks) = text.as_rchunks::<BLOCK>();
    let (first, small_blocks) = rest.as_rchunks::<SMALL_BLOCK>();
    rfind_in_blocks(blocks, token)
        .map(|at| rest.len() + at)
        .or_else(|| rfind_in_blocks(small_blocks, token).map(|at| first.len() + at))
        .or_else(|| first.iter().rposition(|&t| t == token))
}

fn rfind_in_blocks<const W: usize, const N: usize>(
    blocks: &[[[u8; W]; N]],
    token: [u8; W],
) -> Option<usize> {
    let number = blocks.iter().rposition(|block| contains(block, token))?;
    blocks[number].iter().rposition(|&t| t == token).map(|within| number * N + within)
}

/// True if a block contains a token. It has no early exit, so that the compiler emits vector code.
fn contains<const W: usize, const N: usize>(block: &[[u8; W]; N], token: [u8; W]) -> bool {
    block.iter().fold(false, |found, &t| found | (t == token))
}

/// True if a part of a stream contains a separator token.
pub(crate) fn contains_separator(stream: &[u8], width: TokenWidth) -> bool {
    match width {
        TokenWidth::U8 => find(stream.as_chunks::<1>().0, [0xFF]).is_some(),
        TokenWidth::U16 => find(stream.as_chunks::<2>().0, [0xFF; 2]).is_some(),
        TokenWidth::U32 => find(stream.as_chunks::<4>().0, [0xFF; 4]).is_some(),
    }
}

/// True if `width` adjacent FF bytes occur at any alignment. The official engine compares bytes, so
/// it takes a token that ends in FF before one that begins with FF for a document boundary. Only
/// vocabularies above 65,280 have such tokens.
pub(crate) fn contains_ones(bytes: &[u8], width: usize) -> bool {
    // Blocks without any FF byte, which are nearly all of them, are skipped.
    let mut run = 0;
    bytes.chunks(2 * BLOCK).any(|block| {
        if !block.iter().fold(false, |found, &byte| found | (byte == 0xFF)) {
            run = 0;
            return false;
        }
        block.iter().any(|&byte| {
            run = if byte == 0xFF { run + 1 } else { 0 };
            run == width
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(bytes: &[u8], rarest: usize) -> Term<'_> {
        Term { bytes, rarest }
    }

    #[test]
    fn forward_and_backward_scan_match_plain_search() {
        let text: Vec<u8> = (0..500_u32).map(|i| (i * i % 7) as u8).collect();
        for (pattern, rarest) in [(vec![2], 0), (vec![4, 2], 1), (vec![1, 4, 2], 2), (vec![3], 0)] {
            let starts: Vec<u64> = (0..text.len())
                .filter(|&i| text[i..].starts_with(&pattern))
                .map(|i| i as u64)
                .collect();
            for (from, to) in [(0, 500), (0, 0), (3, 90), (100, 101), (460, 2_000), (37, 69)] {
                let inside = || starts.iter().copied().filter(|start| (from..to).contains(start));
                assert_eq!(
                    first_in::<1>(&text, &term(&pattern, rarest), from, to).0,
                    inside().next()
                );
                assert_eq!(
                    last_in::<1>(&text, &term(&pattern, rarest), from, to).0,
                    inside().next_back()
                );
            }
        }
    }

    #[test]
    fn term_longer_than_text_is_not_found() {
        assert_eq!(first_in::<1>(&[1, 2], &term(&[1, 2, 3], 0), 0, 10).0, None);
        assert_eq!(last_in::<1>(&[1, 2], &term(&[1, 2, 3], 2), 0, 10).0, None);
    }

    #[test]
    fn separators_are_detected_aligned_and_unaligned() {
        for (bytes, any_alignment, aligned) in [
            (&[0x41, 0xFF, 0xFF, 0x12][..], true, false),
            (&[0xFF, 0x00, 0xFF, 0x00], false, false),
            (&[0x00, 0x00, 0xFF, 0xFF], true, true),
            (&[], false, false),
        ] {
            assert_eq!(contains_ones(bytes, 2), any_alignment, "{bytes:?}");
            assert_eq!(contains_separator(bytes, TokenWidth::U16), aligned, "{bytes:?}");
        }
        assert!(!contains_ones(&[0xFF, 0xFF, 0xFF, 0x00], 4));
        for start in 0..300 {
            let mut bytes = vec![0; 400];
            bytes[start..start + 2].fill(0xFF); // across the blocks' edges as well
            assert!(contains_ones(&bytes, 2));
            assert!(!contains_ones(&bytes, 4));
        }
    }
}
