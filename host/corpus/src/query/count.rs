//! Counting and finding the matches of a query.

use std::ops::ControlFlow;

use crate::error::Result;
use crate::index::open::Index;
use crate::query::cnf::{Cnf, CnfCount, CnfOptions, Mode};
use crate::query::plan::QueryPlan;
use crate::query::starts::MatchOrder;

impl Index {
    /// Counts the matches of a query. With a limit, counting stops once the count has reached it, in
    /// every mode: the count is below the limit only if the count without a limit is.
    ///
    /// # Errors
    /// Fails if an option is 0, a token id does not fit the index, or the suffix array is damaged.
    pub fn count_cnf(
        &self,
        cnf: &Cnf,
        options: &CnfOptions,
        limit: Option<u64>,
    ) -> Result<CnfCount> {
        let Some(plan) = QueryPlan::new(self, cnf, options)? else {
            return Ok(CnfCount::default());
        };
        let mut total = CnfCount {
            approx: plan.shards.iter().any(|shard| shard.scale() != 1.0),
            sampled: plan
                .shards
                .iter()
                .flat_map(|shard| &shard.clauses)
                .any(|clause| clause.sampled),
            ..CnfCount::default()
        };
        let order = limit.map_or(MatchOrder::Any, MatchOrder::UpTo);
        for (number, shard) in plan.shards.iter().enumerate() {
            let scale = shard.scale();
            // In floating point, as the official engine does.
            let scale_up = |matches: u64| (matches as f64 * scale) as u64;
            let earlier = total.count;
            let mut matches = 0;
            let mut stopped = false;
            match shard.clauses.as_slice() {
                // A range of one position crosses no boundary.
                [clause] if options.mode != Mode::Span => matches = clause.num_positions(),
                _ => plan.visit(shard, order, |_| {
                    matches += 1;
                    stopped = limit.is_some_and(|limit| earlier + scale_up(matches) >= limit);
                    if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?,
            }
            total.count += scale_up(matches);
            if limit.is_some_and(|limit| total.count >= limit) {
                total.at_least = stopped || number + 1 < plan.shards.len();
                break;
            }
        }
        Ok(total)
    }

    /// Returns the position of every match, per open shard: in [`Mode::Exact`] of the counted
    /// occurrence, in the other modes of the first token. They are in the order of the suffix array,
    /// in [`Mode::Span`] in the order of the text. In [`Mode::Compatible`] several matches may begin
    /// at one position.
    ///
    /// # Errors
    /// Fails as [`Index::count_cnf`] does.
    pub fn find_cnf(&self, cnf: &Cnf, options: &CnfOptions) -> Result<Vec<Vec<u64>>> {
        let Some(plan) = QueryPlan::new(self, cnf, options)? else {
            return Ok(vec![Vec::new(); self.num_shards()]);
        };
        let mut found = Vec::with_capacity(plan.shards.len());
        for shard in &plan.shards {
            let mut starts = Vec::new();
            plan.visit(shard, MatchOrder::Ranks, |range| {
                starts.push(range.left);
                ControlFlow::Continue(())
            })?;
            found.push(starts);
        }
        Ok(found)
    }
}
