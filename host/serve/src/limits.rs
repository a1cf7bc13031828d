//! Limits of a server for every route.

use std::time::Duration;

/// Limits on the time and the memory that clients may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Longest time for a request's head to arrive, and again for its body.
    pub time: Duration,
    /// Longest time for a client to read an answer.
    pub write_time: Duration,
    /// Longest time for open requests after the server is stopped.
    pub grace: Duration,
    /// Connections open at the same time; 1 or more.
    pub connections: usize,
    /// Connections of one peer, an IPv4 address or a /64 network of IPv6; 1 or more.
    pub connections_per_peer: usize,
    /// Bytes of all requests that are being read or answered; 1 or more. Several requests of one
    /// peer have at most three quarters of them.
    pub request_bytes: usize,
}

impl Default for ServerLimits {
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
