//! What a server takes from its clients, whatever they ask.

use std::time::Duration;

/// What a client may hold, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long a request's head may take to arrive, and then its body.
    pub time: Duration,
    /// How long a client may take to read an answer.
    pub write_time: Duration,
    /// How long requests under way may take once the server is told to stop.
    pub grace: Duration,
    /// Connections open at the same time.
    pub connections: usize,
    /// Connections of one peer: an IPv4 address, or a /64 network of IPv6.
    pub connections_per_peer: usize,
    /// Bytes of all requests that are being read or answered.
    pub request_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(30),
            write_time: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            connections: 512,
            connections_per_peer: 64,
            request_bytes: 64 << 20,
        }
    }
}
