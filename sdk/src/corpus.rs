//! The corpus as a rule sees it: the counts that the host has looked up so far.

use crate::{Count, Query, Sentence};

/// Answers what is already known; everything else becomes an [`Ask`].
#[derive(Debug, Clone, Copy)]
pub struct Corpus<'a> {
    known: &'a [Count],
}

/// The counts that a rule still needs. The host looks them up and calls the rule again.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask(pub Vec<Query>);

impl<'a> Corpus<'a> {
    /// Answers from these counts.
    #[must_use]
    pub fn new(known: &'a [Count]) -> Self {
        Self { known }
    }

    /// How often `query` matches; `None` where the index cannot tell.
    ///
    /// # Errors
    /// [`Ask`] where it has not been looked up yet.
    pub fn count(&self, query: &Query) -> Result<Option<u64>, Ask> {
        self.find(query).map(|count| count.occurrences).ok_or_else(|| Ask(vec![query.clone()]))
    }

    /// One count per query, in order; all that is missing is asked for at once, which spares rounds.
    ///
    /// # Errors
    /// [`Ask`] where some have not been looked up yet.
    pub fn count_all(&self, queries: &[Query]) -> Result<Vec<Option<u64>>, Ask> {
        let missing: Vec<Query> = queries.iter().filter(|query| self.find(query).is_none()).cloned().collect();
        if !missing.is_empty() {
            return Err(Ask(missing));
        }
        queries.iter().map(|query| self.count(query)).collect()
    }

    /// The facts of `sentence` that the corpus can count: the place of each valid triplet and its count, in the
    /// extractor's order, all asked for at once. Triplets without a query, and counts that the index does not know, are
    /// left out; counts from `enough` on need not be told apart.
    ///
    /// # Errors
    /// [`Ask`] where some have not been looked up yet.
    pub fn count_facts(&self, sentence: &Sentence, enough: u64) -> Result<Vec<(usize, u64)>, Ask> {
        let (places, queries): (Vec<usize>, Vec<Query>) = sentence
            .valid_triplets()
            .filter_map(|(place, triplet)| Some((place, triplet.word_query()?.enough(enough))))
            .unzip();
        let counts = self.count_all(&queries)?;
        Ok(places.into_iter().zip(counts).filter_map(|(place, count)| Some((place, count?))).collect())
    }

    fn find(&self, query: &Query) -> Option<&'a Count> {
        self.known.iter().find(|count| count.query == *query)
    }
}

impl Sentence {
    /// The counts that were looked up for this sentence so far.
    #[must_use]
    pub fn corpus(&self) -> Corpus<'_> {
        Corpus::new(&self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_asked_for_at_once() {
        let [paris, peru, rome] = ["Paris", "Peru", "Rome"].map(|word| Query::words([word]));
        let known = [Count { query: peru.clone(), occurrences: None, exact: true }];
        let corpus = Corpus::new(&known);
        assert_eq!(corpus.count(&peru), Ok(None));
        assert_eq!(corpus.count_all(&[paris.clone(), peru.clone(), rome.clone()]), Err(Ask(vec![paris, rome])));
        assert_eq!(corpus.count(&peru.clone().enough(3)), Err(Ask(vec![peru.enough(3)])));
    }

    #[test]
    fn facts_without_a_known_count_are_left_out() {
        let film = [("It", "is", "Rome"), ("Rome", "is", "rome"), ("Rome", "in", "Italy"), ("Rome", "in", "Peru")];
        let mut sentence = crate::testing::sentence("Rome is in Italy.", &film);
        let [italy, peru] = ["Italy", "Peru"].map(|word| Query::words(["Rome", word]).enough(20));
        let ask = Err(Ask(vec![italy.clone(), peru.clone()]));
        assert_eq!(sentence.corpus().count_facts(&sentence, 20), ask);
        sentence.counts = vec![
            Count { query: peru, occurrences: Some(3), exact: true },
            Count { query: italy, occurrences: None, exact: true },
        ];
        assert_eq!(sentence.corpus().count_facts(&sentence, 20), Ok(vec![(3, 3)]));
    }
}
