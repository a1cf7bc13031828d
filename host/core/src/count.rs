//! Stage 5: triplets → counts. How often words occur together in the corpus.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::PartError;

/// Asks how often all clauses occur within the window that the index was opened with (the paper: 1,000 tokens).
///
/// A step makes thousands, and keeps them for its trace: each is one text, as in `wit/corver.wit`. As JSON it is
/// `{"all_of": [[WORD, …], …], "enough": N}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "Lists<String>")]
pub struct Query {
    text: String,
    /// “I need not know the count beyond this”: the index may stop early and report any number at least this large.
    pub enough: Option<u64>,
}

const BETWEEN_CLAUSES: char = '\n';
const BETWEEN_WORDS: char = '\t';

impl Query {
    /// Takes a text with one clause a line, each an OR of words with tabs between them.
    #[must_use]
    #[inline]
    pub fn from_text(text: String) -> Self {
        Self { text, enough: None }
    }

    /// An AND of clauses, each an OR of surface words, as they are written in the text. A line feed or a tab in a word becomes
    /// a space; a clause without words becomes one of an empty word, for which no index has an answer.
    #[must_use]
    pub fn new(clauses: impl IntoIterator<Item: IntoIterator<Item: AsRef<str>>>) -> Self {
        let separates = |c| matches!(c, BETWEEN_CLAUSES | BETWEEN_WORDS);
        let mut text = String::new();
        for (i, clause) in clauses.into_iter().enumerate() {
            if i > 0 {
                text.push(BETWEEN_CLAUSES);
            }
            for (i, word) in clause.into_iter().enumerate() {
                if i > 0 {
                    text.push(BETWEEN_WORDS);
                }
                text.extend(word.as_ref().chars().map(|c| if separates(c) { ' ' } else { c }));
            }
        }
        Self::from_text(text)
    }

    /// The same words with another `enough`.
    #[must_use]
    #[inline]
    pub fn with_enough(self, enough: Option<u64>) -> Self {
        Self { enough, ..self }
    }

    /// The words of all clauses.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split([BETWEEN_CLAUSES, BETWEEN_WORDS])
    }

    /// Bytes of the whole text: all words, and one between every two.
    #[must_use]
    #[inline]
    pub fn num_bytes(&self) -> usize {
        self.text.len()
    }

    /// The words of each clause.
    pub fn clauses(&self) -> impl Iterator<Item = impl Iterator<Item = &str>> {
        self.text.split(BETWEEN_CLAUSES).map(|clause| clause.split(BETWEEN_WORDS))
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, words) in self.clauses().enumerate() {
            if i > 0 {
                f.write_str(" AND ")?;
            }
            for (i, word) in words.enumerate() {
                if i > 0 {
                    f.write_str(" OR ")?;
                }
                f.write_str(word)?;
            }
        }
        Ok(())
    }
}

/// A [`Query`] as JSON.
#[derive(Serialize, Deserialize)]
struct Lists<Word> {
    all_of: Vec<Vec<Word>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enough: Option<u64>,
}

impl From<Lists<String>> for Query {
    fn from(Lists { all_of, enough }: Lists<String>) -> Self {
        Self::new(all_of).with_enough(enough)
    }
}

impl Serialize for Query {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all_of: Vec<Vec<&str>> = self.clauses().map(Iterator::collect).collect();
        Lists { all_of, enough: self.enough }.serialize(serializer)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_one_text_and_lists_in_json() {
        let query = Query::new([&["Größe", "size\tor\nso"][..], &["Rome"]]).with_enough(Some(20));
        assert_eq!(query, Query::from_text("Größe\tsize or so\nRome".into()).with_enough(Some(20)));
        assert_eq!(query.to_string(), "Größe OR size or so AND Rome");
        let json = r#"{"all_of":[["Größe","size or so"],["Rome"]],"enough":20}"#;
        assert_eq!(serde_json::to_string(&query).unwrap(), json);
        assert_eq!(serde_json::from_str::<Query>(json).unwrap(), query);
        let json = r#"{"all_of":[["Rome"]]}"#;
        assert_eq!(serde_json::to_string(&Query::new([["Rome"]])).unwrap(), json);
        assert_eq!(serde_json::from_str::<Query>(json).unwrap(), Query::new([["Rome"]]));
    }

    #[test]
    fn a_clause_without_words_is_one_of_an_empty_word() {
        let without: Query = serde_json::from_str(r#"{"all_of":[["Rome"],[]]}"#).unwrap();
        assert_eq!(without, Query::new([["Rome"], [""]]));
        assert_eq!(without.words().collect::<Vec<_>>(), ["Rome", ""]);
    }
}
