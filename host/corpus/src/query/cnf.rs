//! Queries: AND of ORs of n-grams near each other, with their options and counts.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A query: an AND of clauses. A clause is an OR of terms, and a term an n-gram of token ids. None
/// of them is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cnf(Vec<Vec<Vec<u32>>>);

impl Cnf {
    /// Creates a query.
    ///
    /// # Errors
    /// Fails with [`Error::InvalidArgument`] if the query, a clause or a term is empty.
    pub fn new(clauses: Vec<Vec<Vec<u32>>>) -> Result<Self> {
        if clauses.is_empty() {
            return Err(Error::empty_query("query"));
        }
        if clauses.iter().any(Vec::is_empty) {
            return Err(Error::empty_query("clause"));
        }
        if clauses.iter().flatten().any(Vec::is_empty) {
            return Err(Error::empty_query("term"));
        }
        Ok(Self(clauses))
    }

    /// Returns the clauses, each a list of terms.
    pub fn clauses(&self) -> &[Vec<Vec<u32>>] {
        &self.0
    }
}

/// A definition of a match of several clauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Bit-equal to the official engine (`infini-gram` 2.6.0). A clause above the cap is reduced to
    /// a pseudo-random sample and the count scaled up. A document boundary is two (for u16) adjacent
    /// `FF` bytes at any alignment.
    #[default]
    Compatible,
    /// Occurrences of the *counted clause* that have every other clause near them, in their
    /// document.
    ///
    /// A clause occurs at a position if one of its terms begins there; two terms that begin at one
    /// position are one occurrence. The counted clause is the one with the fewest occurrences in
    /// all shards together, and the first of those in the query. An occurrence of another clause is
    /// near if it begins in the same document, at most [`CnfOptions::max_diff_tokens`] tokens before
    /// or after.
    ///
    /// Nothing is sampled. The count does not depend on the division of documents into shards, or on
    /// the text of other documents.
    Exact,
    /// As [`Mode::Exact`], but the counted clause is the first of the query. It serves a sum of
    /// several indexes: none of them can know which clause is the rarest of all.
    ExactFirst,
    /// The shortest spans of text with all clauses. A match is a run of at most
    /// [`CnfOptions::max_diff_tokens`] tokens of one document, first and last token included. It
    /// contains a complete term of every clause, and no shorter run inside it does.
    ///
    /// The count does not depend on the order of the clauses, the division of documents into shards,
    /// or text outside the match. `a b a` has two matches of a AND b; `a a b` has one.
    Span,
}

/// The options of a co-occurrence count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CnfOptions {
    /// Number of occurrences of a clause, over all shards, above which [`Mode::Compatible`] samples
    /// it; 1 or more.
    pub max_clause_freq: u64,
    /// Greatest distance of a clause from the range so far, tokens; 1 or more. In [`Mode::Span`],
    /// the greatest length of a match.
    pub max_diff_tokens: u64,
    /// Definition of a match.
    pub mode: Mode,
}

/// The paper's settings: 500,000 occurrences, 1,000 tokens, [`Mode::Compatible`].
impl Default for CnfOptions {
    fn default() -> Self {
        Self { max_clause_freq: 500_000, max_diff_tokens: 1_000, mode: Mode::Compatible }
    }
}

impl CnfOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// Fails if an option is 0.
    pub(crate) fn check(&self) -> Result<()> {
        let options =
            [("max_clause_freq", self.max_clause_freq), ("max_diff_tokens", self.max_diff_tokens)];
        match options.into_iter().find(|&(_, value)| value == 0) {
            Some((option, got)) => Err(Error::option(option, got, "at least 1")),
            None => Ok(()),
        }
    }
}

/// The count of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CnfCount {
    /// Number of matches found, scaled up if clauses were sampled.
    pub count: u64,
    /// Flag of the official engine: true if the count was scaled up. It is *not* set if the samples
    /// have more than half of the occurrences.
    pub approx: bool,
    /// True if a clause was sampled, also if the count was not scaled up for it.
    pub sampled: bool,
    /// True if the search stopped at the limit: there may be more matches than `count`.
    pub at_least: bool,
}

/// The name of the mode in requests.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compatible => "compatible",
            Self::Exact => "exact",
            Self::ExactFirst => "exact_first",
            Self::Span => "span",
        })
    }
}

impl Mode {
    /// True if occurrences of one clause are counted that have the others in their document.
    pub(crate) fn counts_occurrences(self) -> bool {
        matches!(self, Self::Exact | Self::ExactFirst)
    }
}

impl CnfCount {
    /// True if `count` is the number of matches, and neither an estimate nor a lower bound.
    pub fn is_exact(&self) -> bool {
        !self.sampled && !self.at_least
    }
}
