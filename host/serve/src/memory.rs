//! The memory of requests: bytes of all bodies that are being received or answered.
//!
//! A client that never finishes its body must not keep others out. If the memory is full, an
//! unfinished body is dropped: of the peer whose unfinished bodies are largest together, the one
//! that has occupied most bytes for the longest time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::connections::Peer;

pub(super) struct RequestMemory {
    /// Bytes of all requests.
    bytes: usize,
    /// Bytes of a peer's requests if it has several.
    bytes_per_peer: usize,
    state: Mutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    next_number: u64,
    requests: HashMap<u64, HeldRequest>,
}

struct HeldRequest {
    peer: Peer,
    bytes: usize,
    since: Instant,
    /// Drops the request when it is dropped itself; `None` once the body is complete.
    unfinished: Option<oneshot::Sender<()>>,
}

/// Requests that share memory.
#[derive(Clone, Copy)]
enum Crowd {
    Peer(Peer),
    All,
}

/// Memory of one request, freed on drop.
pub(super) struct RequestBytes {
    memory: Arc<RequestMemory>,
    number: u64,
}

/// The error of a request that finds no memory.
#[derive(Debug, PartialEq)]
pub(super) struct MemoryFull;

impl RequestMemory {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        let bytes_per_peer = bytes / 4 * 3;
        Arc::new(Self { bytes, bytes_per_peer, state: Mutex::default() })
    }

    /// Starts a request, with a receiver that completes if its body is dropped for another.
    pub(super) fn start(self: &Arc<Self>, peer: Peer) -> (RequestBytes, oneshot::Receiver<()>) {
        let (unfinished, dropped) = oneshot::channel();
        let mut state = self.lock();
        let number = state.next_number;
        state.next_number += 1;
        let since = Instant::now();
        let request = HeldRequest { peer, bytes: 0, since, unfinished: Some(unfinished) };
        state.requests.insert(number, request);
        (RequestBytes { memory: self.clone(), number }, dropped)
    }

    /// Returns the requests among which one must give way before request `number` of `peer` gets
    /// further bytes; `None` if there is room.
    fn crowd(&self, state: &MemoryState, number: u64, peer: Peer, bytes: usize) -> Option<Crowd> {
        let mut total = bytes;
        let mut total_of_peer = bytes;
        let mut has_others = false;
        for (other, request) in &state.requests {
            total += request.bytes;
            if request.peer == peer {
                total_of_peer += request.bytes;
                has_others |= *other != number && request.bytes > 0;
            }
        }
        if has_others && total_of_peer > self.bytes_per_peer {
            Some(Crowd::Peer(peer))
        } else {
            (total > self.bytes).then_some(Crowd::All)
        }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        // Every change is one insertion, removal or assignment, so a panic leaves a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryState {
    /// Returns the unfinished request that gives way; `None` if no unfinished request occupies
    /// memory.
    fn most_wasteful(&self, crowd: Crowd) -> Option<u64> {
        let mut unfinished_bytes: HashMap<Peer, usize> = HashMap::new();
        for request in self.requests.values() {
            if request.unfinished.is_some() {
                *unfinished_bytes.entry(request.peer).or_default() += request.bytes;
            }
        }
        let mut most = None;
        for (number, request) in &self.requests {
            let is_in_crowd = match crowd {
                Crowd::Peer(peer) => request.peer == peer,
                Crowd::All => true,
            };
            if !is_in_crowd || request.unfinished.is_none() || request.bytes == 0 {
                continue;
            }
            let byte_seconds = request.bytes as f64 * request.since.elapsed().as_secs_f64();
            let rank = (unfinished_bytes[&request.peer], byte_seconds);
            if most.is_none_or(|(best, _)| rank > best) {
                most = Some((rank, *number));
            }
        }
        most.map(|(_, number)| number)
    }
}

