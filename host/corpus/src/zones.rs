//! Matches counted without looking at them.
//!
//! Of two clauses, whether an occurrence of the rarer one is a match depends only on where it stands: it is one, or none,
//! together with the places around it. The frequent clause and the documents divide the text into zones of places that match and
//! places that do not, often one zone per document. Zones are kept like sorted lists, and a pair then costs one
//! search per occurrence, without ranges and boundaries.
//!
//! Of more clauses the zones of the second tell which occurrences are no match, whatever comes after. And the places between two
//! neighbours of a further clause take that clause in for certain where both lie in the same document and one within reach: a
//! range is never less than its occurrence. Only what neither of the two settles becomes a range.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::boundary;
use crate::cache::ListCache;
use crate::clause::ShardClause;
use crate::cnf::CnfOptions;
use crate::error::Result;
use crate::join::Range;
use crate::positions::Positions;
use crate::shard::Shard;

/// Which zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Those where a range of one position takes the clause in without crossing into another document.
    Matching,
    /// Those where any range does, if it has not crossed before.
    Enclosed,
}

/// What a search among the zones saves, and what dividing the text costs for each position: prices as in [`crate::join`].
const SAVED: u64 = 150;
const DIVIDE_COST: u64 = 60;

/// A clause's zones, if they are kept already or now paid for by what queries would have saved with them: `searches` is how
/// many searches this one would make.
pub(crate) fn of(
    shard: &Shard,
    clause: &ShardClause,
    kind: Kind,
    options: &CnfOptions,
    lists: &ListCache,
    searches: u64,
) -> Result<Option<Arc<Positions>>> {
    let reach = options.max_diff_tokens;
    let zones = (kind, reach);
    if let Some(bounds) = lists.known_zones(shard, clause, zones) {
        return Ok(Some(bounds));
    }
    let (Some(losses), Some(positions)) = (lists.losses(shard, clause, Some(zones)), lists.known(shard, clause)) else {
        return Ok(None);
    };
    let loses = searches * SAVED;
    let lost = losses.fetch_add(loses, Relaxed) + loses;
    let Some(documents) = boundary::documents(shard, options.mode, lists)? else { return Ok(None) };
    if lost < (clause.num_positions() + shard.num_documents()) * DIVIDE_COST {
        return Ok(None);
    }
    losses.store(0, Relaxed);
    let bounds = match kind {
        Kind::Matching => matching(&positions, &documents, reach, shard.num_tokens),
        Kind::Enclosed => enclosed(&positions, &documents, reach),
    };
    let bounds = Arc::new(Positions::new(bounds, shard.num_tokens + 1));
    lists.keep_zones(shard, clause, zones, bounds.clone());
    Ok(Some(bounds))
}

/// Remembers that a query would have made so many searches among the matching zones of this reach, which were not there.
pub(crate) fn lose(shard: &Shard, clause: &ShardClause, reach: u64, lists: &ListCache, searches: u64) {
    if let Some(losses) = lists.losses(shard, clause, Some((Kind::Matching, reach))) {
        losses.fetch_add(searches * SAVED, Relaxed);
    }
}

/// What is known of a query's matches before any range has grown.
pub(crate) struct Settled {
    /// Of the second clause: what begins elsewhere is no match.
    matching: Arc<Positions>,
    /// Of each further one: what begins in all of them, and in `matching`, is a match.
    enclosed: Vec<Arc<Positions>>,
}

impl Settled {
    /// `None` where zones are missing, or would settle little for what they take: where occurrences lie further apart than the
    /// reach, there are as many zones as occurrences.
    pub(crate) fn new(
        shard: &Shard,
        further: &[ShardClause],
        options: &CnfOptions,
        lists: &ListCache,
        searches: u64,
    ) -> Result<Option<Self>> {
        let Some((second, others)) = further.split_first() else { return Ok(None) };
        let is_coarse =
            |clause: &ShardClause| clause.num_positions().saturating_mul(options.max_diff_tokens) >= shard.num_tokens;
        if !further.iter().all(is_coarse) {
            return Ok(None);
        }
        let Some(matching) = of(shard, second, Kind::Matching, options, lists, searches)? else { return Ok(None) };
        let mut enclosed = Vec::with_capacity(others.len());
        for clause in others {
            enclosed.extend(of(shard, clause, Kind::Enclosed, options, lists, searches)?);
        }
        Ok((enclosed.len() == others.len()).then_some(Self { matching, enclosed }))
    }

