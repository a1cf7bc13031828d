//! What a server takes from its clients.

use std::time::Duration;

/// What a request may be, what a client may hold, and for how long.
///
/// The public server takes four clauses of four terms, too few for a rule that asks with every content word of two names.
/// These take what `rule.limits` lets a rule ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
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
    /// How long a request's head may take to arrive, then its body, and then its count.
    pub time: Duration,
    /// How long a client may take to read an answer.
    pub write_time: Duration,
    /// How long requests under way may take once the server is told to stop.
    pub grace: Duration,
    /// Connections open at the same time.
    pub connections: usize,
    /// Connections of one peer: an IPv4 address, or a /64 network of IPv6.
    pub connections_per_peer: usize,
}

impl Default for Limits {
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
            write_time: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            connections: 512,
            connections_per_peer: 64,
        }
    }
}
