//! A bounded memory of replies.

use std::collections::HashMap;
use std::sync::Arc;

/// A map from sentences to replies, in two generations. A full young generation becomes the old one;
/// entries of the old one are discarded unless they have been used since. That approximates an LRU
/// cache at the cost of two hash maps.
pub(crate) struct ReplyMemo {
    young: HashMap<Arc<str>, Arc<str>>,
    old: HashMap<Arc<str>, Arc<str>>,
    /// Most entries of a generation.
    capacity: usize,
}

impl ReplyMemo {
    /// Returns an empty memo, of at most `2 × capacity` entries.
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
        let mut memo = ReplyMemo::new(10);
        for n in 0..1000 {
            memo.insert(n.to_string().into(), "[]".into());
            assert!(memo.get("0").is_some(), "used in every round, yet discarded after {n}");
            assert!(memo.young.len() + memo.old.len() <= 20);
        }
        assert!(memo.get("5").is_none());
        assert!(memo.get("999").is_some());
    }
}
