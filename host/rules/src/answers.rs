//! What the corpus has answered in a batch. Each query goes there once.

use std::hash::BuildHasher;

use corver_core::{Count, Counter, Query, Verdict};
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::judge::Stop;
use crate::{Fault, Limits};

/// A question of a sentence.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) sentence: usize,
    /// Where its answer is.
    pub(crate) place: usize,
}

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

    /// Makes room for so many queries more.
    pub(crate) fn reserve(&mut self, queries: usize) {
        self.new.reserve(queries);
        self.places.reserve(queries, |&(hash, _)| hash);
    }

    /// The answers to these, in order.
    pub(crate) fn to(&self, asked: &[Asked]) -> impl ExactSizeIterator<Item = &Count> {
        asked.iter().map(|asked| &self.counts[asked.place])
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

    /// Gives each verdict the counts that its sentence asked for, each once, in the order asked.
    pub(crate) fn hand_out(self, mut asked: Vec<Asked>, verdicts: &mut [Verdict]) {
        asked.sort_by_key(|asked| asked.sentence);
        let mut once: Vec<Asked> = Vec::with_capacity(asked.len());
        for new in asked {
            let before = once.iter().rev().take_while(|asked| asked.sentence == new.sentence);
            if before.map(|asked| asked.place).all(|place| place != new.place) {
                once.push(new);
            }
        }
        let mut askers = vec![0; self.counts.len()];
        once.iter().for_each(|asked| askers[asked.place] += 1);
        let mut counts: Vec<Option<Count>> = self.counts.into_iter().map(Some).collect();
        let mut hand = |asked: &Asked| {
            askers[asked.place] -= 1;
            let count = &mut counts[asked.place];
            // Most have one asker, who gets it without a copy.
            if askers[asked.place] == 0 { count.take() } else { count.clone() }.expect("the last asker takes it")
        };
        for asked in once.chunk_by(|a, b| a.sentence == b.sentence) {
            verdicts[asked[0].sentence].counts = asked.iter().map(&mut hand).collect();
        }
    }
}
