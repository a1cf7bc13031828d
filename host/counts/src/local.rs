//! An index on this machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corver_core::{BoxError, CorpusSize, Count, CountPrecision, Counter, Query};
use corver_corpus::{CnfCount, CnfOptions, Corpus, Error};

/// Counts in an index, always with the same options.
#[derive(Debug)]
pub struct Local {
    corpus: Corpus,
    options: CnfOptions,
    /// For one batch.
    time: Option<Duration>,
}

/// A batch took too long: queries of many frequent words, as no sentence needs them, or an index
/// far larger than the memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "counting took longer than {limit_ms} ms (corpus.count_ms): {counted} of {queries} queries were answered"
)]
pub struct TooSlow {
    /// Milliseconds allowed.
    pub limit_ms: u128,
    /// Queries that were answered.
    pub counted: usize,
    /// Queries of the batch.
    pub queries: usize,
}

impl Local {
    /// Counts in `corpus`.
    #[must_use]
    pub fn new(corpus: Corpus, options: CnfOptions) -> Self {
        Self { corpus, options, time: None }
    }

    /// The same, but a batch of queries fails where it takes longer than this, at most by the
    /// queries that are being counted then. `None`: never.
    #[must_use]
    pub fn within(self, time: Option<Duration>) -> Self {
        Self { time, ..self }
    }

    /// The index with its tokenizer.
    #[must_use]
    pub fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// A whole count with everything that the engine says about it; `None` where a word has no
    /// tokens.
    ///
    /// # Errors
    /// As [`Corpus::count_words`].
    pub fn count_words(&self, all_of: &[Vec<String>]) -> Result<Option<CnfCount>, Error> {
        self.corpus.count_words(all_of, &self.options, None)
    }
}

impl Counter for Local {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let deadline = self.time.and_then(|time| Instant::now().checked_add(time));
        let mut counts = vec![count_of(None); queries.len()];
        let mut answered = 0;
        // The queries of a batch nearly always stop alike.
        let mut by_enough: BTreeMap<Option<u64>, Vec<usize>> = BTreeMap::new();
        for (number, query) in queries.iter().enumerate() {
            if !query.all_of.is_empty() && query.all_of.iter().all(|words| !words.is_empty()) {
                by_enough.entry(query.limit).or_default().push(number);
            }
        }
        for (enough, numbers) in by_enough {
            let all_of: Vec<_> =
                numbers.iter().map(|&number| queries[number].all_of.as_slice()).collect();
            let found = self.corpus.count_words_batch(&all_of, &self.options, enough, deadline);
            let found = found.map_err(|error| match (error, self.time) {
                (Error::Deadline { counted, .. }, Some(time)) => BoxError::from(TooSlow {
                    limit_ms: time.as_millis(),
                    counted: answered + counted,
                    queries: queries.len(),
                }),
                (error, _) => error.into(),
            })?;
            answered += numbers.len();
            numbers
                .into_iter()
                .zip(found)
                .for_each(|(number, found)| counts[number] = count_of(found));
        }
        Ok(counts)
    }

    fn size(&self) -> CorpusSize {
        let info = self.corpus.index().info();
        CorpusSize { tokens: Some(info.tokens), documents: Some(info.documents) }
    }
}

/// Returns the engine's answer as rules read it.
fn count_of(found: Option<CnfCount>) -> Count {
    let Some(found) = found else { return Count::exact(None) };
    let precision = match found {
        CnfCount { sampled: true, .. } => CountPrecision::Estimate,
        CnfCount { at_least: true, .. } => CountPrecision::AtLeast,
        _ => CountPrecision::Exact,
    };
    Count { occurrences: Some(found.count), precision }
}

#[cfg(test)]
mod tests {
    use corver_corpus::{BuildOptions, Mode, Tokenizer, build_from_documents};

    use super::*;

    const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
        "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
        "vocab":{"[UNK]":0,"red":1,"fox":2,"den":3},"unk_token":"[UNK]"}}"#;

    #[test]
    fn local_index_honours_enough_and_time_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
        build_from_documents(["red fox"; 5], &tokenizer, &path, &BuildOptions::default()).unwrap();
        for (mode, max_diff_tokens) in [(Mode::Compatible, 1), (Mode::Exact, 1), (Mode::Span, 2)] {
            let options = CnfOptions { mode, max_diff_tokens, ..CnfOptions::default() };
            let mut local = Local::new(Corpus::open(&path).unwrap(), options);
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
            assert_eq!(local.size(), CorpusSize { tokens: Some(15), documents: Some(5) });
            let error = local.within(Some(Duration::ZERO)).count(&queries).unwrap_err().to_string();
            assert!(
                error.contains("longer than 0 ms (corpus.count_ms): 0 of 5 queries"),
                "{error}"
            );
        }
    }
}
