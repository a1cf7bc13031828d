//! The corpus index as the counter of a training step.

use std::collections::HashMap;

use corver_core::{Count, Counter, PartError, Query};
use corver_corpus::{CnfOptions, Corpus, Mode, WordCount};

/// Answers kept before the memory starts anew.
const MEMORY: usize = 1 << 20;

/// Counts in a local index, and remembers: the samples of a group speak of the same entities.
pub struct IndexCounter {
    corpus: Corpus,
    options: CnfOptions,
    known: HashMap<Query, Option<WordCount>>,
}

impl IndexCounter {
    /// Counts with these options.
    #[must_use]
    pub fn new(corpus: Corpus, options: CnfOptions) -> Self {
        Self { corpus, options, known: HashMap::new() }
    }

    fn look_up(&mut self, query: &Query) -> Result<Option<WordCount>, PartError> {
        if let Some(known) = self.known.get(query) {
            return Ok(*known);
        }
        // The official engine has no early stop; `compatible` promises its numbers.
        let enough = query.enough.filter(|_| self.options.mode == Mode::Exact);
        let count = self.corpus.count_words(&query.all_of, &self.options, enough)?;
        if self.known.len() >= MEMORY {
            self.known.clear();
        }
        self.known.insert(query.clone(), count);
        Ok(count)
    }
}

impl Counter for IndexCounter {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let answer = |query: &Query| {
            let found = self.look_up(query)?;
            Ok(Count {
                query: query.clone(),
                occurrences: found.map(|count| count.count),
                exact: found.is_none_or(|count| count.is_exact()),
            })
        };
        queries.iter().map(answer).collect()
    }
}
