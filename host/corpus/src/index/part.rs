//! Which shards of which index are open.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::fingerprint::fingerprint;
use crate::index::open::Index;

/// The shards of an index that one process has open. The others may be open elsewhere: the parts tell whether all of them
/// together are the index, each shard once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The [`fingerprint`] of the index.
    pub index: String,
    /// How many shards the index has.
    pub of: usize,
    /// The numbers of those that are open.
    pub shards: RangeInclusive<usize>,
}

impl Index {
    /// What is open here. `None` in an index without a manifest: nothing says there what else belongs to it.
    ///
    /// # Errors
    /// Where the manifest cannot be read again.
    pub fn part(&self) -> Result<Option<Part>> {
        let numbers = || self.shards().map(|shard| shard.number);
        let (Some(manifest), Some(first), Some(last)) = (self.manifest(), numbers().min(), numbers().max()) else {
            return Ok(None);
        };
        Ok(Some(Part { index: fingerprint(self.path())?, of: manifest.shards, shards: first..=last }))
    }
}
