//! A request's body → the answer, or why there is none. Everything about the API but the network.

use std::time::Instant;

use corver_corpus::{Cnf, CnfCount, CnfOptions, Error, TextIndex, parse_query};
use corver_counts::wire::{
    COUNT, COUNTS, CountReply, CountRequest, CountResult, Counts, Nested, TokenIds,
};

use super::CountLimits;
use crate::{Refusal, Reply};

/// What the public API takes where a request does not say.
const DEFAULT_CLAUSE_FREQ: u64 = 50_000;
const DEFAULT_DIFF_TOKENS: u64 = 100;

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidArgument(_) => Self::bad(error.to_string()),
            Error::Deadline { .. } => Self::busy(error.to_string()),
            _ => Self::failed(error.to_string()),
        }
    }
}

fn num_tokens(ids: &TokenIds) -> usize {
    match ids {
        Nested::Ngram(ids) => ids.len(),
        Nested::Cnf(clauses) => clauses.iter().flatten().map(Vec::len).sum(),
    }
}

/// The vocabulary's piece for every id; `None` where there is none.
fn pieces(ids: &TokenIds, corpus: &TextIndex) -> Nested<Option<String>> {
    let pieces = |group: &Vec<u32>| group.iter().map(|&id| corpus.tokenizer().piece(id)).collect();
    match ids {
        Nested::Ngram(ids) => Nested::Ngram(pieces(ids)),
        Nested::Cnf(clauses) => {
            Nested::Cnf(clauses.iter().map(|clause| clause.iter().map(pieces).collect()).collect())
        }
    }
}

/// What is served, and to whom.
pub(super) struct Served {
    pub(super) corpus: TextIndex,
    /// What clients call it.
    pub(super) name: String,
    pub(super) limits: CountLimits,
}

/// Answers a request.
pub(super) fn answer(served: &Served, body: &[u8]) -> Result<Reply, Refusal> {
    let mut request: CountRequest = serde_json::from_slice(body)
        .map_err(|error| Refusal::bad(format!("Invalid request: {error}")))?;
    if ![COUNT, COUNTS].contains(&request.query_type.as_str()) {
        let asked = request.query_type;
        return Err(Refusal::bad(format!(
            "Invalid query_type: {asked} (this server answers {COUNT} and {COUNTS})"
        )));
    }
    if request.index != served.name {
        return Err(Refusal::bad(format!(
            "Invalid index: {} (this server has {})",
            request.index, served.name
        )));
    }
    let options = options(&request, &served.limits)?;
    let (query, ids, queries) =
        (request.query.take(), request.query_ids.take(), request.queries.take());
    match (request.query_type == COUNTS, query, ids, queries) {
        (false, Some(text), None, None) => {
            let query_ids = served
                .read(&text)?
                .ok_or_else(|| Refusal::bad(format!("a word of {text:?} has no tokens")))?;
            served.count(query_ids, &options, request.limit).map(|answer| Reply::json(&answer))
        }
        (false, None, Some(ids), None) => {
            served.check(&ids)?;
            served.count(ids, &options, request.limit).map(|answer| Reply::json(&answer))
        }
        (true, None, None, Some(queries)) => {
            served.count_many(&queries, &options, request.limit).map(|counts| Reply::json(&counts))
        }
        (false, ..) => Err(Refusal::bad("Exactly one of query and query_ids must be present")),
        (true, ..) => Err(Refusal::bad("queries must be present, and neither query nor query_ids")),
    }
}

impl Served {
    fn count(
        &self,
        ids: TokenIds,
        options: &CnfOptions,
        enough: Option<u64>,
    ) -> Result<CountReply, Refusal> {
        let (start, index) = (Instant::now(), self.corpus.index());
        let found = match &ids {
            Nested::Ngram(ids) => CnfCount { count: index.count(ids)?, ..CnfCount::default() },
            Nested::Cnf(clauses) => {
                index.count_cnf(&Cnf::new(clauses.clone())?, options, enough)?
            }
        };
        index.check_sizes()?;
        let (count, approx, exact) = (found.count, found.approx, Some(found.is_exact()));
        let tokens = Some(pieces(&ids, &self.corpus));
        Ok(CountReply {
            count,
            approx,
            exact,
            latency: millis(start),
            tokens,
            token_ids: Some(ids),
        })
    }

