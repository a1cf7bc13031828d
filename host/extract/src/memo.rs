//! Remembers what was extracted, up to a bound.

use std::collections::HashMap;

use corver_core::Triplet;

/// A map in two generations: when the young one is full it becomes the old one, and what has not been asked for since is
/// forgotten with the one before. Bounded and cheap; which entry goes first does not matter here.
pub(crate) struct Memo {
    young: HashMap<String, Vec<Triplet>>,
    old: HashMap<String, Vec<Triplet>>,
    /// Entries per generation.
    capacity: usize,
}

impl Memo {
    /// Holds at most `2 × capacity` entries.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), capacity }
    }

    pub(crate) fn get(&mut self, sentence: &str) -> Option<&[Triplet]> {
        if let Some((sentence, triplets)) = self.old.remove_entry(sentence) {
            self.insert(sentence, triplets);
        }
        self.young.get(sentence).map(Vec::as_slice)
    }

    pub(crate) fn insert(&mut self, sentence: String, triplets: Vec<Triplet>) {
        if self.young.len() >= self.capacity {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(sentence, triplets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_keeps_what_is_asked_for() {
        let mut memo = Memo::new(10);
        for n in 0..1000 {
            memo.insert(n.to_string(), Vec::new());
            assert!(memo.get("0").is_some(), "asked for in every round, yet forgotten after {n}");
            assert!(memo.young.len() + memo.old.len() <= 20);
        }
        assert!(memo.get("5").is_none());
        assert!(memo.get("999").is_some());
    }
}
