//! Infini-gram's HTTP API for a local index. One machine with a large index serves many trainers,
//! and programs for the public API need only another URL.

mod answer;

use std::sync::Arc;
use std::time::Duration;

use corver_corpus::{Mode, TextIndex};
use corver_counts::wire::{COUNT, COUNTS, ServerInfo};
use hyper::body::Bytes;

use crate::route::{BlockingPool, HttpReply, Route};
use answer::{ServedIndex, answer};

/// Limits of a request for counts.
///
/// The public server accepts four clauses of four terms, too few for a rule that queries every
/// content word of two names. The defaults admit every query that `rule.limits` admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountLimits {
    /// Bytes of a request's body. JSON may encode a character of the query with several.
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
    /// Largest value of `max_clause_freq` in a request.
    pub max_clause_freq: u64,
    /// Largest value of `max_diff_tokens` in a request.
    pub max_diff_tokens: u64,
    /// Longest time for a request, waiting for a processor included. A batch of queries is counted for
    /// at most half of it.
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

/// Returns the routes of an index that clients call `name`: `POST /` counts, `GET /` describes it.
#[must_use]
pub fn count_routes(corpus: TextIndex, name: &str, limits: CountLimits) -> Vec<Route> {
    let about = about(&corpus, name, &limits);
    let pool = BlockingPool::new(limits.time);
    let served = Arc::new(ServedIndex { corpus, name: name.to_owned(), limits });
    let count_route = Route::post("/", limits.body_bytes, move |body: Bytes| {
        let pool = pool.clone();
        let served = served.clone();
        async move { pool.run(move || answer(&served, &body)).await }
    });
    vec![count_route, Route::get("/", move || Ok(HttpReply::json(&about)))]
}

/// Describes the index and the limits.
fn about(corpus: &TextIndex, name: &str, limits: &CountLimits) -> ServerInfo {
    let info = corpus.index().info();
    ServerInfo {
        index: name.to_owned(),
        documents: info.documents,
        tokens: info.tokens,
        tokenizer: info.tokenizer,
        part: corpus.index().part(),
        query_types: vec![COUNT.to_owned(), COUNTS.to_owned()],
        modes: vec![Mode::Compatible, Mode::Exact, Mode::ExactFirst, Mode::Span],
        queries: limits.queries,
        body_bytes: limits.body_bytes,
    }
}
