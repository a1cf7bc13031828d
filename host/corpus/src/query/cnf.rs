//! What to count: AND of ORs of n-grams, near each other.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// AND of clauses; a clause is an OR of terms; a term is an n-gram of token ids. Nothing in it is
/// empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cnf(Vec<Vec<Vec<u32>>>);

impl Cnf {
    /// Checks that there is a clause, and in each clause a term, and in each term a token.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names the part that is empty.
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

    /// The clauses.
    pub fn clauses(&self) -> &[Vec<Vec<u32>>] {
        &self.0
    }
}

/// What [`Index::count_cnf`](crate::Index::count_cnf) counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Bit-equal to the official engine (`infini-gram` 2.6.0): a clause above the cap is cut to a
    /// pseudo-random part of its occurrences and the count scaled up, and a document boundary is
    /// two (for u16) adjacent `FF` bytes at any alignment.
    #[default]
    Compatible,
    /// The same rule, but no clause is ever cut, and a document boundary is a separator token.
    ///
    /// Distances are measured from range to occurrence, from first token to first token, so a match
    /// of three clauses can be twice as long as [`CnfOptions::max_diff_tokens`]. And a match is not
    /// counted where its clause also occurs within that distance in the neighbouring document.
    Exact,
    /// The shortest stretches of text that hold everything: a match is a run of at most
    /// [`CnfOptions::max_diff_tokens`] tokens of one document, first and last token counted, that holds some whole term of
    /// every clause, and inside which no shorter run has that property.
    ///
    /// The number depends neither on the order of the clauses, nor on how the documents are divided
    /// into shards, nor on text outside the match. `a b a` holds two matches of a AND b; `a a b`
    /// one.
    Span,
}

/// The settings of a co-occurrence count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CnfOptions {
    /// Occurrences of a clause, over all shards, above which [`Mode::Compatible`] cuts it. At least
    /// 1.
    pub max_clause_freq: u64,
    /// How far the next clause may be from the range so far, in tokens; in [`Mode::Span`] the
    /// length of a match. At least 1.
    pub max_diff_tokens: u64,
    /// What to count.
    pub mode: Mode,
}

/// The paper's settings: 500,000 occurrences, 1,000 tokens, the official engine's numbers.
impl Default for CnfOptions {
    fn default() -> Self {
        Self { max_clause_freq: 500_000, max_diff_tokens: 1_000, mode: Mode::Compatible }
    }
}

impl CnfOptions {
    /// # Errors
    /// Where an option is 0.
    pub(crate) fn check(&self) -> Result<()> {
        let options =
            [("max_clause_freq", self.max_clause_freq), ("max_diff_tokens", self.max_diff_tokens)];
        match options.into_iter().find(|&(_, value)| value == 0) {
            Some((option, got)) => Err(Error::option(option, got, "at least 1")),
            None => Ok(()),
        }
    }
}

/// The answer of [`Index::count_cnf`](crate::Index::count_cnf).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CnfCount {
    /// Matches found, scaled up where clauses were cut.
    pub count: u64,
    /// The official engine's flag: the count was scaled. It is *not* set where clauses kept more
    /// than half of their occurrences.
    pub approx: bool,
    /// Some clause was cut, whether or not the count was scaled for it.
    pub sampled: bool,
    /// The search stopped at `enough`; there may be more matches than `count`.
    pub at_least: bool,
}

impl CnfCount {
    /// Whether `count` is the number of matches, and neither an estimate nor a lower bound.
    pub fn is_exact(&self) -> bool {
        !self.sampled && !self.at_least
    }
}
