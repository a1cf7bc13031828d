//! Queries in words: an index with its tokenizer.

use std::path::Path;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::index::document::Document;
use crate::index::open::{Index, OpenOptions};
use crate::query::cnf::{Cnf, CnfCount, CnfOptions};
use crate::text::agreement::{self, AgreementSample};
use crate::text::tokenizer::Tokenizer;

/// An index with its tokenizer, for queries in words.
#[derive(Debug)]
pub struct TextIndex {
    index: Index,
    tokenizer: Tokenizer,
}

impl TextIndex {
    /// Opens an index with the tokenizer in its folder, as [`crate::build()`] writes it.
    ///
    /// # Errors
    /// Fails as [`Index::open`] does, or if the folder holds no tokenizer or another one than the
    /// index was built with.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, OpenOptions::default())
    }

    /// Opens an index and its tokenizer with options.
    ///
    /// # Errors
    /// Fails as [`TextIndex::open`] and [`Index::open_with`] do.
    pub fn open_with(dir: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let index = Index::open_with(dir, options)?;
        let path = index.tokenizer_path();
        if !path.exists() {
            return Err(Error::InvalidIndex(format!(
                "{} holds no tokenizer.json: name the one that it was built with",
                index.path().display()
            )));
        }
        Self::new(index, Tokenizer::open(path)?)
    }

    /// Combines an index and a tokenizer. If the index does not record its tokenizer, some documents
    /// are decoded and encoded again.
    ///
    /// # Errors
    /// Fails if the index was built with another tokenizer, or its tokens are too narrow for the
    /// vocabulary.
    pub fn new(index: Index, tokenizer: Tokenizer) -> Result<Self> {
        if let Some(expected) = index.manifest().and_then(|manifest| manifest.tokenizer.as_ref())
            && expected != tokenizer.fingerprint()
        {
            return Err(Error::InvalidArgument(format!(
                "the index {} was built with the tokenizer {expected}, not with {}: its counts \
                 would be meaningless",
                index.path().display(),
                tokenizer.fingerprint()
            )));
        }
        tokenizer.check_width(index.token_width())?;
        if index.manifest().is_none() {
            agreement::check(&index, &tokenizer, AgreementSample::QUICK)?;
        }
        Ok(Self { index, tokenizer })
    }

    /// Returns the index without its tokenizer.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the tokenizer of the index.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Decodes the text of a document. With most tokenizers it is exactly the indexed text.
    ///
    /// # Errors
    /// Fails if the tokenizer's decoder fails.
    pub fn text(&self, document: &Document) -> Result<String> {
        self.tokenizer.decode(&self.index.tokens(document.shard, document.tokens.clone()))
    }

    /// Counts the co-occurrences of all clauses. A clause is an OR of words or of phrases. A single
    /// word is counted exactly, whatever its frequency. Returns `None` if a word has no tokens.
    ///
    /// # Errors
    /// Fails as [`Index::count_cnf`] does, or if the query or a clause is empty, a word cannot be
    /// tokenised, or a file was truncated.
    pub fn count_words(
        &self,
        all_of: &[Vec<String>],
        options: &CnfOptions,
        limit: Option<u64>,
    ) -> Result<Option<CnfCount>> {
        Ok(self.count_words_batch(&[all_of], options, limit, None)?.pop().flatten())
    }

    /// Counts many queries as [`TextIndex::count_words`] does, and reads the index as
    /// [`Index::count_cnf_batch`] does. The counts are in the order of the queries.
    ///
    /// # Errors
    /// Fails as [`TextIndex::count_words`] and [`Index::count_cnf_batch`] do, for any of the queries.
    pub fn count_words_batch(
        &self,
        queries: &[&[Vec<String>]],
        options: &CnfOptions,
        limit: Option<u64>,
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<CnfCount>>> {
        let mut counts = vec![None; queries.len()];
        let mut numbers = Vec::new();
        let mut batch = Vec::new();
        for (number, all_of) in queries.iter().enumerate() {
            let Some(clauses) = self.encode_clauses(all_of)? else { continue };
            numbers.push(number);
            batch.push(Cnf::new(clauses)?);
        }
        let found = self.index.count_cnf_batch(&batch, options, limit, deadline)?;
        for (number, count) in numbers.into_iter().zip(found) {
            counts[number] = Some(count);
        }
        self.index.check_sizes()?;
        Ok(counts)
    }

    /// Returns the token ids of every term; `None` if a word has no tokens.
    pub(crate) fn encode_clauses(
        &self,
        all_of: &[Vec<String>],
    ) -> Result<Option<Vec<Vec<Vec<u32>>>>> {
        let mut clauses = Vec::with_capacity(all_of.len());
        for words in all_of {
            let mut clause = Vec::with_capacity(words.len());
            for word in words {
                clause.extend(self.tokenizer.encode_word_forms(word)?);
            }
            if clause.iter().any(Vec::is_empty) {
                return Ok(None);
            }
            let width = self.index.token_width();
            if clause.iter().any(|ids| ids.contains(&width.separator())) {
                return Err(Error::token_too_large(width.separator(), width));
            }
            clauses.push(clause);
        }
        Ok(Some(clauses))
    }
}

/// Parses a query: `a AND b OR c` is a AND (b OR c). The operators are upper-case words, and there
/// are no brackets.
///
/// # Errors
/// Fails with [`Error::InvalidArgument`] if an operator has an empty side.
pub fn parse_query(text: &str) -> Result<Vec<Vec<String>>> {
    let mut all_of = Vec::new();
    for clause in text.split(" AND ") {
        let mut terms = Vec::new();
        for part in clause.split(" OR ") {
            let term = part.trim();
            if term.is_empty() || has_outer_operator(term) {
                let empty_part = if text.trim().is_empty() { "query" } else { "term" };
                return Err(Error::empty_query(empty_part));
            }
            terms.push(term.to_owned());
        }
        all_of.push(terms);
    }
    Ok(all_of)
}

/// True if the first or last word of a term is an operator, which then has an empty side.
fn has_outer_operator(term: &str) -> bool {
    let mut words = term.split_whitespace();
    matches!(words.next(), Some("AND" | "OR")) || matches!(words.next_back(), Some("AND" | "OR"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn and_binds_looser_than_or() {
        assert_eq!(
            parse_query("Levi Stadium AND Denver OR Colorado").unwrap(),
            [vec!["Levi Stadium"], vec!["Denver", "Colorado"]]
        );
        assert_eq!(parse_query("Band and Order").unwrap(), [["Band and Order"]]);
    }

    #[test]
    fn query_with_missing_word_is_rejected() {
        for text in ["", "  ", "a AND ", "a OR  AND b", "AND", "a AND", "OR b", "a AND AND b"] {
            let error = parse_query(text).unwrap_err().to_string();
            assert!(error.starts_with("an empty "), "{text:?}: {error}");
        }
    }
}