    /// Takes from some ranges of one position each those that need not grow, and tells how many of them are matches.
    pub(crate) fn settle(&self, ranges: &mut Vec<Range>) -> u64 {
        keep(ranges, |range| hold(&self.matching, range.left));
        let possible = ranges.len();
        keep(ranges, |range| !self.enclosed.iter().fold(true, |certain, zones| certain & hold(zones, range.left)));
        (possible - ranges.len()) as u64
    }
}

/// `Vec::retain` without a branch: which ranges are kept cannot be predicted.
fn keep(ranges: &mut Vec<Range>, wanted: impl Fn(Range) -> bool) {
    let mut kept = 0;
    for index in 0..ranges.len() {
        let range = ranges[index];
        ranges[kept] = range;
        kept += usize::from(wanted(range));
    }
    ranges.truncate(kept);
}

/// Divides a text of `num_tokens` by the rule of [`crate::join`], for one clause's positions and the starts of the
/// documents: where the first zone of matches begins, where it ends, where the second begins, and so on.
fn matching(positions: &Positions, documents: &Positions, reach: u64, num_tokens: u64) -> Vec<u64> {
    let mut bounds = Vec::new();
    let mut add = |from: u64, to: u64| add(&mut bounds, from, to);
    let (mut before, mut number) = (None, 0); // of the first document that starts at `before` or after it
    for after in positions.iter().map(Some).chain([None]) {
        // Between two neighbours everything has these two: `from` itself follows `before`, `to` follows `after`.
        let (from, to) = (before.map_or(0, |before| before + 1), after.map_or(num_tokens, |after| after + 1));
        let before_reaches_to = before.map_or(from, |before: u64| to.min((before + 1).saturating_add(reach)));
        let after_reaches_from = after.map_or(to, |after| from.max(after.saturating_sub(reach)));

        let next_document = (number < documents.len()).then(|| documents.get(number));
        while number < documents.len() && documents.get(number) < to - u64::from(after.is_some()) {
            number += 1;
        }
        let document = number.checked_sub(1).map(|last| documents.get(last)); // that `after` lies in, or begins

        // In reach of `before` alone: a match up to the next document's separator.
        let same_document_to = next_document.map_or(u64::MAX, |start| start + 1);
        add(from, before_reaches_to.min(after_reaches_from).min(same_document_to));
        // In reach of both: a match if no document begins between the two.
        if next_document.is_none_or(|start| after.is_some_and(|after| start >= after)) {
            add(after_reaches_from, before_reaches_to);
        }
        // In reach of `after` alone.
        let same_document_from = document.map_or(0, |start| start + 1);
        add(after_reaches_from.max(before_reaches_to).max(same_document_from), to);
        before = after.or(before);
    }
    bounds
}

/// The bounds of the places that lie between two neighbours of one document, of which one is within reach.
fn enclosed(positions: &Positions, documents: &Positions, reach: u64) -> Vec<u64> {
    let mut bounds = Vec::new();
    let mut number = 0; // of the first document that starts at `before` or after it
    for (before, after) in positions.iter().zip(positions.iter().skip(1)) {
        while number < documents.len() && documents.get(number) < before {
            number += 1;
        }
        if number < documents.len() && documents.get(number) < after {
            continue;
        }
        // `before` itself lies between the neighbours before it.
        let before_reaches_to = (before + 1).saturating_add(reach).min(after + 1);
        let after_reaches_from = after.saturating_sub(reach).max(before_reaches_to);
        add(&mut bounds, before + 1, before_reaches_to);
        add(&mut bounds, after_reaches_from, after + 1);
    }
    bounds
}

/// Adds the zone `[from, to)`, if there is anything in it, to zones that lie before it.
fn add(bounds: &mut Vec<u64>, from: u64, to: u64) {
    if from < to {
        if bounds.last() == Some(&from) {
            bounds.pop();
        } else {
            bounds.push(from);
        }
        bounds.push(to);
    }
}

/// Whether a place lies in a zone: there an odd number of bounds has been passed.
pub(crate) fn hold(bounds: &Positions, place: u64) -> bool {
    bounds.first_at_or_after(place + 1) % 2 == 1
}