impl RequestBytes {
    /// Reserves further bytes. Other requests may be dropped for them.
    ///
    /// # Errors
    /// Fails if this request was dropped, or would be the next to be dropped.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), MemoryFull> {
        let mut state = self.memory.lock();
        let Some(peer) = state.requests.get(&self.number).map(|request| request.peer) else {
            return Err(MemoryFull);
        };
        while let Some(crowd) = self.memory.crowd(&state, self.number, peer, bytes) {
            match state.most_wasteful(crowd) {
                Some(number) if number != self.number => drop(state.requests.remove(&number)),
                _ => return Err(MemoryFull),
            }
        }
        if let Some(request) = state.requests.get_mut(&self.number) {
            request.bytes += bytes;
        }
        Ok(())
    }

    /// Marks the body as complete: it is not dropped any more.
    ///
    /// # Errors
    /// Fails if it was dropped.
    pub(super) fn finish(&self) -> Result<(), MemoryFull> {
        match self.memory.lock().requests.get_mut(&self.number) {
            Some(request) => {
                request.unfinished = None;
                Ok(())
            }
            None => Err(MemoryFull),
        }
    }
}

impl Drop for RequestBytes {
    fn drop(&mut self) {
        self.memory.lock().requests.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Held = (RequestBytes, oneshot::Receiver<()>);

    fn start(memory: &Arc<RequestMemory>, address: &str) -> Held {
        memory.start(address.parse().unwrap())
    }

    fn is_dropped((_, dropped): &mut Held) -> bool {
        matches!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    /// Makes a request older than it is.
    fn age(memory: &RequestMemory, (held, _): &Held, seconds: u64) {
        let mut state = memory.lock();
        let request = state.requests.get_mut(&held.number).unwrap();
        request.since -= std::time::Duration::from_secs(seconds);
    }

    #[test]
    fn unfinished_body_gives_way_by_bytes_and_age() {
        let memory = RequestMemory::new(100);
        let finished = start(&memory, "10.0.0.1");
        let mut large = start(&memory, "10.0.0.1");
        let mut old = start(&memory, "10.0.0.1");
        for (request, bytes) in [(&finished, 25), (&large, 30), (&old, 20)] {
            request.0.reserve(bytes).unwrap();
        }
        finished.0.finish().unwrap();
        age(&memory, &finished, 900);
        age(&memory, &large, 10);
        age(&memory, &old, 60); // 1,200 byte seconds; the large one has 300
        let newest = start(&memory, "10.0.0.1");
        newest.0.reserve(1).unwrap();
        assert!(is_dropped(&mut old) && !is_dropped(&mut large));
        assert_eq!((old.0.reserve(1), old.0.finish()), (Err(MemoryFull), Err(MemoryFull)));
        newest.0.reserve(40).unwrap();
        assert!(is_dropped(&mut large) && memory.lock().requests.contains_key(&finished.0.number));
        newest.0.finish().unwrap();
        assert_eq!(start(&memory, "10.0.0.1").0.reserve(10), Err(MemoryFull), "all are complete");
    }

    #[test]
    fn peer_has_three_quarters_and_gives_way_to_others() {
        let memory = RequestMemory::new(100);
        let mut crowd = [(); 3].map(|()| start(&memory, "10.0.0.1"));
        for request in &crowd {
            request.0.reserve(25).unwrap();
        }
        let late = start(&memory, "10.0.0.1");
        age(&memory, &crowd[1], 5);
        late.0.reserve(5).unwrap();
        assert_eq!(crowd.each_mut().map(is_dropped), [false, true, false]);

        let other = start(&memory, "10.0.0.2");
        age(&memory, &other, 900);
        other.0.reserve(70).unwrap();
        assert_eq!(crowd.each_mut().map(is_dropped).iter().filter(|&&dropped| dropped).count(), 2);
        assert_eq!(other.0.reserve(60), Err(MemoryFull), "it is the largest itself");
        other.0.finish().unwrap();

        drop((other, late, crowd));
        let lone = start(&memory, "10.0.0.1");
        lone.0.reserve(100).unwrap();
        assert_eq!(lone.0.reserve(1), Err(MemoryFull));
    }
}
