//! A corpus as the counter of a training step.

use std::collections::{HashMap, HashSet};

use corver_core::{Count, Counter, PartError, Query};
use corver_corpus::{CnfOptions, Mode, WordCount, WordCounter, WordQuery};

/// Answers kept before the memory starts anew.
const MEMORY: usize = 1 << 20;

/// Counts in a corpus, wherever it lies, and remembers: the samples of a group speak of the same entities.
pub struct IndexCounter {
    corpus: Box<dyn WordCounter>,
    options: CnfOptions,
    known: HashMap<Query, Option<WordCount>>,
}

impl IndexCounter {
    /// Counts with these options.
    #[must_use]
    pub fn new(corpus: Box<dyn WordCounter>, options: CnfOptions) -> Self {
        Self { corpus, options, known: HashMap::new() }
    }

    /// Asks for what is not known yet, all at once and nothing twice.
    fn look_up(&mut self, queries: &[Query]) -> Result<(), PartError> {
        if self.known.len() >= MEMORY {
            self.known.clear();
        }
        let mut seen = HashSet::new();
        let unknown: Vec<&Query> =
            queries.iter().filter(|query| !self.known.contains_key(*query) && seen.insert(*query)).collect();
        // The official engine has no early stop; `compatible` promises its numbers.
        let stops = self.options.mode != Mode::Compatible;
        let words: Vec<Vec<Vec<String>>> = unknown
            .iter()
            .map(|query| query.clauses().map(|words| words.map(str::to_owned).collect()).collect())
            .collect();
        let asked: Vec<WordQuery<'_>> = unknown
            .iter()
            .zip(&words)
            .map(|(query, all_of)| WordQuery { all_of, enough: query.enough.filter(|_| stops) })
            .collect();
        let answers = self.corpus.count_all(&asked, &self.options)?;
        self.known.extend(unknown.into_iter().cloned().zip(answers));
        Ok(())
    }
}

impl Counter for IndexCounter {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        self.look_up(queries)?;
        let answer = |query: &Query| {
            let found = self.known[query];
            Count {
                query: query.clone(),
                occurrences: found.map(|count| count.count),
                exact: found.is_none_or(|count| count.is_exact()),
            }
        };
        Ok(queries.iter().map(answer).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use corver_corpus::CounterError;

    use super::*;

    /// Counts the words of a query, and notes what it was asked.
    struct Words(&'static Mutex<Vec<usize>>);

    impl WordCounter for Words {
        fn count_all(&self, queries: &[WordQuery<'_>], _: &CnfOptions) -> Result<Vec<Option<WordCount>>, CounterError> {
            self.0.lock().unwrap().push(queries.len());
            let words = |query: &WordQuery<'_>| query.all_of.iter().map(Vec::len).sum::<usize>() as u64;
            let answer = |query: &WordQuery<'_>| WordCount { count: words(query), ..WordCount::default() };
            Ok(queries.iter().map(answer).map(Some).collect())
        }
    }

    #[test]
    fn no_query_is_asked_twice() {
        static ASKED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        let (pair, one) = (Query::new([&["red", "crimson"][..], &["fox"]]), Query::new([["den"]]));
        let mut counter = IndexCounter::new(Box::new(Words(&ASKED)), CnfOptions::default());
        let mut count = |queries: &[Query]| -> Vec<Option<u64>> {
            counter.count(queries).unwrap().iter().map(|count| count.occurrences).collect()
        };
        assert_eq!(count(&[pair.clone(), one.clone(), pair.clone()]), [Some(3), Some(1), Some(3)]);
        assert_eq!(count(&[one, pair]), [Some(1), Some(3)]);
        assert_eq!(*ASKED.lock().unwrap(), [2, 0]);
    }
}
