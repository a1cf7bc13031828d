//! Lengths of an index's documents.

use crate::error::Result;
use crate::index::open::Index;

/// Largest number of documents of a shard whose lengths are read, evenly spaced.
const MAX_SAMPLE: u64 = 1 << 20;

/// The lengths of an index's documents, or of an evenly spaced sample of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentLengths {
    /// Lengths, tokens, in ascending order.
    sorted: Vec<u64>,
}

impl DocumentLengths {
    /// Returns the median length, tokens; the lower one of two. 0 if there is no document.
    #[must_use]
    pub fn median(&self) -> u64 {
        self.sorted.get(self.sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
    }

    /// Returns the share of documents with fewer than this many tokens, from 0 to 1.
    #[must_use]
    pub fn share_below(&self, tokens: u64) -> f64 {
        let below = self.sorted.partition_point(|&length| length < tokens);
        below as f64 / self.sorted.len().max(1) as f64
    }
}

impl Index {
    /// Returns the lengths of the documents in the open shards, without their separators. Of a shard
    /// with more than about a million documents, a sample is read.
    ///
    /// # Errors
    /// Fails if the documents' offsets are damaged.
    pub fn document_lengths(&self) -> Result<DocumentLengths> {
        let mut sorted = Vec::new();
        for shard in self.shards() {
            let stride = shard.num_documents().div_ceil(MAX_SAMPLE).max(1);
            for number in (0..shard.num_documents()).step_by(stride as usize) {
                let document = self.document(shard, number)?;
                sorted.push(document.tokens.end - document.tokens.start);
            }
        }
        sorted.sort_unstable();
        Ok(DocumentLengths { sorted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_median_and_share() {
        let lengths = DocumentLengths { sorted: vec![0, 4, 10, 90] };
        assert_eq!(lengths.median(), 4);
        assert_eq!(
            [0, 4, 5, 90, 91].map(|tokens| lengths.share_below(tokens)),
            [0.0, 0.25, 0.5, 0.75, 1.0]
        );
        let none = DocumentLengths { sorted: Vec::new() };
        assert_eq!((none.median(), none.share_below(1)), (0, 0.0));
    }
}
