//! An in-memory cache of counts.

use std::collections::{HashMap, HashSet};

use corver_core::{BoxError, CorpusInfo, Count, Counter, Query};

/// Number of cached counts at which the cache is cleared.
const MAX_COUNTS: usize = 1 << 20;

/// A counter with an in-memory cache: it passes each distinct query on once. The completions of a
/// group mention the same entities, so most queries repeat.
pub struct CachedCounter {
    inner: Box<dyn Counter>,
    cache: HashMap<Query, Count>,
}

impl CachedCounter {
    /// Creates a counter with an empty cache.
    #[must_use]
    pub fn new(inner: Box<dyn Counter>) -> Self {
        Self { inner, cache: HashMap::new() }
    }
}

impl Counter for CachedCounter {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        if self.cache.len() >= MAX_COUNTS {
            self.cache.clear();
        }
        let mut distinct = HashSet::new();
        let mut misses = Vec::new();
        for query in queries {
            if !self.cache.contains_key(query) && distinct.insert(query) {
                misses.push(query.clone());
            }
        }
        if !misses.is_empty() {
            let counts = self.inner.count(&misses)?;
            self.cache.extend(misses.into_iter().zip(counts));
        }
        // Shorter than `queries` if the inner counter returned too few counts; the caller reports
        // that.
        Ok(queries.iter().filter_map(|query| self.cache.get(query).copied()).collect())
    }

    fn info(&self) -> CorpusInfo {
        self.inner.info()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Counts the words of a query, and records the sizes of its batches.
    struct Words(&'static Mutex<Vec<usize>>);

    impl Counter for Words {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
            self.0.lock().unwrap().push(queries.len());
            let words = |query: &Query| query.all_of.iter().map(Vec::len).sum::<usize>() as u64;
            Ok(queries.iter().map(|query| Count::exact(Some(words(query)))).collect())
        }

        fn info(&self) -> CorpusInfo {
            CorpusInfo { tokens: Some(7), documents: None, window: Some(1_000), mode: None }
        }
    }

    #[test]
    fn cached_counter_counts_each_query_once() {
        static BATCH_SIZES: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        let pair = Query::new([&["red", "crimson"][..], &["fox"]].map(<[_]>::to_vec));
        let one = Query::new([["den"]]);
        let mut cached = CachedCounter::new(Box::new(Words(&BATCH_SIZES)));
        let mut count = |queries: &[Query]| -> Vec<Option<u64>> {
            cached.count(queries).unwrap().iter().map(|count| count.occurrences).collect()
        };
        assert_eq!(count(&[pair.clone(), one.clone(), pair.clone()]), [Some(3), Some(1), Some(3)]);
        assert_eq!(count(&[one.clone(), pair]), [Some(1), Some(3)]);
        assert_eq!(count(&[one.with_limit(Some(2))]), [Some(1)]);
        assert_eq!(*BATCH_SIZES.lock().unwrap(), [2, 1], "another limit may have another count");
        assert_eq!(cached.info().tokens, Some(7));
    }
}
