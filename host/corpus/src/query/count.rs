//! Counting and finding the matches of a query.

use std::ops::ControlFlow;

use crate::error::Result;
use crate::index::open::Index;
use crate::query::cnf::{Cnf, CnfCount, CnfOptions, Mode};
use crate::query::plan::{Plan, ShardPlan};
use crate::query::starts::Order;

impl Index {
    /// Counts the matches of a CNF query. With `enough`, counting stops once the count has reached
    /// that number, in every mode: the count is then at least `enough`, and less than it only where
    /// the count without `enough` is.
    ///
    /// # Errors
    /// Where an option is 0, a token id does not fit the index, or the suffix array is damaged.
    pub fn count_cnf(
        &self,
        cnf: &Cnf,
        options: &CnfOptions,
        enough: Option<u64>,
    ) -> Result<CnfCount> {
        let Some(plan) = Plan::new(self, cnf, options)? else { return Ok(CnfCount::default()) };
        let mut answer = CnfCount {
            approx: plan.shards.iter().any(|shard| shard.scale() != 1.0),
            sampled: plan
                .shards
                .iter()
                .flat_map(|shard| &shard.clauses)
                .any(|clause| clause.sampled),
            ..CnfCount::default()
        };
        let order = enough.map_or(Order::Any, Order::Enough);
        for (number, shard) in plan.shards.iter().enumerate() {
            let scale = shard.scale();
            let scaled = |matches: u64| (matches as f64 * scale) as u64; // in floating point, as the official engine does
            let earlier = answer.count;
            let (mut matches, mut stopped) = (0, false);
            match shard.clauses.as_slice() {
                // A range of one position crosses no boundary.
                [only] if options.mode != Mode::Span => matches = only.num_positions(),
                _ => plan.visit(shard, order, |_| {
                    matches += 1;
                    stopped = enough.is_some_and(|enough| earlier + scaled(matches) >= enough);
                    if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?,
            }
            answer.count += scaled(matches);
            if enough.is_some_and(|enough| answer.count >= enough) {
                answer.at_least = stopped || number + 1 < plan.shards.len();
                break;
            }
        }
        Ok(answer)
    }

    /// Where the matches begin: per open shard the first token of every match, in the order of the
    /// suffix array, or in
    /// [`Mode::Span`] of the text. Except there, several matches may begin at one place.
    ///
    /// # Errors
    /// As [`Index::count_cnf`].
    pub fn find_cnf(&self, cnf: &Cnf, options: &CnfOptions) -> Result<Vec<Vec<u64>>> {
        let Some(plan) = Plan::new(self, cnf, options)? else {
            return Ok(vec![Vec::new(); self.num_shards()]);
        };
        let find = |shard: &ShardPlan<'_>| {
            let mut starts = Vec::new();
            plan.visit(shard, Order::Ranks, |range| {
                starts.push(range.left);
                ControlFlow::Continue(())
            })?;
            Ok(starts)
        };
        plan.shards.iter().map(find).collect()
    }
}
