//! Counts in an index on this machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corver_core::{BoxError, CorpusInfo, Count, Counter, Query};
use corver_corpus::{CnfCount, CnfOptions, Error, TextIndex};

use crate::wire;

/// A counter of an index on this machine. All counts have the same options.
#[derive(Debug)]
pub struct Local {
    corpus: TextIndex,
    options: CnfOptions,
    /// Longest time of a batch; `None` sets no limit.
    max_batch_time: Option<Duration>,
}

/// The error of a batch that exceeded its time limit. Its queries have more frequent words than any
/// sentence needs, or the index is far larger than the memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "counting took longer than {limit_ms} ms (corpus.count_timeout_ms): \
     {counted} of {queries} queries were answered"
)]
pub struct TooSlow {
    /// Time limit of the batch, milliseconds.
    pub limit_ms: u128,
    /// Number of queries that were counted in time.
    pub counted: usize,
    /// Number of queries in the batch.
    pub queries: usize,
}

impl Local {
    /// Creates a counter without a time limit.
    #[must_use]
    pub fn new(corpus: TextIndex, options: CnfOptions) -> Self {
        Self { corpus, options, max_batch_time: None }
    }

    /// Sets the time limit of a batch; `None` sets no limit. A batch may exceed it by the time of
    /// the queries in progress.
    #[must_use]
    pub fn within(self, max_batch_time: Option<Duration>) -> Self {
        Self { max_batch_time, ..self }
    }

    /// Returns the index with its tokenizer.
    #[must_use]
    pub fn corpus(&self) -> &TextIndex {
        &self.corpus
    }

    /// Returns a count without a limit, with the index's flags; `None` if a word has no tokens.
    ///
    /// # Errors
    /// Fails as [`TextIndex::count_words`] does.
    pub fn count_words(&self, all_of: &[Vec<String>]) -> Result<Option<CnfCount>, Error> {
        self.corpus.count_words(all_of, &self.options, None)
    }

    /// Returns the error of a batch of `num_queries` queries that failed after `num_counted`.
    fn batch_error(&self, error: Error, num_counted: usize, num_queries: usize) -> BoxError {
        match (error, self.max_batch_time) {
            (Error::Deadline { counted, .. }, Some(max_batch_time)) => TooSlow {
                limit_ms: max_batch_time.as_millis(),
                counted: num_counted + counted,
                queries: num_queries,
            }
            .into(),
            (error, _) => error.into(),
        }
    }
}

impl Counter for Local {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let deadline = self.max_batch_time.and_then(|time| Instant::now().checked_add(time));
        let mut counts = vec![to_count(None); queries.len()];
        let mut num_counted = 0;
        // A batch has one limit. The queries of a step nearly always have the same one.
        let mut by_limit: BTreeMap<Option<u64>, Vec<usize>> = BTreeMap::new();
        for (number, query) in queries.iter().enumerate() {
            if !query.all_of.is_empty() && query.all_of.iter().all(|words| !words.is_empty()) {
                by_limit.entry(query.limit).or_default().push(number);
            }
        }
        for (limit, numbers) in by_limit {
            let all_of: Vec<_> =
                numbers.iter().map(|&number| queries[number].all_of.as_slice()).collect();
            let found = self
                .corpus
                .count_words_batch(&all_of, &self.options, limit, deadline)
                .map_err(|error| self.batch_error(error, num_counted, queries.len()))?;
            num_counted += numbers.len();
            for (number, count) in numbers.into_iter().zip(found) {
                counts[number] = to_count(count);
            }
        }
        Ok(counts)
    }

    fn info(&self) -> CorpusInfo {
        let info = self.corpus.index().info();
        CorpusInfo {
            tokens: Some(info.tokens),
            documents: Some(info.documents),
            window: Some(self.options.max_diff_tokens),
            mode: Some(wire::count_mode(self.options.mode)),
        }
    }
}

/// Converts the index's count; `None` is a query that cannot be counted.
fn to_count(found: Option<CnfCount>) -> Count {
    let Some(found) = found else { return Count::exact(None) };
    Count { occurrences: Some(found.count), precision: wire::precision(&found) }
}

#[cfg(test)]
mod tests {
    use corver_corpus::{BuildOptions, Mode, Tokenizer, build_from_documents};

    use super::*;

    const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
        "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
        "vocab":{"[UNK]":0,"red":1,"fox":2,"den":3},"unk_token":"[UNK]"}}"#;

    #[test]
    fn local_index_honours_limit_and_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
        build_from_documents(["red fox"; 5], &tokenizer, &path, &BuildOptions::default()).unwrap();
        for (mode, max_diff_tokens) in [(Mode::Compatible, 1), (Mode::Exact, 1), (Mode::Span, 2)] {
            let options = CnfOptions { mode, max_diff_tokens, ..CnfOptions::default() };
            let mut local = Local::new(TextIndex::open(&path).unwrap(), options);
            let pair = Query::new([["red"], ["fox"]]);
            let nothing: [&[&str]; 2] = [&["red"], &[]];
            let queries = [
                pair.clone(),
                pair.with_limit(Some(2)),
                Query::new([["red"], [""]]),
                Query::new(nothing.map(<[&str]>::to_vec)),
                Query { all_of: Vec::new(), limit: None },
            ];
            let counts = local.count(&queries).unwrap();
            assert_eq!(counts[0], Count::exact(Some(5)), "{mode:?}");
            assert!(counts[1].occurrences.unwrap() >= 2, "{mode:?}");
            assert_eq!(counts[2..], [Count::exact(None); 3], "{mode:?}");
            assert_eq!(
                local.info(),
                CorpusInfo {
                    tokens: Some(15),
                    documents: Some(5),
                    window: Some(max_diff_tokens),
                    mode: Some(wire::count_mode(mode)),
                }
            );
            let error = local.within(Some(Duration::ZERO)).count(&queries).unwrap_err().to_string();
            assert!(
                error.contains("longer than 0 ms (corpus.count_timeout_ms): 0 of 5 queries"),
                "{error}"
            );
        }
    }
}
