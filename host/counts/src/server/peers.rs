//! How many connections each peer has.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// Bounds the connections of one address, so that one client alone cannot take them all.
#[derive(Debug)]
pub(super) struct Peers {
    limit: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection's place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl Peers {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, open: Mutex::default() })
    }

    /// `None` where the peer has as many as it may.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let mut open = self.lock();
        let connections = open.entry(peer).or_default();
        if *connections >= self.limit {
            return None;
        }
        *connections += 1;
        Some(Place { peers: self.clone(), peer })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // a number is never half-written
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.peers.lock();
        if let Some(connections) = open.get_mut(&self.peer) {
            *connections -= 1;
            if *connections == 0 {
                open.remove(&self.peer);
            }
        }
    }
}
