//! The limit on open connections, and the choice of a connection to close for a new one.
//!
//! A connection is idle while its client has the next move: to send a request, or to read an
//! answer. If no slot is free, the connection that has been idle longest is closed, so that clients
//! that never finish cannot lock others out.
//!
//! A connection is pipelined once a whole request was already there when the answer to the one
//! before was ready. It is never busy again, and closed before others: else a client that sends
//! requests and reads no answer would hold its slot. A client that times its segments well avoids
//! the mark, so this is no promise.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::ServerLimits;

/// Interval between two warnings of too many connections.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Address or network that counts as one client.
pub(super) type Peer = IpAddr;

pub(super) struct ConnectionLimiter {
    connections: usize,
    per_peer: usize,
    state: Mutex<LimiterState>,
}

#[derive(Default)]
struct LimiterState {
    next_number: u64,
    open: HashMap<u64, OpenConnection>,
    last_warning: Option<Instant>,
}

struct OpenConnection {
    peer: Peer,
    /// Start of the idle time; `None` while a request is answered, unless pipelined.
    idle_since: Option<Instant>,
    /// True once a whole request had arrived before the answer to the one before was ready.
    is_pipelined: bool,
    /// Closes the connection when dropped.
    _closer: oneshot::Sender<()>,
}

/// Slot of one connection, freed on drop.
pub(super) struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    number: u64,
    pub(super) peer: Peer,
    /// Set when bytes arrive; cleared when an answer is ready, before it is sent.
    received: Arc<AtomicBool>,
}

/// Guard of a request that is being answered.
pub(super) struct BusyGuard<'a>(&'a ConnectionSlot);

impl ConnectionLimiter {
    pub(super) fn new(limits: &ServerLimits) -> Arc<Self> {
        Arc::new(Self {
            connections: limits.connections,
            per_peer: limits.connections_per_peer,
            state: Mutex::default(),
        })
    }

    /// Returns a slot for a new connection, and a receiver that completes when the connection must
    /// close; `None` if every slot that it could have is busy. `received` is set when bytes arrive.
    pub(super) fn admit(
        self: &Arc<Self>,
        address: IpAddr,
        received: Arc<AtomicBool>,
    ) -> Option<(ConnectionSlot, oneshot::Receiver<()>)> {
        let peer = peer(address);
        let mut state = self.lock();
        let num_of_peer = state.open.values().filter(|other| other.peer == peer).count();
        let is_peer_full = num_of_peer >= self.per_peer;
        if is_peer_full || state.open.len() >= self.connections {
            let closed = state.close_longest_idle(is_peer_full.then_some(peer));
            state.warn(address, closed);
            if !closed {
                return None;
            }
        }
        let (closer, yields) = oneshot::channel();
        let number = state.next_number;
        state.next_number += 1;
        let connection = OpenConnection {
            peer,
            idle_since: Some(Instant::now()),
            is_pipelined: false,
            _closer: closer,
        };
        state.open.insert(number, connection);
        Some((ConnectionSlot { limiter: self.clone(), number, peer, received }, yields))
    }

    /// Closes the longest idle connection of the peer that has most.
    pub(super) fn make_room(&self) {
        self.lock().close_longest_idle(None);
    }

    fn lock(&self) -> MutexGuard<'_, LimiterState> {
        // Every change is one insertion, removal or assignment, so a panic leaves a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimiterState {
    /// Closes a pipelined connection, or else the longest idle one, of `peer`, or else of the peer that
    /// has most connections. Returns `false` if none is idle.
    fn close_longest_idle(&mut self, peer: Option<Peer>) -> bool {
        let mut num_open: HashMap<Peer, usize> = HashMap::new();
        for connection in self.open.values() {
            *num_open.entry(connection.peer).or_default() += 1;
        }
        let mut longest = None;
        for (number, connection) in &self.open {
            let Some(since) = connection.idle_since else { continue };
            if peer.is_some_and(|peer| connection.peer != peer) {
                continue;
            }
            let rank = (num_open[&connection.peer], connection.is_pipelined, Reverse(since));
            if longest.is_none_or(|(best, _)| rank >= best) {
                longest = Some((rank, *number));
            }
        }
        longest.is_some_and(|(_, number)| self.open.remove(&number).is_some())
    }

