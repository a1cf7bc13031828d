//! Carrying out a query, shard by shard.
//!
//! A match starts as one occurrence of the rarest clause, a range of one position, and takes in the
//! nearest occurrence of every further clause ([`crate::query::join`] has the rule). The ranges
//! that are left and cross no document boundary are the matches. [`Mode::Span`] has another rule:
//! [`crate::query::span`].

use std::ops::ControlFlow;

use crate::error::Result;
use crate::index::open::Index;
use crate::query::boundary::Boundaries;
use crate::query::clause::ShardClause;
use crate::query::cnf::{Cnf, CnfOptions, Mode};
use crate::query::join::{MatchRange, Neighbours};
use crate::query::span;
use crate::query::starts::{Order, Starts};
use crate::suffix::position_cache::PositionCache;
use crate::suffix::search::SuffixArray;

/// A query whose terms were searched for.
pub(crate) struct Plan<'a> {
    /// The terms of each clause as bytes of the stream.
    terms: Vec<Vec<Vec<u8>>>,
    pub(crate) shards: Vec<ShardPlan<'a>>,
    positions: &'a PositionCache,
    options: &'a CnfOptions,
}

/// A shard, and the clauses in it, rarest first.
pub(crate) struct ShardPlan<'a> {
    suffix_array: &'a SuffixArray,
    pub(crate) clauses: Vec<ShardClause>,
}

impl ShardPlan<'_> {
    /// The factor for the number of matches.
    pub(crate) fn scale(&self) -> f64 {
        self.clauses.iter().map(|clause| clause.factor as f64).product()
    }
}

impl<'a> Plan<'a> {
    /// `None` where some clause occurs in no shard at all.
    pub(crate) fn new(
        index: &'a Index,
        cnf: &Cnf,
        options: &'a CnfOptions,
    ) -> Result<Option<Self>> {
        options.check()?;
        let encode = |clause: &Vec<Vec<u32>>| {
            clause.iter().map(|term| index.encode(term)).collect::<Result<Vec<_>>>()
        };
        let terms = cnf.clauses().iter().map(encode).collect::<Result<Vec<_>>>()?;

        let empty =
            |suffix_array| ShardPlan { suffix_array, clauses: Vec::with_capacity(terms.len()) };
        let mut shards: Vec<ShardPlan<'_>> = index.suffix_arrays.iter().map(empty).collect();
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
            // Stable: the official engine leaves up to 16 equally frequent clauses in the order
            // given.
            clauses.sort_by_key(|clause| clause.count);
        }
        Ok(Some(Self { terms, shards, positions: &index.positions, options }))
    }

    /// Shows the matches in a shard to `visit`, until that breaks.
    pub(crate) fn visit(
        &self,
        ShardPlan { suffix_array, clauses }: &ShardPlan<'_>,
        order: Order,
        mut visit: impl FnMut(MatchRange) -> ControlFlow<()>,
    ) -> Result<()> {
        let (shard, CnfOptions { max_diff_tokens, mode, .. }) =
            (&suffix_array.shard, *self.options);
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
        let mut starts = Starts::new(shard, rarest, self.positions, order)?;
        let mut boundaries = Boundaries::new(suffix_array, mode, self.positions);
        // A block of ranges goes through all clauses before the next: the search can stop after any
        // block.
        let (mut ranges, mut longer) = (Vec::new(), Vec::new());
        while starts.next_block(&mut ranges)? {
            for clause in &mut neighbours {
                clause.extend(&ranges, &mut longer)?;
                std::mem::swap(&mut ranges, &mut longer);
                longer.clear();
            }
            boundaries.keep_whole(&ranges, &mut longer)?;
            ranges.clear();
            for range in longer.drain(..) {
                if visit(range).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
