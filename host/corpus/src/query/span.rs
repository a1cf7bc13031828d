//! [`Mode::Span`](crate::Mode::Span): the shortest spans of text that contain every clause.
//!
//! The sweep visits occurrences in the order of their ends, and remembers the start of each clause's
//! last occurrence. The earliest of these starts is the left end of the shortest span that ends here
//! and contains all clauses. The left end never moves back. If it moves forward, the span is
//! minimal: any shorter span that ends here or before lacks a clause.
//!
//! Every match contains an occurrence of the rarest clause, so only the text around those is read,
//! and no part of it twice.

use std::ops::{ControlFlow, Range};

use crate::error::Result;
use crate::files::shard::Shard;
use crate::query::clause::ShardClause;
use crate::query::join::MatchRange;
use crate::query::scan::Scanner;
use crate::suffix::position_cache::PositionCache;

/// Greatest distance that a term is searched for ahead of the sweep, tokens. Without it, a rare term
/// would delay a search that stops soon.
const AHEAD: u64 = 1 << 14;

/// Calls `visit` for each match in a shard, in the order of the text, until it breaks. `terms` are
/// the terms of each clause of the query, `clauses` their occurrences in this shard, rarest first. A
/// match has at most `max_diff_tokens` tokens.
pub(crate) fn visit(
    shard: &Shard,
    clauses: &[ShardClause],
    terms: &[Vec<Vec<u8>>],
    positions: &PositionCache,
    max_diff_tokens: u64,
    visit: &mut impl FnMut(MatchRange) -> ControlFlow<()>,
) -> Result<()> {
    let Some(rarest) = clauses.first().filter(|rarest| rarest.count > 0) else { return Ok(()) };
    let mut sweep = Sweep::new(shard, clauses, terms, max_diff_tokens);
    if rarest.count.saturating_mul(max_diff_tokens).saturating_mul(2) >= shard.num_tokens {
        let _ = sweep.run(0, shard.num_tokens, visit); // the windows would cover most of the text
        return Ok(());
    }
    let sorted = positions.get_or_read(shard, &rarest.rank_ranges)?;
    let mut current: Option<Range<u64>> = None;
    for index in 0..rarest.count as usize {
        let position = sorted.get(index);
        let start = position.saturating_sub(max_diff_tokens);
        let end = position.saturating_add(max_diff_tokens);
        // Overlapping windows are swept together.
        if let Some(window) = &mut current
            && start <= window.end
        {
            window.end = end;
            continue;
        }
        if let Some(window) = current.replace(start..end)
            && sweep.run(window.start, window.end.min(shard.num_tokens), visit).is_break()
        {
            return Ok(());
        }
    }
    if let Some(window) = current {
        let _ = sweep.run(window.start, window.end.min(shard.num_tokens), visit);
    }
    Ok(())
}

/// Separator of the widest tokens; its first bytes are that of the others.
const SEPARATOR: [u8; 4] = [0xFF; 4];

struct Sweep<'a> {
    seekers: Vec<Seeker<'a>>,
    separators: Seeker<'a>,
    /// Start of each clause's last occurrence; `None` before its first.
    last_starts: Vec<Option<u64>>,
    /// Start of the current document.
    document: u64,
    /// Left end of the last minimal span; `None` before the first.
    left: Option<u64>,
    max_diff_tokens: u64,
}

impl<'a> Sweep<'a> {
    fn new(
        shard: &'a Shard,
        clauses: &[ShardClause],
        terms: &'a [Vec<Vec<u8>>],
        max_diff_tokens: u64,
    ) -> Self {
        let mut seekers = Vec::new();
        for (number, clause) in clauses.iter().enumerate() {
            for (term, range) in terms[clause.number].iter().zip(&clause.rank_ranges) {
                if range.len() > 0 {
                    seekers.push(Seeker::new(shard, number, term));
                }
            }
        }
        let separators = Seeker::new(shard, clauses.len(), &SEPARATOR[..shard.width.bytes()]);
        Self {
            seekers,
            separators,
            last_starts: vec![None; clauses.len()],
            document: 0,
            left: None,
            max_diff_tokens,
        }
    }

    /// Sweeps the occurrences inside `[from, to)`, which must be behind all earlier sweeps.
    fn run(
        &mut self,
        from: u64,
        to: u64,
        visit: &mut impl FnMut(MatchRange) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for seeker in self.seekers.iter_mut().chain([&mut self.separators]) {
            seeker.skip_to(from);
        }
        let mut swept_to = from;
        while swept_to < to {
            swept_to = to.min(swept_to + AHEAD);
            while let Some(end) =
                self.seekers.iter_mut().filter_map(|seeker| seeker.next_end(swept_to)).min()
            {
                // Occurrences before the last separator are in another document.
                while let Some(separator) = self.separators.take_before(end) {
                    self.document = separator;
                }
                for seeker in &mut self.seekers {
                    if let Some(start) =
                        seeker.take_ending(end).filter(|&start| start >= self.document)
                    {
                        let last_start = &mut self.last_starts[seeker.clause];
                        *last_start = (*last_start).max(Some(start));
                    }
                }
                let left = self.last_starts.iter().copied().min().flatten();
                if left <= self.left {
                    continue;
                }
                self.left = left;
                if let Some(left) =
                    left.filter(|&left| left >= self.document && end - left <= self.max_diff_tokens)
                {
                    visit(MatchRange { left, right: end - 1 })?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// A cursor over the occurrences of a term.
struct Seeker<'a> {
    scanner: Scanner<'a>,
    clause: usize,
    num_tokens: u64,
    /// Start of the next occurrence; `None` if it is not yet found.
    next: Option<u64>,
    /// Position from which the search continues.
    from: u64,
}

impl<'a> Seeker<'a> {
    fn new(shard: &'a Shard, clause: usize, term: &'a [u8]) -> Self {
        let num_tokens = (term.len() / shard.width.bytes()) as u64;
        Self { scanner: Scanner::for_term(shard, term), clause, num_tokens, next: None, from: 0 }
    }

    /// Skips the occurrences that begin before a position.
    fn skip_to(&mut self, from: u64) {
        self.from = self.from.max(from);
        self.next = self.next.filter(|&next| next >= from);
    }

    fn seek(&mut self, swept_to: u64) -> Option<u64> {
        let starts_to = (swept_to + 1).saturating_sub(self.num_tokens);
        if self.next.is_none() && self.from < starts_to {
            self.next = self.scanner.first_in(self.from, starts_to).0;
            self.from = self.next.map_or(starts_to, |next| next + 1);
        }
        self.next
    }

    /// Returns the end of the next occurrence; `None` if it is after `swept_to`.
    fn next_end(&mut self, swept_to: u64) -> Option<u64> {
        self.seek(swept_to).map(|start| start + self.num_tokens)
    }

    /// Takes the next occurrence if it ends at a position.
    fn take_ending(&mut self, end: u64) -> Option<u64> {
        self.next.take_if(|start| *start + self.num_tokens == end)
    }

    /// Takes the next occurrence if it begins before a position.
    fn take_before(&mut self, position: u64) -> Option<u64> {
        self.seek(position);
        self.next.take_if(|start| *start < position)
    }
}
