//! What the corpus has answered in a batch. Each query goes there once.

use std::hash::BuildHasher;

use corver_core::{Count, Counter, Query, Verdict};
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::judge::Stop;
use crate::{Fault, Limits};

#[derive(Default)]
pub(crate) struct Answers {
    counts: Vec<Count>,
    /// Asked, and not looked up yet: their places follow those of `counts`.
    new: Vec<Query>,
    /// Hash of a query, and its place.
    places: HashTable<(u64, usize)>,
    hasher: DefaultHashBuilder,
}

impl Answers {
    /// Where the answer to `query` is, or will be after [`Self::look_up`].
    pub(crate) fn place_of(&mut self, query: Query) -> usize {
        let Self { counts, new, places, hasher } = self;
        let hash = hasher.hash_one(&query);
        let at = |place: usize| counts.get(place).map_or_else(|| &new[place - counts.len()], |count| &count.query);
        match places.entry(hash, |&(known, place)| known == hash && *at(place) == query, |&(hash, _)| hash) {
            Entry::Occupied(known) => known.get().1,
            Entry::Vacant(vacant) => {
                let place = counts.len() + new.len();
                vacant.insert((hash, place));
                new.push(query);
                place
            }
        }
    }

    /// The answers at these places.
    pub(crate) fn at(&self, places: &[usize]) -> impl ExactSizeIterator<Item = &Count> {
        places.iter().map(|&place| &self.counts[place])
    }

    pub(crate) fn look_up<E>(&mut self, limits: &Limits, counter: &mut dyn Counter) -> Result<(), Stop<E>> {
        let (limit, got) = (limits.queries_per_batch, self.places.len());
        if got > limit {
            return Err(Stop::Fault(Fault::BatchQueries { limit, got }));
        }
        if self.new.is_empty() {
            return Ok(());
        }
        let counts = counter.count(&self.new).map_err(Stop::Counter)?;
        if counts.len() != self.new.len() {
            return Err(Stop::Answers { expected: self.new.len(), got: counts.len() });
        }
        // Under the query as the rule put it: that is what traces show.
        self.counts.extend(self.new.drain(..).zip(counts).map(|(query, count)| Count { query, ..count }));
        Ok(())
    }

    /// Gives each verdict the counts that its sentence asked for, each once.
    pub(crate) fn hand_out(self, mut asked: Vec<Vec<usize>>, verdicts: &mut [Verdict]) {
        asked.iter_mut().for_each(drop_repetitions);
        let mut askers = vec![0; self.counts.len()];
        asked.iter().flatten().for_each(|&place| askers[place] += 1);
        let mut counts: Vec<Option<Count>> = self.counts.into_iter().map(Some).collect();
        for (verdict, asked) in verdicts.iter_mut().zip(asked) {
            let hand = |place: usize| {
                askers[place] -= 1;
                let count = &mut counts[place];
                // Most have one asker, who gets it without a copy.
                if askers[place] == 0 { count.take() } else { count.clone() }
            };
            verdict.counts = asked.into_iter().filter_map(hand).collect();
        }
    }
}

/// Keeps the first of what is the same.
fn drop_repetitions(places: &mut Vec<usize>) {
    let mut kept = 0;
    for i in 0..places.len() {
        if !places[..kept].contains(&places[i]) {
            places[kept] = places[i];
            kept += 1;
        }
    }
    places.truncate(kept);
}
