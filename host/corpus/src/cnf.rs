//! Counting co-occurrences: AND of ORs of n-grams within a token window.
//!
//! A match starts as one occurrence of the rarest clause, a range of one position, and takes in the nearest occurrence
//! of every further clause ([`crate::join`] has the rule). What is left is counted. ([`crate::span`] has another rule.)

use std::ops::ControlFlow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::boundary::Boundaries;
use crate::cache::ListCache;
use crate::clause::ShardClause;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::join::{Neighbours, Range};
use crate::positions::Positions;
use crate::shard::Shard;
use crate::span;
use crate::zones::{self, Kind, Settled};

/// AND of clauses; a clause is an OR of terms; a term is an n-gram of token ids. Nothing in it is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cnf(Vec<Vec<Vec<u32>>>);

impl Cnf {
    /// Checks that there is a clause, and in each clause a term, and in each term a token.
    ///
    /// # Errors
    /// [`Error::EmptyQuery`] names the part that is empty.
    pub fn new(clauses: Vec<Vec<Vec<u32>>>) -> Result<Self> {
        let empty = |part| Err(Error::EmptyQuery { part });
        if clauses.is_empty() {
            return empty("query");
        }
        if clauses.iter().any(Vec::is_empty) {
            return empty("clause");
        }
        if clauses.iter().flatten().any(Vec::is_empty) {
            return empty("term");
        }
        Ok(Self(clauses))
    }

    /// The clauses.
    pub fn clauses(&self) -> &[Vec<Vec<u32>>] {
        &self.0
    }
}

/// Which numbers [`Index::count_cnf`] gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Bit-equal to the official engine (`infini-gram` 2.6.0): a clause above the cap is cut to a pseudo-random part of its
    /// occurrences and the count scaled up, and a document boundary is two (for u16) adjacent `FF` bytes at any alignment.
    #[default]
    Compatible,
    /// The same ranges, but no clause is ever cut, and a document boundary is a separator token.
    ///
    /// Distances are measured from range to occurrence, from first token to first token, so a match of three clauses can
    /// be twice as long as [`CnfOptions::max_diff_tokens`]. And a match whose clause also occurs within reach in the
    /// neighbouring document is lost.
    Exact,
    /// The shortest stretches of text that hold everything: a match is a run of at most
    /// [`CnfOptions::max_diff_tokens`] tokens of one document, first and last token counted, in which some term of every
    /// clause lies whole, and inside which no shorter run has that property.
    ///
    /// The number depends neither on the order of the clauses nor on how the documents are dealt out to shards, and never
    /// on text further away. `a b a` holds two matches of a AND b; `a a b` one.
    Span,
}

/// The settings of a co-occurrence count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CnfOptions {
    /// Occurrences of a clause, over all shards, above which [`Mode::Compatible`] cuts it. At least 1.
    pub max_clause_freq: u64,
    /// How far the next clause may be from the range so far, in tokens; in [`Mode::Span`] the length of a match. At least 1.
    pub max_diff_tokens: u64,
    /// Which numbers to give.
    pub mode: Mode,
}

/// The paper's settings: 500,000 occurrences, 1,000 tokens, the official engine's numbers.
impl Default for CnfOptions {
    fn default() -> Self {
        Self { max_clause_freq: 500_000, max_diff_tokens: 1_000, mode: Mode::Compatible }
    }
}

/// The answer of [`Index::count_cnf`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CnfCount {
    /// Matches found, scaled up where clauses were cut.
    pub count: u64,
    /// The official engine's flag: the count was scaled. A clause that lost less than half is *not* flagged there.
    pub approx: bool,
    /// Some clause was cut, whether or not the count was scaled for it.
    pub sampled: bool,
    /// The search stopped at `enough`; there may be more matches than `count`.
    pub at_least: bool,
}

impl CnfCount {
    /// Whether `count` is the number of matches, and neither an estimate nor a lower bound.
    pub fn is_exact(&self) -> bool {
        !self.sampled && !self.at_least
    }
}

