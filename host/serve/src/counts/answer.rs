//! A request's body → the answer, or why there is none. Everything about the API but the network.

use std::time::Instant;

use corver_corpus::{Cnf, CnfCount, CnfOptions, Corpus, Error, Mode, parse_query};
use corver_counts::wire::{Answer, COUNT, Nested, Request, TokenIds};

use super::CountLimits;
use crate::Refusal;

/// What the public API takes where a request does not say.
const DEFAULT_CLAUSE_FREQ: u64 = 50_000;
const DEFAULT_DIFF_TOKENS: u64 = 100;

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::EmptyQuery { .. } | Error::TokenTooLarge { .. } | Error::Option { .. } | Error::Encode { .. } => {
                Self::bad(error.to_string())
            }
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
fn pieces(ids: &TokenIds, corpus: &Corpus) -> Nested<Option<String>> {
    let pieces = |ids: &Vec<u32>| ids.iter().map(|&id| corpus.tokenizer().piece(id)).collect();
    match ids {
        Nested::Ngram(ids) => Nested::Ngram(pieces(ids)),
        Nested::Cnf(clauses) => Nested::Cnf(clauses.iter().map(|clause| clause.iter().map(pieces).collect()).collect()),
    }
}

/// Answers a request for the index called `name`.
pub(super) fn answer(corpus: &Corpus, name: &str, limits: &CountLimits, body: &[u8]) -> Result<Answer, Refusal> {
    let request: Request =
        serde_json::from_slice(body).map_err(|error| Refusal::bad(format!("Invalid request: {error}")))?;
    if request.query_type != COUNT {
        return Err(Refusal::bad(format!("Invalid query_type: {} (this server answers {COUNT})", request.query_type)));
    }
    if request.index != name {
        return Err(Refusal::bad(format!("Invalid index: {} (this server has {name})", request.index)));
    }
    let options = options(&request, limits)?;
    let ids = match (&request.query, request.query_ids) {
        (Some(text), None) => read(corpus, text, limits)?,
        (None, Some(ids)) => ids,
        _ => return Err(Refusal::bad("Exactly one of query and query_ids must be present")),
    };
    let at_most = |what: &str, got: usize, limit: usize| match got {
        _ if got <= limit => Ok(()),
        _ => Err(Refusal::bad(format!("{got} {what}; at most {limit} are taken"))),
    };
    at_most("tokens", num_tokens(&ids), limits.tokens)?;
    if let Nested::Cnf(clauses) = &ids {
        let terms = || clauses.iter().map(Vec::len);
        at_most("terms", terms().sum(), limits.terms)?;
        at_most("terms in a clause", terms().max().unwrap_or_default(), limits.terms_per_clause)?;
        at_most("clauses", clauses.len(), limits.terms)?; // one may be empty
    }

    let start = Instant::now();
    let found = match &ids {
        Nested::Ngram(ids) => CnfCount { count: corpus.index().count(ids)?, ..CnfCount::default() },
        Nested::Cnf(clauses) => corpus.index().count_cnf(&Cnf::new(clauses.clone())?, &options, None)?,
    };
    corpus.index().check_sizes()?;
    let latency = start.elapsed().as_secs_f64() * 1e3;
    let (count, approx, exact) = (found.count, found.approx, Some(found.is_exact()));
    Ok(Answer { count, approx, exact, latency, tokens: Some(pieces(&ids, corpus)), token_ids: Some(ids) })
}

fn options(request: &Request, limits: &CountLimits) -> Result<CnfOptions, Refusal> {
    let within = |name: &str, asked: Option<u64>, default: u64, limit: u64| match asked.unwrap_or(default) {
        value if (1..=limit).contains(&value) => Ok(value),
        value => Err(Refusal::bad(format!("{name} is {value}; it must be an integer in [1, {limit}]"))),
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
        mode: if request.exact { Mode::Exact } else { Mode::Compatible },
    })
}

/// A query's text as token ids. The empty text is the empty n-gram, which occurs at every token.
fn read(corpus: &Corpus, text: &str, limits: &CountLimits) -> Result<TokenIds, Refusal> {
    if text.len() > limits.query_bytes {
        return Err(Refusal::bad(format!(
            "the query has {} bytes; at most {} are taken",
            text.len(),
            limits.query_bytes
        )));
    }
    if text.is_empty() {
        return Ok(Nested::Ngram(Vec::new()));
    }
    let encode = |term: &String| -> Result<Vec<u32>, Refusal> {
        let ids = corpus.tokenizer().encode_word(term)?;
        if ids.is_empty() { Err(Refusal::bad(format!("{term:?} has no tokens"))) } else { Ok(ids) }
    };
    let clauses = parse_query(text)?;
    if let [clause] = clauses.as_slice()
        && let [term] = clause.as_slice()
    {
        return encode(term).map(Nested::Ngram);
    }
    let encoded = clauses.iter().map(|clause| clause.iter().map(encode).collect());
    encoded.collect::<Result<_, _>>().map(Nested::Cnf)
}
