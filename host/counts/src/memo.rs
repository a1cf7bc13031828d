//! What was counted before.

use std::collections::{HashMap, HashSet};

use corver_core::{BoxError, CorpusSize, Count, Counter, Query};

/// Answers kept before the memory starts anew.
const MAX_ANSWERS: usize = 1 << 20;

/// Passes each different query on once, and remembers the answer: the samples of a group speak of
/// the same entities.
pub struct Memo {
    inner: Box<dyn Counter>,
    known: HashMap<Query, Count>,
}

impl Memo {
    /// Remembers what `inner` answers.
    #[must_use]
    pub fn new(inner: Box<dyn Counter>) -> Self {
        Self { inner, known: HashMap::new() }
    }
}

impl Counter for Memo {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        if self.known.len() >= MAX_ANSWERS {
            self.known.clear();
        }
        let mut seen = HashSet::new();
        let unknown: Vec<Query> = queries
            .iter()
            .filter(|&query| !self.known.contains_key(query) && seen.insert(query))
            .cloned()
            .collect();
        if !unknown.is_empty() {
            let counts = self.inner.count(&unknown)?;
            self.known.extend(unknown.into_iter().zip(counts));
        }
        // Shorter than `queries` where the inner counter left answers out: that is for the caller
        // to report.
        Ok(queries.iter().filter_map(|query| self.known.get(query).copied()).collect())
    }

    fn size(&self) -> CorpusSize {
        self.inner.size()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Counts the words of a query, and notes how many it was asked.
    struct Words(&'static Mutex<Vec<usize>>);

    impl Counter for Words {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
            self.0.lock().unwrap().push(queries.len());
            let words = |query: &Query| query.all_of.iter().map(Vec::len).sum::<usize>() as u64;
            Ok(queries.iter().map(|query| Count::exact(Some(words(query)))).collect())
        }

        fn size(&self) -> CorpusSize {
            CorpusSize { tokens: Some(7), documents: None }
        }
    }

    #[test]
    fn memo_counts_each_query_once() {
        static ASKED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        let (pair, one) = (
            Query::new([&["red", "crimson"][..], &["fox"]].map(<[_]>::to_vec)),
            Query::new([["den"]]),
        );
        let mut memo = Memo::new(Box::new(Words(&ASKED)));
        let mut count = |queries: &[Query]| -> Vec<Option<u64>> {
            memo.count(queries).unwrap().iter().map(|count| count.occurrences).collect()
        };
        assert_eq!(count(&[pair.clone(), one.clone(), pair.clone()]), [Some(3), Some(1), Some(3)]);
        assert_eq!(count(&[one.clone(), pair]), [Some(1), Some(3)]);
        assert_eq!(count(&[one.with_limit(Some(2))]), [Some(1)]);
        assert_eq!(*ASKED.lock().unwrap(), [2, 1], "another `enough` may have another answer");
        assert_eq!(memo.size().tokens, Some(7));
    }
}
