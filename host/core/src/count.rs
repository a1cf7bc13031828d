//! Stage 5: triplets → counts, the number of times that words occur together in the corpus.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BoxError, CountMode};

/// Words that must occur near each other: all clauses within one window of the corpus. The corpus is
/// opened with the window's length (1,000 tokens in the paper).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Query {
    /// AND of clauses; a clause is an OR of surface words, as they are written in the text. No
    /// corpus has a count for a query with an empty clause or an empty word.
    pub all_of: Vec<Vec<String>>,
    /// Number up to which the count matters: counting may stop there and report any number at least
    /// this large. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl Query {
    /// Creates a query without a limit.
    #[must_use]
    pub fn new(clauses: impl IntoIterator<Item: IntoIterator<Item: AsRef<str>>>) -> Self {
        let mut all_of = Vec::new();
        for words in clauses {
            all_of.push(words.into_iter().map(|word| word.as_ref().to_owned()).collect());
        }
        Self { all_of, limit: None }
    }

    /// Returns this query with another limit.
    #[must_use]
    pub fn with_limit(self, limit: Option<u64>) -> Self {
        Self { limit, ..self }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clauses: Vec<String> = self.all_of.iter().map(|words| words.join(" OR ")).collect();
        f.write_str(&clauses.join(" AND "))
    }
}

/// The number of matches of a [`Query`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Matches; `None` if the corpus cannot answer the query, such as for a word without tokens.
    pub occurrences: Option<u64>,
    /// Relation of `occurrences` to the true number.
    pub precision: CountPrecision,
}

/// Relation of a count to the true number of matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountPrecision {
    /// The count is the number of matches.
    Exact,
    /// Counting stopped at the query's limit: there may be more matches.
    AtLeast,
    /// The count was scaled up from a sample, and may be off in either direction.
    Estimate,
}

impl CountPrecision {
    /// Returns the precision of the sum of two counts.
    #[must_use]
    pub fn of_sum(self, other: Self) -> Self {
        match (self, other) {
            (Self::Estimate, _) | (_, Self::Estimate) => Self::Estimate,
            (Self::AtLeast, _) | (_, Self::AtLeast) => Self::AtLeast,
            (Self::Exact, Self::Exact) => Self::Exact,
        }
    }
}

impl Count {
    /// Creates an exact count, or the answer to a query that the corpus cannot count.
    #[must_use]
    pub fn exact(occurrences: Option<u64>) -> Self {
        Self { occurrences, precision: CountPrecision::Exact }
    }

    /// True if `occurrences` is the number of matches, or there is no count at all.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.precision == CountPrecision::Exact
    }
}

/// A query and its count, as traces and recordings save them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// The query as the rule requested it.
    pub query: Query,
    /// Count that the corpus returned.
    #[serde(flatten)]
    pub count: Count,
}

/// The corpus that the counts come from. `None`: the source does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorpusInfo {
    /// Tokens of all documents together.
    pub tokens: Option<u64>,
    /// Number of documents.
    pub documents: Option<u64>,
    /// Greatest distance between the clauses of a match, tokens.
    pub window: Option<u64>,
    /// Definition of a match of several clauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<CountMode>,
}

/// A source of counts: an index, a server, a recording, or several of them together.
pub trait Counter: Send {
    /// Returns one count per query, in order. Queries may repeat.
    ///
    /// # Errors
    /// Fails if counting itself fails, such as by a read error or a lost connection. A query without
    /// a count is no error.
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError>;

    /// Describes the corpus.
    fn info(&self) -> CorpusInfo;
}

impl<C: Counter + ?Sized> Counter for &mut C {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        (**self).count(queries)
    }

    fn info(&self) -> CorpusInfo {
        (**self).info()
    }
}

impl<C: Counter + ?Sized> Counter for Box<C> {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        (**self).count(queries)
    }

    fn info(&self) -> CorpusInfo {
        (**self).info()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_displays_operators_and_round_trips_json() {
        let query = Query::new([&["red", "crimson"][..], &["fox"]]).with_limit(Some(20));
        assert_eq!(query.to_string(), "red OR crimson AND fox");
        let json = r#"{"all_of":[["red","crimson"],["fox"]],"limit":20}"#;
        assert_eq!(serde_json::to_string(&query).unwrap(), json);
        assert_eq!(serde_json::from_str::<Query>(json).unwrap(), query);
    }

    #[test]
    fn lookup_serialises_as_flat_json_record() {
        let lookup = Lookup { query: Query::new([["Rome"]]), count: Count::exact(Some(7)) };
        let json = r#"{"query":{"all_of":[["Rome"]]},"occurrences":7,"precision":"exact"}"#;
        assert_eq!(serde_json::to_string(&lookup).unwrap(), json);
        assert_eq!(serde_json::from_str::<Lookup>(json).unwrap(), lookup);
    }

    #[test]
    fn precision_round_trips_json() {
        for (precision, name) in [
            (CountPrecision::Exact, "exact"),
            (CountPrecision::AtLeast, "at_least"),
            (CountPrecision::Estimate, "estimate"),
        ] {
            let query = Query::new([["Rome"]]).with_limit(Some(7));
            let lookup = Lookup { query, count: Count { occurrences: Some(7), precision } };
            let json = serde_json::to_string(&lookup).unwrap();
            assert!(json.contains(&format!(r#""precision":"{name}""#)), "{json}");
            assert_eq!(serde_json::from_str::<Lookup>(&json).unwrap(), lookup);
        }
    }
}
