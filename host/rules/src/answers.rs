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

/// What the corpus says about a query.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) occurrences: Option<u64>,
    pub(crate) exact: bool,
}

#[derive(Default)]
pub(crate) struct Answers {
    queries: Vec<Query>,
    /// To the first of them; the others have not been looked up yet.
    answers: Vec<Answer>,
    /// Hash of a query, and its place.
    places: HashTable<(u64, usize)>,
    hasher: DefaultHashBuilder,
}

impl Answers {
    /// Makes room for so many queries more, at least.
    pub(crate) fn reserve(&mut self, queries: usize) {
        self.queries.reserve(queries);
        self.places.reserve(queries, |&(hash, _)| hash);
    }

    /// Where the answer to `query` is, or will be after [`Self::look_up`].
    pub(crate) fn place_of(&mut self, query: Query) -> usize {
        let Self { queries, places, hasher, .. } = self;
        let hash = hasher.hash_one(&query);
        let same = |&(known, place): &(u64, usize)| known == hash && queries[place] == query;
        match places.entry(hash, same, |&(hash, _)| hash) {
            Entry::Occupied(known) => known.get().1,
            Entry::Vacant(vacant) => {
                let place = queries.len();
                vacant.insert((hash, place));
                queries.push(query);
                place
            }
        }
    }

    /// The answers to these, in order.
    pub(crate) fn to(&self, asked: &[Asked]) -> impl ExactSizeIterator<Item = Answer> {
        asked.iter().map(|asked| self.answers[asked.place])
    }

    pub(crate) fn look_up<E>(&mut self, limits: &Limits, counter: &mut dyn Counter) -> Result<(), Stop<E>> {
        let (limit, got) = (limits.queries_per_batch, self.queries.len());
        if got > limit {
            return Err(Stop::Fault(Fault::BatchQueries { limit, got }));
        }
        let new = &self.queries[self.answers.len()..];
        if new.is_empty() {
            return Ok(());
        }
        let counts = counter.count(new).map_err(Stop::Counter)?;
        if counts.len() != new.len() {
            return Err(Stop::Answers { expected: new.len(), got: counts.len() });
        }
        let answer = |Count { occurrences, exact, .. }| Answer { occurrences, exact };
        self.answers.extend(counts.into_iter().map(answer));
        Ok(())
    }

    /// Gives each verdict the counts that its sentence asked for, each once, in the order asked, under the query as the rule
    /// put it: that is what traces show.
    pub(crate) fn hand_out(self, mut asked: Vec<Asked>, verdicts: &mut [Verdict]) {
        // Stable: each sentence's stay in the order asked.
        asked.sort_by_key(|asked| asked.sentence);
        let mut once: Vec<Asked> = Vec::with_capacity(asked.len());
        for new in asked {
            let before = once.iter().rev().take_while(|asked| asked.sentence == new.sentence);
            if before.map(|asked| asked.place).all(|place| place != new.place) {
                once.push(new);
            }
        }
        let mut askers = vec![0; self.queries.len()];
        once.iter().for_each(|asked| askers[asked.place] += 1);
        let mut queries: Vec<Option<Query>> = self.queries.into_iter().map(Some).collect();
        let mut count = |asked: &Asked| {
            let query = &mut queries[asked.place];
            askers[asked.place] -= 1;
            // Most have one asker, who gets it without a copy.
            let query = if askers[asked.place] == 0 { query.take() } else { query.clone() };
            let Answer { occurrences, exact } = self.answers[asked.place];
            Count { query: query.expect("the last asker takes it"), occurrences, exact }
        };
        for asked in once.chunk_by(|a, b| a.sentence == b.sentence) {
            verdicts[asked[0].sentence].counts = asked.iter().map(&mut count).collect();
        }
    }
}
