//! The corpus as a rule sees it: the counts that the host has looked up so far.

use std::cell::Cell;

use crate::{CorpusSize, Count, Query, Sentence};

/// Answers a sentence's questions with the counts so far, in order: the first count is the answer to the first question. A
/// question beyond them becomes an [`Ask`].
///
/// A rule starts over whenever more counts are there, so what it asks may depend on its sentence and on the answers to
/// earlier questions alone. Tests that run it with [`crate::testing`] panic where it asks something else than before.
#[derive(Debug, Clone)]
pub struct Corpus<'a> {
    size: CorpusSize,
    counts: Cell<&'a [Count]>,
    /// What was asked for `counts`, where that is known: in tests.
    queries: Cell<&'a [Query]>,
}

/// The counts that a rule still needs. The host looks them up and calls the rule again.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask(pub Vec<Query>);

impl<'a> Corpus<'a> {
    /// A corpus of this size that answers from these counts.
    #[must_use]
    pub fn new(size: CorpusSize, counts: &'a [Count]) -> Self {
        Self::recorded(size, counts, &[])
    }

    /// Panics where the counts are taken for answers to anything else than `queries`.
    pub(crate) fn recorded(size: CorpusSize, counts: &'a [Count], queries: &'a [Query]) -> Self {
        Self { size, counts: Cell::new(counts), queries: Cell::new(queries) }
    }

    /// How many tokens the counts come from; `None` where the source does not say: a server, for example.
    #[must_use]
    pub fn tokens(&self) -> Option<u64> {
        self.size.tokens
    }

    /// How many documents the counts come from; `None` where the source does not say.
    #[must_use]
    pub fn documents(&self) -> Option<u64> {
        self.size.documents
    }

    /// How often `query` matches; `None` where the corpus cannot answer it.
    ///
    /// # Errors
    /// [`Ask`] where it has not been looked up yet.
    pub fn count(&self, query: Query) -> Result<Option<u64>, Ask> {
        self.answer(query).map(|count| count.occurrences).map_err(|query| Ask(vec![query]))
    }

    /// One count per query, in order; all that is missing is asked for at once, which spares rounds.
    ///
    /// # Errors
    /// [`Ask`] where some have not been looked up yet.
    pub fn count_all(&self, queries: impl IntoIterator<Item = Query>) -> Result<Vec<Option<u64>>, Ask> {
        let (mut counts, mut missing) = (Vec::new(), Vec::new());
        for query in queries {
            match self.answer(query) {
                Ok(count) => counts.push(count.occurrences),
                Err(query) => missing.push(query),
            }
        }
        if missing.is_empty() { Ok(counts) } else { Err(Ask(missing)) }
    }

    /// The facts of `sentence` that the corpus can count: the index of each valid triplet and its count, in the
    /// extractor's order, all asked for at once. Triplets without a query, and counts that the corpus does not know, are
    /// left out; counts from `enough` on need not be told apart.
    ///
    /// # Errors
    /// [`Ask`] where some have not been looked up yet.
    pub fn count_facts(&self, sentence: &Sentence, enough: u64) -> Result<Vec<(usize, u64)>, Ask> {
        let (places, queries): (Vec<usize>, Vec<Query>) = sentence
            .valid_triplets()
            .filter_map(|(place, triplet)| Some((place, triplet.word_query()?.enough(enough))))
            .unzip();
        let counts = self.count_all(queries)?;
        Ok(places.into_iter().zip(counts).filter_map(|(place, count)| Some((place, count?))).collect())
    }

    /// The answer to the next question, which is `query`, or else the question.
    fn answer(&self, query: Query) -> Result<&'a Count, Query> {
        let Some((count, rest)) = self.counts.get().split_first() else { return Err(query) };
        self.counts.set(rest);
        if let Some((asked, rest)) = self.queries.get().split_first() {
            assert_eq!(query, *asked, "called again, the rule asks something else than before");
            self.queries.set(rest);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: CorpusSize = CorpusSize { tokens: None, documents: None };

    fn count(occurrences: Option<u64>) -> Count {
        Count { occurrences, exact: true }
    }

    #[test]
    fn questions_are_answered_in_order_and_the_rest_is_asked_for_at_once() {
        let [paris, peru, rome] = ["Paris", "Peru", "Rome"].map(|word| Query::all_of([word]));
        let counts = [count(None), count(Some(3))];
        let corpus = Corpus::new(NOWHERE, &counts);
        assert_eq!(corpus.count(paris.clone()), Ok(None));
        assert_eq!(corpus.count(peru.clone()), Ok(Some(3)));
        assert_eq!(corpus.count(rome.clone()), Err(Ask(vec![rome.clone()])));
        let corpus = Corpus::new(NOWHERE, &counts[..1]);
        let asked = corpus.count_all([paris, peru.clone(), rome.clone()]);
        assert_eq!(asked, Err(Ask(vec![peru, rome])));
    }

    #[test]
    #[should_panic(expected = "asks something else than before")]
    fn another_question_than_before_is_found_in_tests() {
        let [paris, peru] = ["Paris", "Peru"].map(|word| Query::all_of([word]));
        let _ = Corpus::recorded(NOWHERE, &[count(None)], &[paris]).count(peru);
    }

    #[test]
    fn facts_without_a_known_count_are_left_out() {
        let film = [("It", "is", "Rome"), ("Rome", "is", "rome"), ("Rome", "in", "Italy"), ("Rome", "in", "Peru")];
        let sentence = crate::testing::sentence("Rome is in Italy.", &film);
        let [italy, peru] = ["Italy", "Peru"].map(|word| Query::all_of(["Rome", word]).enough(20));
        assert_eq!(Corpus::new(NOWHERE, &[]).count_facts(&sentence, 20), Err(Ask(vec![italy, peru])));
        let counts = [count(None), count(Some(3))];
        assert_eq!(Corpus::new(NOWHERE, &counts).count_facts(&sentence, 20), Ok(vec![(3, 3)]));
    }
}
