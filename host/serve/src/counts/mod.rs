//! Infini-gram's HTTP API, answered from a local index: one machine with a big index serves many trainers, and programs
//! written for the public API need only another URL.

mod answer;

use std::sync::Arc;
use std::time::Duration;

use corver_corpus::Corpus;
use corver_counts::wire::{About, COUNT};
use hyper::body::Bytes;

use crate::route::{Blocking, Reply, Route};
use answer::answer;

/// What a request for a count may be.
///
/// The public server takes four clauses of four terms, too few for a rule that asks with every content word of two names.
/// These take what `rule.limits` lets a rule ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountLimits {
    /// Bytes of a request's body: JSON may write a character of the query with several.
    pub body_bytes: usize,
    /// Bytes of a query's text.
    pub query_bytes: usize,
    /// Tokens of all its terms.
    pub tokens: usize,
    /// Terms of a query, all clauses together.
    pub terms: usize,
    /// Terms of one clause.
    pub terms_per_clause: usize,
    /// Largest `max_clause_freq`.
    pub max_clause_freq: u64,
    /// Largest `max_diff_tokens`.
    pub max_diff_tokens: u64,
    /// How long a count may take, waiting for a processor included.
    pub time: Duration,
}

impl Default for CountLimits {
    fn default() -> Self {
        Self {
            body_bytes: 128 << 10,
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

/// `POST /`: a count in `corpus`, which clients know as `name`. `GET /`: what is served.
#[must_use]
pub fn counts(corpus: Corpus, name: &str, limits: CountLimits) -> Vec<Route> {
    let about = about(&corpus, name);
    let blocking = Blocking::within(limits.time);
    let served = Arc::new((corpus, name.to_owned()));
    let count = move |body: Bytes| {
        let (blocking, served) = (blocking.clone(), served.clone());
        async move {
            let count = move || answer(&served.0, &served.1, &limits, &body);
            blocking.run(count).await.map(|answer| Reply::json(&answer))
        }
    };
    vec![Route::post("/", limits.body_bytes, count), Route::get("/", move || Ok(Reply::json(&about)))]
}

/// That the server is there, and what it has.
fn about(corpus: &Corpus, name: &str) -> About {
    let info = corpus.index().info();
    About {
        index: name.to_owned(),
        documents: info.documents,
        tokens: info.tokens,
        tokenizer: info.tokenizer,
        query_types: vec![COUNT.to_owned()],
    }
}
