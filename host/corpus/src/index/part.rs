//! The open shards of an index.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::index::open::Index;

/// The shards of an index that one process has open. Comparing the parts of several processes shows
/// if every shard is open exactly once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// [`fingerprint`](crate::fingerprint()) of the index.
    pub index: String,
    /// Number of shards in the index.
    pub of: usize,
    /// Numbers of the open shards, from 0.
    pub shards: RangeInclusive<usize>,
}

impl Index {
    /// Returns the open shards; `None` if the index has no manifest, and so an unknown number of
    /// shards.
    #[must_use]
    pub fn part(&self) -> Option<Part> {
        let manifest = self.manifest()?;
        let mut numbers = self.shards().map(|shard| shard.number);
        let first = numbers.next()?;
        let last = numbers.last().unwrap_or(first);
        Some(Part {
            index: manifest.fingerprint.clone(),
            of: manifest.shards,
            shards: first..=last,
        })
    }
}
