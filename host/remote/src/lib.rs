//! Counting on another machine, over the HTTP API of Infini-gram: one POST of a JSON object per query.
//!
//! [`Remote`] asks such a server, the public one or ours, and is a [`corver_corpus::WordCounter`] like a local index.
//!
//! A request is `{"index", "query_type": "count", "query", "max_clause_freq", "max_diff_tokens"}`, an answer
//! `{"count", "approx", "latency", "token_ids", "tokens"}`, a refusal `{"error"}`. Two fields are ours and optional:
//! `"exact": true` in a request asks for [`corver_corpus::Mode::Exact`], and `"exact"` in an answer says whether the count is
//! the number of matches, which `approx` does not always tell.

mod backoff;
mod breaker;
mod cache;
mod client;
mod error;
mod pace;
mod settings;
mod wire;

pub use client::Remote;
pub use error::RemoteError;
pub use settings::RemoteSettings;
