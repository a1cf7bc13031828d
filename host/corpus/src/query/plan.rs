//! Execution of a query, shard by shard.
//!
//! A match starts as an occurrence of the rarest clause, a range of one position. It is extended to
//! the nearest occurrence of every further clause, by the rule of [`crate::query::join`]. The ranges
//! that remain and cross no document boundary are the matches. [`Mode::Span`] has another rule:
//! [`crate::query::span`].

use std::ops::ControlFlow;

use crate::error::Result;
use crate::index::open::Index;
use crate::query::boundary::Boundaries;
use crate::query::clause::ShardClause;
use crate::query::cnf::{Cnf, CnfOptions, Mode};
use crate::query::join::{MatchRange, Neighbours};
use crate::query::span;
use crate::query::starts::{MatchOrder, MatchStarts};
use crate::suffix::position_cache::PositionCache;
use crate::suffix::search::SuffixArray;

/// A query with the ranks of its terms.
pub(crate) struct QueryPlan<'a> {
    /// Encoded terms of each clause.
    terms: Vec<Vec<Vec<u8>>>,
    pub(crate) shards: Vec<ShardPlan<'a>>,
    positions: &'a PositionCache,
    options: &'a CnfOptions,
}

/// The clauses of a query in a shard, rarest first.
pub(crate) struct ShardPlan<'a> {
    suffix_array: &'a SuffixArray,
    pub(crate) clauses: Vec<ShardClause>,
}

impl ShardPlan<'_> {
    /// Returns the factor that scales up the number of matches, for sampled clauses.
    pub(crate) fn scale(&self) -> f64 {
        self.clauses.iter().map(|clause| clause.factor as f64).product()
    }
}

impl<'a> QueryPlan<'a> {
    /// Searches for the terms of a query; `None` if a clause occurs in no shard.
    pub(crate) fn new(
        index: &'a Index,
        cnf: &Cnf,
        options: &'a CnfOptions,
    ) -> Result<Option<Self>> {
        options.check()?;
        let mut terms = Vec::with_capacity(cnf.clauses().len());
        for clause in cnf.clauses() {
            let encoded: Result<Vec<_>> = clause.iter().map(|term| index.encode(term)).collect();
            terms.push(encoded?);
        }
        let mut shards = Vec::with_capacity(index.suffix_arrays.len());
        for suffix_array in &index.suffix_arrays {
            shards.push(ShardPlan { suffix_array, clauses: Vec::with_capacity(terms.len()) });
        }
        for (number, clause_terms) in terms.iter().enumerate() {
            let mut occurrences = 0;
            for shard in &mut shards {
                let clause = ShardClause::find(shard.suffix_array, number, clause_terms)?;
                occurrences += clause.count;
                shard.clauses.push(clause);
            }
            if occurrences == 0 {
                return Ok(None);
            }
        }
        let cap = options.max_clause_freq.div_ceil(shards.len() as u64);
        for ShardPlan { clauses, .. } in &mut shards {
            if options.mode == Mode::Compatible {
                clauses.iter_mut().for_each(|clause| clause.sample(cap));
            }
            // A stable sort, as the official engine's is for up to 16 clauses.
            clauses.sort_by_key(|clause| clause.count);
        }
        Ok(Some(Self { terms, shards, positions: &index.positions, options }))
    }

    /// Calls `visit` for each match in a shard until it breaks.
    pub(crate) fn visit(
        &self,
        ShardPlan { suffix_array, clauses }: &ShardPlan<'_>,
        order: MatchOrder,
        mut visit: impl FnMut(MatchRange) -> ControlFlow<()>,
    ) -> Result<()> {
        let shard = &suffix_array.shard;
        let CnfOptions { max_diff_tokens, mode, .. } = *self.options;
        if mode == Mode::Span {
            return span::visit(
                shard,
                clauses,
                &self.terms,
                self.positions,
                max_diff_tokens,
                &mut visit,
            );
        }
        let Some((rarest, further)) = clauses.split_first() else { return Ok(()) };
        let mut neighbours = Vec::with_capacity(further.len());
        for clause in further {
            let terms = &self.terms[clause.number];
            neighbours.push(Neighbours::new(
                shard,
                clause,
                terms,
                self.positions,
                max_diff_tokens,
            )?);
        }
        let mut starts = MatchStarts::new(shard, rarest, self.positions, order)?;
        let mut boundaries = Boundaries::new(suffix_array, mode, self.positions);
        // A block of ranges is joined with all clauses before the next block, so that the search can
        // stop early.
        let mut ranges = Vec::new();
        let mut next_ranges = Vec::new();
        while starts.next_block(&mut ranges)? {
            for clause in &mut neighbours {
                clause.extend(&ranges, &mut next_ranges)?;
                std::mem::swap(&mut ranges, &mut next_ranges);
                next_ranges.clear();
            }
            boundaries.filter(&ranges, &mut next_ranges)?;
            ranges.clear();
            for range in next_ranges.drain(..) {
                if visit(range).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
