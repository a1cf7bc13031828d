//! Stage 5: triplets → counts. How often words occur together in the corpus.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::PartError;

/// How often do all clauses occur within the window that the corpus was opened with (the paper:
/// 1,000 tokens)?
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Query {
    /// AND of clauses; a clause is an OR of surface words, as they are written in the text. No
    /// corpus has a count for a query with an empty clause or an empty word.
    pub all_of: Vec<Vec<String>>,
    /// The count matters up to this number only: the search may stop there and report any number at
    /// least this large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enough: Option<u64>,
}

impl Query {
    /// Asks for the whole count of these clauses.
    #[must_use]
    pub fn new(clauses: impl IntoIterator<Item: IntoIterator<Item: AsRef<str>>>) -> Self {
        let all_of = clauses
            .into_iter()
            .map(|words| words.into_iter().map(|word| word.as_ref().to_owned()).collect())
            .collect();
        Self { all_of, enough: None }
    }

    /// The same words with another `enough`.
    #[must_use]
    pub fn with_enough(self, enough: Option<u64>) -> Self {
        Self { enough, ..self }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clauses: Vec<String> = self.all_of.iter().map(|words| words.join(" OR ")).collect();
        f.write_str(&clauses.join(" AND "))
    }
}

/// How often a [`Query`] matched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// `None` where the corpus cannot answer the query (a word without tokens, say).
    pub occurrences: Option<u64>,
    /// `false` where the number is an estimate from a sample, or counting stopped at `enough`.
    pub exact: bool,
}

/// A query and its answer, as traces and recordings keep them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// What was asked.
    pub query: Query,
    /// What the corpus said.
    #[serde(flatten)]
    pub count: Count,
}

/// How much text the counts come from. `None` where the source does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorpusSize {
    /// Tokens of the corpus.
    pub tokens: Option<u64>,
    /// Documents of the corpus.
    pub documents: Option<u64>,
}

/// The corpus, or anything that answers in its place.
pub trait Counter: Send {
    /// One count per query, in order. Queries may repeat.
    ///
    /// # Errors
    /// Where counting itself fails (a read error, a lost connection); a query without an answer is
    /// no error.
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError>;

    /// How much text the counts come from.
    fn size(&self) -> CorpusSize;
}

impl<C: Counter + ?Sized> Counter for &mut C {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        (**self).count(queries)
    }

    fn size(&self) -> CorpusSize {
        (**self).size()
    }
}

impl<C: Counter + ?Sized> Counter for Box<C> {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        (**self).count(queries)
    }

    fn size(&self) -> CorpusSize {
        (**self).size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_displays_operators_and_round_trips_json() {
        let query = Query::new([&["red", "crimson"][..], &["fox"]]).with_enough(Some(20));
        assert_eq!(query.to_string(), "red OR crimson AND fox");
        let json = r#"{"all_of":[["red","crimson"],["fox"]],"enough":20}"#;
        assert_eq!(serde_json::to_string(&query).unwrap(), json);
        assert_eq!(serde_json::from_str::<Query>(json).unwrap(), query);
    }

    #[test]
    fn lookup_serialises_as_flat_json_record() {
        let count = Count { occurrences: Some(7), exact: true };
        let lookup = Lookup { query: Query::new([["Rome"]]), count };
        let json = r#"{"query":{"all_of":[["Rome"]]},"occurrences":7,"exact":true}"#;
        assert_eq!(serde_json::to_string(&lookup).unwrap(), json);
        assert_eq!(serde_json::from_str::<Lookup>(json).unwrap(), lookup);
    }
}
