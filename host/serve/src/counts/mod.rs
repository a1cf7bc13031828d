//! Infini-gram's HTTP API, answered from a local index: one machine with a big index serves many
//! trainers, and programs written for the public API need only another URL.

mod answer;

use std::sync::Arc;
use std::time::Duration;

use corver_corpus::{Mode, TextIndex};
use corver_counts::wire::{COUNT, COUNTS, ServerInfo};
use hyper::body::Bytes;

use crate::route::{Blocking, Reply, Route};
use answer::{Served, answer};

/// What a request for counts may be.
///
/// The public server takes four clauses of four terms, too few for a rule that asks with every
/// content word of two names. These take what `rule.limits` lets a rule ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountLimits {
    /// Bytes of a request's body: JSON may write a character of the query with several.
    pub body_bytes: usize,
    /// Queries of a request.
    pub queries: usize,
    /// Bytes of a query's text.
    pub query_bytes: usize,
    /// Tokens of all terms of a query.
    pub tokens: usize,
    /// Terms of a query, all clauses together.
    pub terms: usize,
    /// Terms of one clause.
    pub terms_per_clause: usize,
    /// Largest `max_clause_freq`.
    pub max_clause_freq: u64,
    /// Largest `max_diff_tokens`.
    pub max_diff_tokens: u64,
    /// How long a request may take, waiting for a processor included. Many queries may be counted
    /// for half of it.
    pub time: Duration,
}

impl Default for CountLimits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            queries: 1_024,
            query_bytes: 32 << 10,
            tokens: 4_000,
            terms: 256,
            terms_per_clause: 64,
            max_clause_freq: 5_000_000,
            max_diff_tokens: 10_000,
            time: Duration::from_secs(30),
        }
    }
}

/// `POST /`: counts in `corpus`, which clients know as `name`. `GET /`: what is served.
#[must_use]
pub fn counts(corpus: TextIndex, name: &str, limits: CountLimits) -> Vec<Route> {
    let about = about(&corpus, name, &limits);
    let blocking = Blocking::within(limits.time);
    let served = Arc::new(Served { corpus, name: name.to_owned(), limits });
    let count = move |body: Bytes| {
        let (blocking, served) = (blocking.clone(), served.clone());
        async move { blocking.run(move || answer(&served, &body)).await }
    };
    vec![
        Route::post("/", limits.body_bytes, count),
        Route::get("/", move || Ok(Reply::json(&about))),
    ]
}

/// That the server is there, and what it has.
fn about(corpus: &TextIndex, name: &str, limits: &CountLimits) -> ServerInfo {
    let info = corpus.index().info();
    ServerInfo {
        index: name.to_owned(),
        documents: info.documents,
        tokens: info.tokens,
        tokenizer: info.tokenizer,
        part: corpus.index().part(),
        query_types: vec![COUNT.to_owned(), COUNTS.to_owned()],
        modes: vec![Mode::Compatible, Mode::Exact, Mode::Span],
        queries: limits.queries,
        body_bytes: limits.body_bytes,
    }
}