    fn count_many(
        &self,
        queries: &[String],
        options: &CnfOptions,
        enough: Option<u64>,
    ) -> Result<Counts, Refusal> {
        at_most("queries", queries.len(), self.limits.queries)?;
        let (start, index) = (Instant::now(), self.corpus.index());
        let mut found = vec![None; queries.len()];
        let (mut places, mut batch) = (Vec::new(), Vec::new());
        for (place, text) in queries.iter().enumerate() {
            match self.read(text).map_err(|refusal| refusal.about(text))? {
                None => {}
                Some(Nested::Ngram(ids)) if ids.is_empty() => {
                    found[place] =
                        Some(CnfCount { count: index.count(&ids)?, ..CnfCount::default() });
                }
                Some(ids) => {
                    places.push(place);
                    batch.push(Cnf::new(match ids {
                        Nested::Ngram(ids) => vec![vec![ids]],
                        Nested::Cnf(clauses) => clauses,
                    })?);
                }
            }
        }
        let deadline = start.checked_add(self.limits.time / 2);
        let counts =
            index.count_cnf_batch(&batch, options, enough, deadline).map_err(
                |error| match error {
                    // The client can do better than to wait and ask the same again.
                    Error::Deadline { .. } if queries.len() > 1 => {
                        Refusal::too_large(format!("{error}: ask fewer at once"))
                    }
                    error => error.into(),
                },
            )?;
        places.into_iter().zip(counts).for_each(|(place, count)| found[place] = Some(count));
        index.check_sizes()?;
        let counted = |count: CnfCount| CountResult {
            count: count.count,
            approx: count.approx,
            exact: count.is_exact(),
        };
        Ok(Counts {
            counts: found.into_iter().map(|count| count.map(counted)).collect(),
            latency: millis(start),
        })
    }

    /// A query's text as token ids; `None` where a word has none. The empty text is the empty
    /// n-gram, which occurs at every token.
    fn read(&self, text: &str) -> Result<Option<TokenIds>, Refusal> {
        at_most("bytes", text.len(), self.limits.query_bytes)?;
        if text.is_empty() {
            return Ok(Some(Nested::Ngram(Vec::new())));
        }
        let mut clauses = Vec::new();
        for terms in parse_query(text)? {
            let terms = terms.iter().map(|term| self.corpus.tokenizer().encode_word(term));
            clauses.push(terms.collect::<Result<Vec<_>, _>>()?);
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

    /// That a query is no larger than it may be.
    fn check(&self, ids: &TokenIds) -> Result<(), Refusal> {
        let limits = &self.limits;
        at_most("tokens", num_tokens(ids), limits.tokens)?;
        if let Nested::Cnf(clauses) = ids {
            let terms = || clauses.iter().map(Vec::len);
            at_most("terms", terms().sum(), limits.terms)?;
            at_most(
                "terms in a clause",
                terms().max().unwrap_or_default(),
                limits.terms_per_clause,
            )?;
            at_most("clauses", clauses.len(), limits.terms)?; // one may be empty
        }
        Ok(())
    }
}

fn at_most(what: &str, got: usize, limit: usize) -> Result<(), Refusal> {
    match got {
        _ if got <= limit => Ok(()),
        _ => Err(Refusal::bad(format!("{got} {what}; at most {limit} are taken"))),
    }
}

fn millis(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn options(request: &CountRequest, limits: &CountLimits) -> Result<CnfOptions, Refusal> {
    let within =
        |name: &str, asked: Option<u64>, default: u64, limit: u64| match asked.unwrap_or(default) {
            value if (1..=limit).contains(&value) => Ok(value),
            value => Err(Refusal::bad(format!(
                "{name} is {value}; it must be an integer in [1, {limit}]"
            ))),
        };
    Ok(CnfOptions {
        max_clause_freq: within(
            "max_clause_freq",
            request.max_clause_freq,
            DEFAULT_CLAUSE_FREQ,
            limits.max_clause_freq,
        )?,
        max_diff_tokens: within(
            "max_diff_tokens",
            request.max_diff_tokens,
            DEFAULT_DIFF_TOKENS,
            limits.max_diff_tokens,
        )?,
        mode: request.mode,
    })
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
        let served =
            Served { corpus: TextIndex::open(&path).unwrap(), name: "wiki".to_owned(), limits };
        let status = |queries: &str| {
            let body = format!(r#"{{"index":"wiki","query_type":"counts","queries":{queries}}}"#);
            answer(&served, body.as_bytes()).map(|_| ()).unwrap_err().status
        };
        assert_eq!(status(r#"["red AND fox","red AND red"]"#), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(status(r#"["red AND fox"]"#), StatusCode::SERVICE_UNAVAILABLE);
    }
}
