//! Remembers replies, up to a bound.

use std::collections::HashMap;
use std::sync::Arc;

/// A map in two generations: when the young one is full it becomes the old one, and what has not
/// been asked for since is forgotten with the one before. Bounded and cheap; which entry goes first
/// does not matter here.
pub(crate) struct Memo {
    young: HashMap<Arc<str>, Arc<str>>,
    old: HashMap<Arc<str>, Arc<str>>,
    /// Entries per generation.
    capacity: usize,
}

impl Memo {
    /// Holds at most `2 × capacity` entries.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), capacity }
    }

    pub(crate) fn get(&mut self, sentence: &str) -> Option<&Arc<str>> {
        if let Some((sentence, reply)) = self.old.remove_entry(sentence) {
            self.insert(sentence, reply);
        }
        self.young.get(sentence)
    }

    pub(crate) fn insert(&mut self, sentence: Arc<str>, reply: Arc<str>) {
        if self.young.len() >= self.capacity {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(sentence, reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memo_is_bounded_and_retains_recent_entries() {
        let mut memo = Memo::new(10);
        for n in 0..1000 {
            memo.insert(n.to_string().into(), "[]".into());
            assert!(memo.get("0").is_some(), "asked for in every round, yet forgotten after {n}");
            assert!(memo.young.len() + memo.old.len() <= 20);
        }
        assert!(memo.get("5").is_none());
        assert!(memo.get("999").is_some());
    }
}