impl Index {
    /// Counts the matches of a CNF query. With `enough`, the search may stop once the count has reached that number.
    ///
    /// # Errors
    /// Where an option is 0, a token id does not fit the index, or the suffix array is damaged.
    pub fn count_cnf(&self, cnf: &Cnf, options: &CnfOptions, enough: Option<u64>) -> Result<CnfCount> {
        let Some(plan) = Plan::new(self, cnf, options)? else { return Ok(CnfCount::default()) };
        let mut answer = CnfCount {
            approx: plan.shards.iter().any(|clauses| scale(clauses) != 1.0),
            sampled: plan.shards.iter().flatten().any(|clause| clause.sampled),
            ..CnfCount::default()
        };
        let mut unvisited = self.shards.len();
        for (shard, clauses) in self.shards.iter().zip(&plan.shards) {
            unvisited -= 1;
            let scale = scale(clauses);
            let scaled = |matches: u64| (matches as f64 * scale) as u64; // in floating point, as the official engine does
            let order = enough.map_or(Order::Any, Order::Enough);
            let counted = answer.count;
            let is_enough = |matches: u64| enough.is_some_and(|enough| counted + scaled(matches) >= enough);
            let (mut matches, mut stopped) = (0, false);
            if let [only] = clauses.as_slice()
                && options.mode != Mode::Span
            {
                matches = only.num_positions(); // a range of one position crosses no boundary
            } else if let Some(inside) = plan.count_by_zones(shard, clauses, order, is_enough)? {
                matches = inside;
                stopped = inside > 0 && is_enough(inside);
            } else {
                let unseen = plan.visit(shard, clauses, order, |_| {
                    matches += 1;
                    stopped = is_enough(matches);
                    if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                matches += unseen;
            }
            answer.count += scaled(matches);
            if enough.is_some_and(|enough| answer.count >= enough) {
                answer.at_least = stopped || unvisited > 0;
                break;
            }
        }
        Ok(answer)
    }

    /// Counts the matches of many queries: each different one once, and those that begin alike one after the other, as they
    /// read the same parts of the index. The answers are those of [`Index::count_cnf`], in the order of the queries.
    ///
    /// # Errors
    /// As [`Index::count_cnf`], for any of the queries.
    pub fn count_cnf_batch(&self, queries: &[Cnf], options: &CnfOptions, enough: Option<u64>) -> Result<Vec<CnfCount>> {
        let mut order: Vec<usize> = (0..queries.len()).collect();
        order.sort_unstable_by(|&a, &b| queries[a].0.cmp(&queries[b].0));
        let mut counts = vec![CnfCount::default(); queries.len()];
        for alike in order.chunk_by(|&a, &b| queries[a] == queries[b]) {
            let count = self.count_cnf(&queries[alike[0]], options, enough)?;
            alike.iter().for_each(|&number| counts[number] = count);
        }
        Ok(counts)
    }

    /// Where the matches begin: per shard the first token of every match, in the order of the suffix array, or in
    /// [`Mode::Span`] of the text. Except there, one place may begin several matches.
    ///
    /// # Errors
    /// As [`Index::count_cnf`].
    pub fn find_cnf(&self, cnf: &Cnf, options: &CnfOptions) -> Result<Vec<Vec<u64>>> {
        let Some(plan) = Plan::new(self, cnf, options)? else { return Ok(vec![Vec::new(); self.shards.len()]) };
        let find = |(shard, clauses): (&Shard, &Vec<ShardClause>)| {
            let mut starts = Vec::new();
            plan.visit(shard, clauses, Order::Ranks, |range| {
                starts.push(range.left);
                ControlFlow::Continue(())
            })?;
            Ok(starts)
        };
        self.shards.iter().zip(&plan.shards).map(find).collect()
    }
}

/// By how much a shard's matches are multiplied.
fn scale(clauses: &[ShardClause]) -> f64 {
    clauses.iter().map(|clause| clause.factor as f64).product()
}

/// A query with its terms found: for each shard the clauses, rarest first.
struct Plan<'a> {
    /// The terms of each clause as bytes of the stream.
    terms: Vec<Vec<Vec<u8>>>,
    shards: Vec<Vec<ShardClause>>,
    lists: &'a ListCache,
    options: &'a CnfOptions,
}

impl<'a> Plan<'a> {
    /// `None` where some clause occurs in no shard at all.
    fn new(index: &'a Index, cnf: &Cnf, options: &'a CnfOptions) -> Result<Option<Self>> {
        for (option, value) in
            [("max_clause_freq", options.max_clause_freq), ("max_diff_tokens", options.max_diff_tokens)]
        {
            if value == 0 {
                return Err(Error::Option { option, got: value, expected: "at least 1" });
            }
        }
        let encode = |clause: &Vec<Vec<u32>>| clause.iter().map(|term| index.encode(term)).collect::<Result<Vec<_>>>();
        let terms = cnf.0.iter().map(encode).collect::<Result<Vec<_>>>()?;

        let mut shards: Vec<Vec<ShardClause>> = index.shards.iter().map(|_| Vec::with_capacity(terms.len())).collect();
        for (number, terms) in terms.iter().enumerate() {
            let mut occurrences = 0;
            for (shard, clauses) in index.shards.iter().zip(&mut shards) {
                let clause = ShardClause::find(shard, number, terms)?;
                occurrences += clause.count;
                clauses.push(clause);
            }
            if occurrences == 0 {
                return Ok(None);
            }
        }
        let cap = options.max_clause_freq.div_ceil(shards.len() as u64);
        for clauses in &mut shards {
            if options.mode == Mode::Compatible {
                clauses.iter_mut().for_each(|clause| clause.sample(cap));
            }
            // Stable: the official engine leaves up to 16 equally frequent clauses in the order given.
            clauses.sort_by_key(|clause| clause.count);
        }
        Ok(Some(Self { terms, shards, lists: &index.lists, options }))
    }