    fn warn(&mut self, address: IpAddr, closed_another: bool) {
        tracing::debug!(%address, closed_another, "a connection beyond the limits");
        if self.last_warning.is_none_or(|last| last.elapsed() > WARN_EVERY) {
            self.last_warning = Some(Instant::now());
            tracing::warn!(
                %address,
                open = self.open.len(),
                "too many connections: the longest idle ones are closed"
            );
        }
    }
}

impl ConnectionSlot {
    /// Marks the connection as busy until the guard is dropped, unless it is pipelined.
    pub(super) fn start_request(&self) -> BusyGuard<'_> {
        let has_waited = self.received.load(Ordering::Relaxed);
        self.update(|connection| {
            connection.is_pipelined |= !has_waited;
            if !connection.is_pipelined {
                connection.idle_since = None;
            }
        });
        BusyGuard(self)
    }

    fn update(&self, change: impl FnOnce(&mut OpenConnection)) {
        if let Some(connection) = self.limiter.lock().open.get_mut(&self.number) {
            change(connection);
        }
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.0.received.store(false, Ordering::Relaxed);
        self.0.update(|connection| connection.idle_since = Some(Instant::now()));
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.limiter.lock().open.remove(&self.number);
    }
}

/// Returns the peer of an address. A provider assigns a /64 network of IPv6 to one customer.
fn peer(address: IpAddr) -> Peer {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Admitted = (ConnectionSlot, oneshot::Receiver<()>);

    fn limiter(connections: usize, connections_per_peer: usize) -> Arc<ConnectionLimiter> {
        ConnectionLimiter::new(&ServerLimits {
            connections,
            connections_per_peer,
            ..ServerLimits::default()
        })
    }

    fn admit(limiter: &Arc<ConnectionLimiter>, address: &str) -> Option<Admitted> {
        limiter.admit(address.parse().unwrap(), Arc::new(AtomicBool::new(true)))
    }

    fn is_closed((_, yields): &mut Admitted) -> bool {
        matches!(yields.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    #[test]
    fn peer_at_limit_displaces_own_longest_idle() {
        let limiter = limiter(10, 2);
        let mut other = admit(&limiter, "10.0.0.1").unwrap();
        let mut first = admit(&limiter, "10.0.0.2").unwrap();
        let mut second = admit(&limiter, "10.0.0.2").unwrap();
        drop(first.0.start_request()); // an exchange: the second is idle for longer now
        let mut third = admit(&limiter, "::ffff:10.0.0.2").unwrap();
        assert_eq!(
            [&mut other, &mut first, &mut second, &mut third].map(is_closed),
            [false, false, true, false]
        );

        first.0.received.store(true, Ordering::Relaxed);
        let (_first, _third) = (first.0.start_request(), third.0.start_request());
        assert!(admit(&limiter, "10.0.0.2").is_none(), "busy connections are not closed");
        assert!(admit(&limiter, "10.0.0.3").is_some());
    }

    #[test]
    fn pipelined_connection_is_displaced_first() {
        let limiter = limiter(2, 2);
        let (waiting, mut waiting_yields) = admit(&limiter, "10.0.0.1").unwrap();
        drop(waiting.start_request()); // idle for longer
        let (pipelined, mut pipelined_yields) = admit(&limiter, "10.0.0.1").unwrap();
        drop(pipelined.start_request());
        let _busy = pipelined.start_request();
        assert!(admit(&limiter, "10.0.0.1").is_some());
        assert_eq!(pipelined_yields.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(waiting_yields.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    }

    #[test]
    fn full_server_displaces_busiest_peer() {
        let limiter = limiter(3, 3);
        let mut lone = admit(&limiter, "10.0.0.1").unwrap();
        let mut crowd =
            ["2001:db8::1", "2001:db8::2"].map(|address| admit(&limiter, address).unwrap());
        let mut newcomer = admit(&limiter, "10.0.0.3").unwrap();
        assert!(!is_closed(&mut lone) && !is_closed(&mut newcomer), "the lone one is idle longest");
        assert_eq!(
            crowd.each_mut().map(is_closed),
            [true, false],
            "two addresses of one network are one peer"
        );
        drop(newcomer);
        assert!(
            admit(&limiter, "10.0.0.4").is_some() && !is_closed(&mut lone),
            "a freed slot is available"
        );
    }
}
