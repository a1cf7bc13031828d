//! Answers the body of a request for counts.

use std::time::Instant;

use corver_corpus::{Cnf, CnfCount, CnfOptions, Error, TextIndex, parse_query};
use corver_counts::wire::{
    COUNT, COUNTS, CountReply, CountRequest, CountResult, Counts, Nested, TokenIds, precision,
};

use super::CountLimits;
use crate::{HttpError, HttpReply};

/// Defaults of the public API.
const DEFAULT_CLAUSE_FREQ: u64 = 50_000;
const DEFAULT_DIFF_TOKENS: u64 = 100;

impl From<Error> for HttpError {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidArgument(_) => Self::bad_request(error.to_string()),
            Error::Deadline { .. } => Self::busy(error.to_string()),
            _ => Self::internal(error.to_string()),
        }
    }
}

fn num_tokens(ids: &TokenIds) -> usize {
    match ids {
        Nested::Ngram(ids) => ids.len(),
        Nested::Cnf(clauses) => clauses.iter().flatten().map(Vec::len).sum(),
    }
}

/// Returns the piece of the vocabulary for every id; `None` for an unknown id.
fn pieces(ids: &TokenIds, corpus: &TextIndex) -> Nested<Option<String>> {
    let pieces_of = |term: &Vec<u32>| term.iter().map(|&id| corpus.tokenizer().piece(id)).collect();
    match ids {
        Nested::Ngram(ids) => Nested::Ngram(pieces_of(ids)),
        Nested::Cnf(clauses) => {
            let mut clause_pieces = Vec::with_capacity(clauses.len());
            for clause in clauses {
                clause_pieces.push(clause.iter().map(pieces_of).collect());
            }
            Nested::Cnf(clause_pieces)
        }
    }
}

/// Index that is served, with its name and limits.
pub(super) struct ServedIndex {
    pub(super) corpus: TextIndex,
    /// Name of the index in requests.
    pub(super) name: String,
    pub(super) limits: CountLimits,
}

/// Answers a request.
///
/// # Errors
/// If the request is invalid or beyond the limits, or counting fails.
pub(super) fn answer(served: &ServedIndex, body: &[u8]) -> Result<HttpReply, HttpError> {
    let mut request: CountRequest = serde_json::from_slice(corver_files::strip_bom(body))
        .map_err(|error| HttpError::bad_request(format!("Invalid request: {error}")))?;
    if ![COUNT, COUNTS].contains(&request.query_type.as_str()) {
        return Err(HttpError::bad_request(format!(
            "Invalid query_type: {} (this server answers {COUNT} and {COUNTS})",
            request.query_type
        )));
    }
    if request.index != served.name {
        return Err(HttpError::bad_request(format!(
            "Invalid index: {} (this server has {})",
            request.index, served.name
        )));
    }
    let options = options(&request, &served.limits)?;
    let text = request.query.take();
    let ids = request.query_ids.take();
    let queries = request.queries.take();
    match (request.query_type == COUNTS, text, ids, queries) {
        (false, Some(text), None, None) => {
            let query_ids = served.tokenize(&text)?.ok_or_else(|| {
                HttpError::bad_request(format!("a word of {text:?} has no tokens"))
            })?;
            Ok(HttpReply::json(&served.count(query_ids, &options, request.limit)?))
        }
        (false, None, Some(query_ids), None) => {
            served.check(&query_ids)?;
            Ok(HttpReply::json(&served.count(query_ids, &options, request.limit)?))
        }
        (true, None, None, Some(queries)) => {
            Ok(HttpReply::json(&served.count_many(&queries, &options, request.limit)?))
        }
        (false, ..) => {
            Err(HttpError::bad_request("Exactly one of query and query_ids must be present"))
        }
        (true, ..) => {
            Err(HttpError::bad_request("queries must be present, and neither query nor query_ids"))
        }
    }
}

impl ServedIndex {
    fn count(
        &self,
        ids: TokenIds,
        options: &CnfOptions,
        limit: Option<u64>,
    ) -> Result<CountReply, HttpError> {
        let start = Instant::now();
        let index = self.corpus.index();
        let found = match &ids {
            Nested::Ngram(ids) => CnfCount { count: index.count(ids)?, ..CnfCount::default() },
            Nested::Cnf(clauses) => index.count_cnf(&Cnf::new(clauses.clone())?, options, limit)?,
        };
        index.check_sizes()?;
        Ok(CountReply {
            count: found.count,
            approx: found.approx,
            precision: Some(precision(&found)),
            latency: millis(start),
            tokens: Some(pieces(&ids, &self.corpus)),
            token_ids: Some(ids),
        })
    }

