//! Who is connected, and which connection is closed where a new one finds no place.
//!
//! A connection counts as waiting while its client has the next move: it is to send a request, or
//! to read an answer. Where no place is left, the connection that has waited longest is closed, so
//! that clients that never finish cannot keep others out.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::Limits;

/// Between two warnings that there are too many connections.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Whoever is counted as one client.
type Peer = IpAddr;

pub(super) struct Places {
    connections: usize,
    per_peer: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    taken: HashMap<u64, Taken>,
    warned: Option<Instant>,
}

struct Taken {
    peer: Peer,
    /// Since when it has been waiting; `None` while its request is worked on.
    waiting: Option<Instant>,
    /// Dropped to close the connection.
    _keep: oneshot::Sender<()>,
}

/// The place of one connection, given back on drop.
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
}

/// While it lives, a connection's request is worked on.
pub(super) struct Working<'a>(&'a Place);

impl Places {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let Limits { connections, connections_per_peer, .. } = *limits;
        Arc::new(Self { connections, per_peer: connections_per_peer, inner: Mutex::default() })
    }

    /// A place for a new connection, and what ends when it must give way; `None` where every place
    /// that it could have is at work.
    pub(super) fn admit(
        self: &Arc<Self>,
        address: IpAddr,
    ) -> Option<(Place, oneshot::Receiver<()>)> {
        let peer = peer(address);
        let mut inner = self.lock();
        let of_peer = inner.taken.values().filter(|taken| taken.peer == peer).count();
        let full = if of_peer >= self.per_peer {
            Some(inner.give_way(|other| other == peer))
        } else if inner.taken.len() >= self.connections {
            Some(inner.give_way(|_| true))
        } else {
            None
        };
        if let Some(gave_way) = full {
            inner.warn(address, gave_way);
            if !gave_way {
                return None;
            }
        }
        let (keep, gives_way) = oneshot::channel();
        let number = inner.next;
        inner.next += 1;
        inner.taken.insert(number, Taken { peer, waiting: Some(Instant::now()), _keep: keep });
        Some((Place { places: self.clone(), number }, gives_way))
    }

    /// Closes the connection that has waited longest, of the peer that has most.
    pub(super) fn make_room(&self) {
        self.lock().give_way(|_| true);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner) // every change is one insertion, removal or assignment
    }
}

impl Inner {
    /// Closes the longest waiting connection of these peers, of the one that has most connections;
    /// whether there was one.
    fn give_way(&mut self, of: impl Fn(Peer) -> bool) -> bool {
        let mut held: HashMap<Peer, usize> = HashMap::new();
        self.taken.values().for_each(|taken| *held.entry(taken.peer).or_default() += 1);
        let waiting = self
            .taken
            .iter()
            .filter_map(|(number, taken)| Some((*number, taken.peer, taken.waiting?)));
        let first = waiting
            .filter(|(_, peer, _)| of(*peer))
            .max_by_key(|(_, peer, since)| (held[peer], Reverse(*since)));
        first.and_then(|(number, ..)| self.taken.remove(&number)).is_some()
    }

    fn warn(&mut self, address: IpAddr, gave_way: bool) {
        tracing::debug!(%address, gave_way, "a connection beyond the limits");
        if self.warned.is_none_or(|last| last.elapsed() > WARN_EVERY) {
            self.warned = Some(Instant::now());
            tracing::warn!(%address, open = self.taken.len(), "too many connections: the longest waiting ones are closed");
        }
    }
}

impl Place {
    /// States that a whole request is worked on, until the value is dropped.
    pub(super) fn work(&self) -> Working<'_> {
        self.set_waiting(None);
        Working(self)
    }

    fn set_waiting(&self, since: Option<Instant>) {
        if let Some(taken) = self.places.lock().taken.get_mut(&self.number) {
            taken.waiting = since;
        }
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.set_waiting(Some(Instant::now()));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().taken.remove(&self.number);
    }
}

/// One customer of a provider has a whole /64 network of IPv6.
fn peer(address: IpAddr) -> Peer {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Admitted = (Place, oneshot::Receiver<()>);

    fn places(connections: usize, connections_per_peer: usize) -> Arc<Places> {
        Places::new(&Limits { connections, connections_per_peer, ..Limits::default() })
    }

    fn admit(places: &Arc<Places>, address: &str) -> Option<Admitted> {
        places.admit(address.parse().unwrap())
    }

    fn is_closed((_, gives_way): &mut Admitted) -> bool {
        matches!(gives_way.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    #[test]
    fn peer_at_limit_displaces_own_longest_idle() {
        let places = places(10, 2);
        let mut other = admit(&places, "10.0.0.1").unwrap();
        let mut first = admit(&places, "10.0.0.2").unwrap();
        let mut second = admit(&places, "10.0.0.2").unwrap();
        drop(first.0.work()); // an exchange: the second has waited longer now
        let mut third = admit(&places, "::ffff:10.0.0.2").unwrap();
        assert_eq!(
            [&mut other, &mut first, &mut second, &mut third].map(is_closed),
            [false, false, true, false]
        );

        let (_first, _third) = (first.0.work(), third.0.work());
        assert!(admit(&places, "10.0.0.2").is_none(), "what is worked on is not given up");
        assert!(admit(&places, "10.0.0.3").is_some());
    }

    #[test]
    fn full_server_displaces_busiest_peer() {
        let places = places(3, 3);
        let mut lone = admit(&places, "10.0.0.1").unwrap();
        let mut crowd =
            ["2001:db8::1", "2001:db8::2"].map(|address| admit(&places, address).unwrap());
        let mut newcomer = admit(&places, "10.0.0.3").unwrap();
        assert!(
            !is_closed(&mut lone) && !is_closed(&mut newcomer),
            "the lone one has waited longest"
        );
        assert_eq!(
            crowd.each_mut().map(is_closed),
            [true, false],
            "two addresses of one network are one peer"
        );
        drop(newcomer);
        assert!(
            admit(&places, "10.0.0.4").is_some() && !is_closed(&mut lone),
            "a place that was given back is free"
        );
    }
}
