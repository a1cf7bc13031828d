//! Infini-gram's HTTP API, answered from a local index: one machine with a big index serves many trainers, and programs
//! written for the public API need only another URL.
//!
//! A POST to `/` holds `{"index", "query_type": "count", "query" or "query_ids", "max_clause_freq", "max_diff_tokens"}`; the
//! answer is `{"count", "approx", "exact", "latency", "token_ids", "tokens"}` or `{"error"}`. `"exact"`, in a request as in an
//! answer, goes beyond the public API.

mod answer;
mod server;

pub use answer::Limits;
pub use server::ServeError;
pub use server::Server;