    fn count_many(
        &self,
        queries: &[String],
        options: &CnfOptions,
        limit: Option<u64>,
    ) -> Result<Counts, HttpError> {
        at_most("queries", queries.len(), self.limits.queries)?;
        let start = Instant::now();
        let index = self.corpus.index();
        let mut found = vec![None; queries.len()];
        // Queries for the batch, and the index of each in `queries`.
        let mut batch = Vec::new();
        let mut batch_indices = Vec::new();
        for (query_index, text) in queries.iter().enumerate() {
            match self.tokenize(text).map_err(|error| error.about(text))? {
                None => {}
                Some(Nested::Ngram(ids)) if ids.is_empty() => {
                    found[query_index] =
                        Some(CnfCount { count: index.count(&ids)?, ..CnfCount::default() });
                }
                Some(ids) => {
                    batch_indices.push(query_index);
                    batch.push(Cnf::new(match ids {
                        Nested::Ngram(ids) => vec![vec![ids]],
                        Nested::Cnf(clauses) => clauses,
                    })?);
                }
            }
        }
        // Half of the time is left for the answer, and for the client's smaller requests.
        let deadline = start.checked_add(self.limits.time / 2);
        let counts = match index.count_cnf_batch(&batch, options, limit, deadline) {
            // Not 503: the client would wait and repeat the same request.
            Err(error @ Error::Deadline { .. }) if queries.len() > 1 => {
                return Err(HttpError::too_large(format!("{error}: send fewer queries at a time")));
            }
            result => result?,
        };
        for (query_index, count) in batch_indices.into_iter().zip(counts) {
            found[query_index] = Some(count);
        }
        index.check_sizes()?;
        let mut counted = Vec::with_capacity(found.len());
        for count in found {
            counted.push(count.map(|count| CountResult {
                count: count.count,
                approx: count.approx,
                precision: precision(&count),
            }));
        }
        Ok(Counts { counts: counted, latency: millis(start) })
    }

    /// Returns the token ids of a query; `None` if a word has no tokens. The empty text is the empty
    /// n-gram, which occurs at every token.
    fn tokenize(&self, text: &str) -> Result<Option<TokenIds>, HttpError> {
        at_most("bytes", text.len(), self.limits.query_bytes)?;
        if text.is_empty() {
            return Ok(Some(Nested::Ngram(Vec::new())));
        }
        let mut clauses = Vec::new();
        for terms in parse_query(text)? {
            let mut clause = Vec::with_capacity(terms.len());
            for term in &terms {
                clause.push(self.corpus.tokenizer().encode_word(term)?);
            }
            clauses.push(clause);
        }
        if clauses.iter().flatten().any(Vec::is_empty) {
            return Ok(None);
        }
        let ids = match clauses.as_mut_slice() {
            [clause] if clause.len() == 1 => Nested::Ngram(clause.remove(0)),
            _ => Nested::Cnf(clauses),
        };
        self.check(&ids).map(|()| Some(ids))
    }

    /// Checks the size of a query.
    fn check(&self, ids: &TokenIds) -> Result<(), HttpError> {
        let limits = &self.limits;
        at_most("tokens", num_tokens(ids), limits.tokens)?;
        if let Nested::Cnf(clauses) = ids {
            at_most("terms", clauses.iter().map(Vec::len).sum(), limits.terms)?;
            let longest = clauses.iter().map(Vec::len).max().unwrap_or_default();
            at_most("terms in a clause", longest, limits.terms_per_clause)?;
            // A clause may be empty, so that the number of terms does not limit it.
            at_most("clauses", clauses.len(), limits.terms)?;
        }
        Ok(())
    }
}

fn at_most(unit: &str, got: usize, limit: usize) -> Result<(), HttpError> {
    if got > limit {
        return Err(HttpError::bad_request(format!("{got} {unit}; at most {limit} are accepted")));
    }
    Ok(())
}

fn millis(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn options(request: &CountRequest, limits: &CountLimits) -> Result<CnfOptions, HttpError> {
    let max_clause_freq = request.max_clause_freq.unwrap_or(DEFAULT_CLAUSE_FREQ);
    check_range("max_clause_freq", max_clause_freq, limits.max_clause_freq)?;
    let max_diff_tokens = request.max_diff_tokens.unwrap_or(DEFAULT_DIFF_TOKENS);
    check_range("max_diff_tokens", max_diff_tokens, limits.max_diff_tokens)?;
    Ok(CnfOptions { max_clause_freq, max_diff_tokens, mode: request.mode })
}

fn check_range(name: &str, value: u64, limit: u64) -> Result<(), HttpError> {
    if (1..=limit).contains(&value) {
        return Ok(());
    }
    Err(HttpError::bad_request(format!("{name} is {value}; it must be an integer in [1, {limit}]")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corver_corpus::{BuildOptions, Tokenizer, build_from_documents};
    use hyper::StatusCode;

    use super::*;

    #[test]
    fn timed_out_batch_gets_413_single_query_503() {
        const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
            "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
            "vocab":{"[UNK]":0,"red":1,"fox":2},"unk_token":"[UNK]"}}"#;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
        build_from_documents(["red fox"], &tokenizer, &path, &BuildOptions::default()).unwrap();
        let limits = CountLimits { time: Duration::ZERO, ..CountLimits::default() };
        let served = ServedIndex {
            corpus: TextIndex::open(&path).unwrap(),
            name: "wiki".to_owned(),
            limits,
        };
        let status = |queries: &str| {
            let body = format!(r#"{{"index":"wiki","query_type":"counts","queries":{queries}}}"#);
            answer(&served, body.as_bytes()).map(|_| ()).unwrap_err().status
        };
        assert_eq!(status(r#"["red AND fox","red AND red"]"#), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(status(r#"["red AND fox"]"#), StatusCode::SERVICE_UNAVAILABLE);
    }
}
