//! Which shards of which index are open.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::index::open::Index;

/// The shards of an index that one process has open. Others may be open elsewhere; comparing the
/// parts shows whether every shard is open exactly once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The [`fingerprint`](crate::fingerprint()) of the index.
    pub index: String,
    /// How many shards the index has.
    pub of: usize,
    /// The numbers of those that are open.
    pub shards: RangeInclusive<usize>,
}

impl Index {
    /// The open shards. `None` for an index without a manifest, which does not say how many shards
    /// belong to it.
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