    /// The matches of two clauses in a shard, all of them or until they are enough, where that is the cheapest way.
    fn count_by_zones(
        &self,
        shard: &Shard,
        clauses: &[ShardClause],
        order: Order,
        is_enough: impl Fn(u64) -> bool,
    ) -> Result<Option<u64>> {
        let [rarer, other] = clauses else { return Ok(None) };
        if self.options.mode == Mode::Span || rarer.num_positions() <= WORTH_SORTING {
            return Ok(None);
        }
        // A search that may stop tells afterwards what it has lost.
        let searches = if order == Order::Any { rarer.num_positions() } else { 0 };
        let Some(bounds) = zones::of(shard, other, Kind::Matching, self.options, self.lists, searches)? else {
            return Ok(None);
        };
        if order == Order::Any {
            return Ok(Some(zones::count_inside(&bounds, &*self.lists.list(shard, rarer)?)));
        }
        let mut starts = Starts::new(shard, rarer, self.lists, order)?;
        let (mut ranges, mut matches) = (Vec::new(), 0);
        while starts.next_block(&mut ranges)? {
            for _ in ranges.drain(..).filter(|range| zones::hold(&bounds, range.left)) {
                matches += 1;
                if is_enough(matches) {
                    return Ok(Some(matches));
                }
            }
        }
        Ok(Some(matches))
    }