/// How many of some positions lie in zones of matches.
pub(crate) fn count_inside(bounds: &Positions, positions: &Positions) -> u64 {
    if positions.len() < bounds.len() {
        return positions.iter().map(|position| u64::from(hold(bounds, position))).sum();
    }
    let before = |bound: usize| positions.first_at_or_after(bounds.get(bound)) as u64;
    (0..bounds.len() / 2).map(|zone| before(2 * zone + 1) - before(2 * zone)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::Range;

    #[test]
    fn zones_end_with_the_reach_and_with_the_document() {
        // Documents at 0, 20 and 40; the clause at 5, 8, 17, 30 and 42.
        let positions = Positions::new(vec![5, 8, 17, 30, 42], 60);
        let documents = Positions::new(vec![0, 20, 40], 60);
        let zones = |reach| matching(&positions, &documents, reach, 60);
        assert_eq!(zones(1), [4, 10, 16, 19, 29, 32, 41, 44]);
        // 18 to 20 reach 17 alone and lie in its document, of which 20 is the separator; 22 to 24 are out of reach.
        assert_eq!(zones(4), [1, 21, 26, 35, 41, 47]);
        // Everything between 17 and 30 is in reach of both, and a document begins between these.
        assert_eq!(zones(100), [1, 18, 43, 60]);
        assert!(matching(&Positions::new(Vec::new(), 60), &documents, 9, 60).is_empty());
    }

    #[test]
    fn zones_hold_what_the_rule_for_ranges_lets_through() {
        let mut state = 3_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2_000 {
            let mut ascending = |length: u64| {
                let mut list: Vec<u64> = (0..draw(length)).map(|_| draw(100)).collect(); // some of them twice
                list.sort_unstable();
                Positions::new(list, 100)
            };
            let (positions, documents) = (ascending(20), ascending(6));
            let reach = draw(30);
            let bounds = Positions::new(matching(&positions, &documents, reach, 100), 101);
            for start in (0..100).map(Range::at) {
                let mut matches = false;
                positions.around(&[start], |range, before, after| {
                    let (range, reaches) = range.with(before, after, reach);
                    let whole = !documents.iter().any(|document| (range.left..range.right).contains(&document));
                    matches = reaches && whole;
                });
                assert_eq!(hold(&bounds, start.left), matches, "{start:?} {reach} {positions:?} {documents:?}");
            }
        }
    }

    #[test]
    fn whatever_has_grown_around_an_enclosed_place_takes_the_clause_in() {
        let documents = Positions::new(vec![0, 20, 40], 60);
        let positions = Positions::new(vec![5, 8, 8, 17, 30, 42, 58], 60);
        assert_eq!(enclosed(&positions, &documents, 100), [6, 18, 43, 59]);
        // The document at 20 holds one occurrence; 47 to 52 are further than 4 tokens from both neighbours.
        assert_eq!(enclosed(&positions, &documents, 4), [6, 18, 43, 47, 54, 59]);
        for reach in [1, 3, 4, 9, 100] {
            let bounds = Positions::new(enclosed(&positions, &documents, reach), 60);
            for place in (0..60).filter(|&place| hold(&bounds, place)) {
                let is_whole =
                    |range: &Range| !documents.iter().any(|start| (range.left..range.right).contains(&start));
                let around = (0..=place).flat_map(|left| (place..60).map(move |right| Range { left, right }));
                let around: Vec<Range> = around.filter(is_whole).collect();
                positions.around(&around, |range, before, after| {
                    let (longer, reaches) = range.with(before, after, reach);
                    assert!(reaches && is_whole(&longer), "{range:?} around {place}, {reach}");
                });
            }
        }
    }

    #[test]
    fn positions_are_counted_between_a_bound_and_the_next() {
        let bounds = Positions::new(vec![3, 7, 9, 10], 60);
        let count = |positions: &[u64]| count_inside(&bounds, &Positions::new(positions.to_vec(), 60));
        assert_eq!(count(&[2, 3, 3, 6, 7, 8, 9, 10, 50]), 4);
        assert_eq!([count(&[2, 3]), count(&[6, 7, 9]), count(&[10]), count(&[])], [1, 2, 0, 0]);
    }
}
