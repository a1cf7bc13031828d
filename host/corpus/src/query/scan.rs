//! Searching the text itself for a clause's terms.
//!
//! A term is searched for by its rarest token: most pieces of text do not hold that token at all,
//! and the compiler turns the comparison of one token with a block of tokens into vector
//! instructions.

use crate::files::shard::Shard;
use crate::suffix::search::RankRange;
use crate::token_width::TokenWidth;

/// Tokens compared at a time: a few vector registers' worth …
const BLOCK: usize = 32;
/// … and for what is left, one register's.
const SMALL_BLOCK: usize = 8;

/// The terms of a clause that occur in the shard.
pub(crate) struct Scanner<'a> {
    shard: &'a Shard,
    terms: Vec<Term<'a>>,
}

struct Term<'a> {
    bytes: &'a [u8],
    /// Which token of the term is probably the rarest.
    rarest: usize,
}

impl<'a> Term<'a> {
    /// Takes the token with the largest id for the rarest: vocabularies number their entries more
    /// or less from the most frequent one on, and counting them would cost a cold index more pages
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

    /// Searches for one term alone.
    pub(crate) fn of_term(shard: &'a Shard, bytes: &'a [u8]) -> Self {
        Self { shard, terms: vec![Term::new(shard.width, bytes)] }
    }

    /// The last occurrence that starts in `[from, to)`, and how many tokens were read.
    pub(crate) fn last_in(&self, from: u64, to: u64) -> (Option<u64>, u64) {
        let (mut best, mut num_read) = (None, 0);
        for term in &self.terms {
            let from = best.map_or(from, |position: u64| position + 1).max(from); // a second term must do better
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

    /// The first occurrence that starts in `[from, to)`, and how many tokens were read.
    pub(crate) fn first_in(&self, from: u64, to: u64) -> (Option<u64>, u64) {
        let (mut best, mut num_read) = (None, 0);
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

/// From starting positions `[from, to)` to the positions of the term's rarest token; cut at the end
/// of the text.
fn rarest_positions(
    num_tokens: usize,
    term_tokens: usize,
    rarest: usize,
    from: u64,
    to: u64,
) -> (usize, usize) {
    let last_start = (num_tokens + 1).saturating_sub(term_tokens) as u64; // exclusive
    let to = to.min(last_start);
    if from >= to {
        return (0, 0);
    }
    (from as usize + rarest, to as usize + rarest)
}

fn last_in<const W: usize>(
    stream: &[u8],
    term: &Term<'_>,
    from: u64,
    to: u64,
) -> (Option<u64>, u64) {
    let (text, term_tokens) = (stream.as_chunks::<W>().0, term.bytes.as_chunks::<W>().0);
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
    let (text, term_tokens) = (stream.as_chunks::<W>().0, term.bytes.as_chunks::<W>().0);
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
    let number = blocks.iter().position(|block| holds(block, token))?;
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
    let number = blocks.iter().rposition(|block| holds(block, token))?;
    blocks[number].iter().rposition(|&t| t == token).map(|within| number * N + within)
}

/// No early exit, so that the compiler emits vector code.
fn holds<const W: usize, const N: usize>(block: &[[u8; W]; N], token: [u8; W]) -> bool {
    block.iter().fold(false, |held, &t| held | (t == token))
}

/// Whether this piece of a stream holds a separator token.
pub(crate) fn holds_separator(stream: &[u8], width: TokenWidth) -> bool {
    match width {
        TokenWidth::U8 => find(stream.as_chunks::<1>().0, [0xFF]).is_some(),
        TokenWidth::U16 => find(stream.as_chunks::<2>().0, [0xFF; 2]).is_some(),
        TokenWidth::U32 => find(stream.as_chunks::<4>().0, [0xFF; 4]).is_some(),
    }
}

/// Whether `width` adjacent FF bytes occur at any alignment. The official engine compares bytes, so
/// it takes a token that ends in FF before one that begins with FF for a document boundary (only
/// vocabularies above 65,280 have such tokens).
pub(crate) fn holds_ones(bytes: &[u8], width: usize) -> bool {
    // Blocks without any FF byte, which are nearly all of them, are skipped.
    let mut run = 0;
    bytes.chunks(2 * BLOCK).any(|block| {
        if !block.iter().fold(false, |held, &byte| held | (byte == 0xFF)) {
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
            assert_eq!(holds_ones(bytes, 2), any_alignment, "{bytes:?}");
            assert_eq!(holds_separator(bytes, TokenWidth::U16), aligned, "{bytes:?}");
        }
        assert!(!holds_ones(&[0xFF, 0xFF, 0xFF, 0x00], 4));
        for start in 0..300 {
            let mut bytes = vec![0; 400];
            bytes[start..start + 2].fill(0xFF); // across the blocks' edges as well
            assert!(holds_ones(&bytes, 2));
            assert!(!holds_ones(&bytes, 4));
        }
    }
}