    /// Shows the matches in a shard to `visit`, until that breaks. Where their order does not matter, some are only counted: the
    /// number returned.
    fn visit(
        &self,
        shard: &Shard,
        clauses: &[ShardClause],
        order: Order,
        mut visit: impl FnMut(Range) -> ControlFlow<()>,
    ) -> Result<u64> {
        if self.options.mode == Mode::Span {
            let window = self.options.max_diff_tokens;
            return span::visit(shard, clauses, &self.terms, self.lists, window, &mut visit).map(|()| 0);
        }
        let Some((rarest, further)) = clauses.split_first() else { return Ok(0) };
        // All ranges reach the second clause, unless the search stops before; how many go on is not known.
        let mut ranges = order.enough().is_none().then_some(rarest.num_positions());
        let mut neighbours = Vec::with_capacity(further.len());
        for clause in further {
            let terms = &self.terms[clause.number];
            let reach = self.options.max_diff_tokens;
            neighbours.push(Neighbours::new(shard, clause, terms, self.lists, reach, ranges.take())?);
        }
        let mut starts = Starts::new(shard, rarest, self.lists, order)?;
        let boundaries = match starts.source {
            Source::Text(_) => Boundaries::list(shard, self.options.mode, self.lists)?,
            Source::Ranks => Boundaries::scan(shard, self.options.mode),
        };
        let settled = match starts.source {
            Source::Text(_) if order == Order::Any => {
                Settled::new(shard, further, self.options, self.lists, rarest.num_positions())?
            }
            _ => None,
        };
        let mut unseen = 0;
        // A block of ranges at a time through all clauses. Ranges never meet, and so the search can stop after any block.
        let (mut ranges, mut longer) = (Vec::new(), Vec::new());
        'blocks: while starts.next_block(&mut ranges)? {
            if let Some(settled) = &settled {
                unseen += settled.settle(&mut ranges);
            }
            for neighbours in &mut neighbours {
                neighbours.extend(&ranges, &mut longer)?;
                std::mem::swap(&mut ranges, &mut longer);
                longer.clear();
            }
            boundaries.keep_whole(&ranges, &mut longer);
            ranges.clear();
            for range in longer.drain(..) {
                if visit(range).is_break() {
                    break 'blocks;
                }
            }
        }
        if let (Order::Enough(_), [other]) = (order, further) {
            zones::lose(shard, other, self.options.max_diff_tokens, self.lists, starts.done as u64);
        }
        Ok(unseen)
    }
}

/// In which order matches are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Any, and all of them: then ranges are taken as they lie in the text, which is kinder to the caches.
    Any,
    /// That of the suffix array.
    Ranks,
    /// Any, and the search will stop after so many.
    Enough(u64),
}

impl Order {
    fn enough(self) -> Option<u64> {
        if let Self::Enough(enough) = self { Some(enough) } else { None }
    }
}

/// The positions of the rarest clause, block by block.
struct Starts<'a> {
    shard: &'a Shard,
    source: Source,
    clause: &'a ShardClause,
    /// How many have been handed out.
    done: usize,
    block: usize,
}

enum Source {
    /// As they lie in the text.
    Text(Arc<Positions>),
    Ranks,
}

impl<'a> Starts<'a> {
    fn new(shard: &'a Shard, clause: &'a ShardClause, lists: &ListCache, order: Order) -> Result<Self> {
        let source = match order {
            Order::Any if clause.num_positions() > WORTH_SORTING => Source::Text(lists.list(shard, clause)?),
            Order::Any | Order::Ranks => Source::Ranks,
            Order::Enough(_) => lists.known(shard, clause).map_or(Source::Ranks, Source::Text),
        };
        // Where every range is a match, the first block is all that is needed.
        let block = order.enough().map_or(MAX_BLOCK, |enough| enough.clamp(1, MAX_BLOCK as u64) as usize);
        Ok(Self { shard, source, clause, done: 0, block })
    }

    /// Fills an empty block; `false` where no positions are left.
    fn next_block(&mut self, ranges: &mut Vec<Range>) -> Result<bool> {
        let end = (self.clause.num_positions() as usize).min(self.done + self.block);
        match &self.source {
            Source::Text(positions) => ranges.extend((self.done..end).map(|index| Range::at(positions.get(index)))),
            Source::Ranks => {
                for rank in self.clause.ranks().skip(self.done).take(end - self.done) {
                    ranges.push(Range::at(self.shard.position(rank)?));
                }
            }
        }
        self.done = end;
        self.block = MAX_BLOCK.min(2 * self.block);
        Ok(!ranges.is_empty())
    }
}

/// The number of ranges from which on it pays to sort them.
const WORTH_SORTING: u64 = 256;
/// Ranges that go through the clauses together: few enough to stay in the first-level cache.
const MAX_BLOCK: usize = 1_024;
