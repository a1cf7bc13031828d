//! [`Mode::Span`](crate::Mode::Span): the shortest stretches of text that hold every clause.
//!
//! Occurrences are taken in the order in which they end. For each clause it is known where its last
//! occurrence so far began; the earliest of these beginnings is the left end of the shortest
//! stretch that ends here and holds all clauses. That left end never moves back, and where it moves
//! forward, the stretch is minimal: anything shorter that ends here or before lacks a clause.
//!
//! Every match holds an occurrence of the rarest clause, so only the text around those is read,
//! each piece once.

use std::ops::ControlFlow;

use crate::error::Result;
use crate::files::shard::Shard;
use crate::query::clause::ShardClause;
use crate::query::join::MatchRange;
use crate::query::scan::Scanner;
use crate::suffix::position_cache::PositionCache;

/// A term is searched for at most this many tokens ahead of the sweep, so that a rare one does not
/// delay a search that will stop soon.
const AHEAD: u64 = 1 << 14;

/// Shows every match in a shard to `visit`, as they lie in the text, until that breaks. `terms` are
/// those of each clause of the query; `clauses` where they lie in this shard, rarest first; a match
/// has at most `max_diff_tokens` tokens.
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
        let _ = sweep.run(0, shard.num_tokens, visit); // hardly any text would be left out
        return Ok(());
    }
    let before = |position: u64| position.saturating_sub(max_diff_tokens);
    let behind = |position: u64| position.saturating_add(max_diff_tokens);
    let starts = positions.get_or_read(shard, &rarest.rank_ranges)?;
    let mut starts = (0..rarest.count as usize).map(|index| starts.get(index)).peekable();
    while let Some(first) = starts.next() {
        let mut last = first;
        while let Some(next) = starts.next_if(|&next| before(next) <= behind(last)) {
            last = next;
        }
        if sweep.run(before(first), behind(last).min(shard.num_tokens), visit).is_break() {
            break;
        }
    }
    Ok(())
}

/// The separator of the widest tokens; of others the first bytes.
const SEPARATOR: [u8; 4] = [0xFF; 4];

struct Sweep<'a> {
    seekers: Vec<Seeker<'a>>,
    separators: Seeker<'a>,
    /// For each clause the start of its last occurrence.
    begun: Vec<Option<u64>>,
    /// The start of the document that the sweep is in.
    document: u64,
    /// The left end of the last shortest stretch.
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
            begun: vec![None; clauses.len()],
            document: 0,
            left: None,
            max_diff_tokens,
        }
    }

    /// Visits the occurrences inside `[from, to)`, which begins after what was swept before.
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
                // A document that begins before the end: nothing that began before it reaches here
                // whole.
                while let Some(separator) = self.separators.take_before(end) {
                    self.document = separator;
                }
                for seeker in &mut self.seekers {
                    if let Some(start) =
                        seeker.take_ending(end).filter(|&start| start >= self.document)
                    {
                        self.begun[seeker.clause] = self.begun[seeker.clause].max(Some(start));
                    }
                }
                let left = self.begun.iter().copied().min().flatten();
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

/// Finds one term's occurrences one after the other.
struct Seeker<'a> {
    scanner: Scanner<'a>,
    clause: usize,
    num_tokens: u64,
    /// The start of the next occurrence, if it was found already …
    next: Option<u64>,
    /// … and where the search continues.
    from: u64,
}

impl<'a> Seeker<'a> {
    fn new(shard: &'a Shard, clause: usize, term: &'a [u8]) -> Self {
        let num_tokens = (term.len() / shard.width.bytes()) as u64;
        Self { scanner: Scanner::of_term(shard, term), clause, num_tokens, next: None, from: 0 }
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

    /// Where the next occurrence ends, if not after `swept_to`.
    fn next_end(&mut self, swept_to: u64) -> Option<u64> {
        self.seek(swept_to).map(|start| start + self.num_tokens)
    }

    /// Takes the next occurrence if it ends here.
    fn take_ending(&mut self, end: u64) -> Option<u64> {
        self.next.take_if(|start| *start + self.num_tokens == end)
    }

    /// Takes the next occurrence if it begins before a position.
    fn take_before(&mut self, position: u64) -> Option<u64> {
        self.seek(position);
        self.next.take_if(|start| *start < position)
    }
}
