//! Stage 5: triplets → counts. How often words occur together in the corpus.

use serde::{Deserialize, Serialize};

use crate::PartError;

/// Asks how often all clauses occur within the window that the index was opened with (the paper: 1,000 tokens).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Query {
    /// AND of clauses; a clause is an OR of surface words, as they are written in the text.
    pub all_of: Vec<Vec<String>>,
    /// “I need not know the count beyond this”: the index may stop early and report any number at least this large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enough: Option<u64>,
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, clause) in self.all_of.iter().enumerate() {
            if i > 0 {
                f.write_str(" AND ")?;
            }
            f.write_str(&clause.join(" OR "))?;
        }
        Ok(())
    }
}

/// The index's answer to one [`Query`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// What was asked.
    pub query: Query,
    /// Matches found; `None` where the index cannot answer this query (a word without tokens, say).
    pub occurrences: Option<u64>,
    /// `false` where the number is an estimate from a sample or stopped at `enough`.
    pub exact: bool,
}

/// The corpus index, or anything that answers in its place.
pub trait Counter {
    /// One count per query, in order.
    ///
    /// # Errors
    /// Where the index itself fails (a read error, a lost connection); a query without an answer is no error.
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError>;
}
