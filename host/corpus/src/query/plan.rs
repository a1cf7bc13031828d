//! Execution of a query, shard by shard.
//!
//! In [`Mode::Compatible`] a match starts as an occurrence of the shard's rarest clause, a range of
//! one position. It is extended to the nearest occurrence of every further clause. The ranges that
//! remain and cross no document boundary are the matches. In [`Mode::Exact`] a match is an occurrence
//! of the counted clause that has every further clause near it in its document. Both joins are in
//! [`crate::query::join`]. [`Mode::Span`] has another rule: [`crate::query::span`].

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

/// The clauses of a query in a shard, rarest first. In [`Mode::Exact`] the first is the counted
/// clause, which another may be rarer than in this shard.
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
        // Number of the clause with the fewest occurrences in all shards, the first if several have.
        let mut rarest = 0;
        let mut fewest = u64::MAX;
        for (number, clause_terms) in terms.iter().enumerate() {
            let mut occurrences = 0;
            for shard in &mut shards {
                let mut clause = ShardClause::find(shard.suffix_array, number, clause_terms)?;
                if options.mode.counts_occurrences() {
                    clause.merge_terms();
                }
                occurrences += clause.count;
                shard.clauses.push(clause);
            }
            if occurrences == 0 {
                return Ok(None);
            }
            if occurrences < fewest {
                fewest = occurrences;
                rarest = number;
            }
        }
        let counted = match options.mode {
            Mode::Exact => Some(rarest),
            Mode::ExactFirst => Some(0),
            Mode::Compatible | Mode::Span => None,
        };
        let cap = options.max_clause_freq.div_ceil(shards.len() as u64);
        for ShardPlan { clauses, .. } in &mut shards {
            if options.mode == Mode::Compatible {
                clauses.iter_mut().for_each(|clause| clause.sample(cap));
            }
            // A stable sort, as the official engine's is for up to 16 clauses.
            clauses.sort_by_key(|clause| (Some(clause.number) != counted, clause.count));
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
        let Some((first, further)) = clauses.split_first() else { return Ok(()) };
        if clauses.iter().any(|clause| clause.count == 0) {
            return Ok(());
        }
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
        let mut starts = MatchStarts::new(shard, first, self.positions, order)?;
        let mut boundaries = Boundaries::new(suffix_array, mode, self.positions);
        // A block of ranges is joined with all clauses before the next block, so that the search can
        // stop early.
        let mut ranges = Vec::new();
        let mut extended = Vec::new();
        let mut neighbourhoods = Vec::new();
        while starts.next_block(&mut ranges)? {
            if mode.counts_occurrences() {
                for clause in &mut neighbours {
                    neighbourhoods.clear();
                    clause.join(&ranges, &mut neighbourhoods)?;
                    ranges.clear();
                    boundaries.filter_occurrences(&neighbourhoods, &mut ranges)?;
                }
            } else {
                for clause in &mut neighbours {
                    extended.clear();
                    clause.join(&ranges, &mut extended)?;
                    std::mem::swap(&mut ranges, &mut extended);
                }
                extended.clear();
                boundaries.filter(&ranges, &mut extended)?;
                std::mem::swap(&mut ranges, &mut extended);
            }
            for range in ranges.drain(..) {
                if visit(range).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
