//! Words instead of token ids: an index with its tokenizer.

use std::path::Path;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::index::document::Document;
use crate::index::open::{Index, OpenOptions};
use crate::query::cnf::{Cnf, CnfCount, CnfOptions};
use crate::text::tokenizer::Tokenizer;

/// An index that answers queries in words.
#[derive(Debug)]
pub struct Corpus {
    index: Index,
    tokenizer: Tokenizer,
}

impl Corpus {
    /// Opens an index that holds its tokenizer, as every index that [`crate::build`] makes does.
    ///
    /// # Errors
    /// As [`Index::open`]; and where the folder holds no tokenizer, or another than the index was
    /// built with.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, OpenOptions::default())
    }

    /// [`Corpus::open`] with other than the default options.
    ///
    /// # Errors
    /// As [`Corpus::open`] and [`Index::open_with`].
    pub fn open_with(dir: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let index = Index::open_with(dir, options)?;
        let path = index.tokenizer_path();
        if !path.exists() {
            return Err(Error::InvalidIndex(format!(
                "{} holds no tokenizer.json: name the one that it was built with",
                index.path().display()
            )));
        }
        Self::new(index, Tokenizer::from_file(path)?)
    }

    /// Combines an index and a tokenizer.
    ///
    /// # Errors
    /// Where the index says that it was built with another one, or is too narrow for the
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
        let largest = tokenizer.num_ids().saturating_sub(1);
        if largest > index.token_width().largest_token() {
            return Err(Error::token_too_large(largest, index.token_width()));
        }
        Ok(Self { index, tokenizer })
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// A document's text, as the tokenizer gives it back: of most tokenizers, exactly what was
    /// indexed.
    ///
    /// # Errors
    /// Where the tokenizer's decoder fails.
    pub fn text(&self, document: &Document) -> Result<String> {
        self.tokenizer.decode(&self.index.tokens(document.shard, document.tokens.clone()))
    }

    /// Counts how often all clauses occur together, a clause being an OR of words (or of several
    /// words in a row). One clause of one word is counted as it is, whatever its frequency. `None`
    /// where a word has no tokens: then there is nothing to count.
    ///
    /// # Errors
    /// As [`Index::count_cnf`]; and where the query or a clause is empty, a word cannot be
    /// tokenised, or a file was truncated.
    pub fn count_words(
        &self,
        all_of: &[Vec<String>],
        options: &CnfOptions,
        enough: Option<u64>,
    ) -> Result<Option<CnfCount>> {
        Ok(self.count_words_batch(&[all_of], options, enough, None)?.pop().flatten())
    }

    /// The answers of [`Corpus::count_words`] to many queries, in their order. It reads the index
    /// as
    /// [`Index::count_cnf_batch`] does.
    ///
    /// # Errors
    /// As [`Corpus::count_words`] and [`Index::count_cnf_batch`], for any of the queries.
    pub fn count_words_batch(
        &self,
        queries: &[&[Vec<String>]],
        options: &CnfOptions,
        enough: Option<u64>,
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<CnfCount>>> {
        let mut counts = vec![None; queries.len()];
        let (mut numbers, mut batch) = (Vec::new(), Vec::new());
        for (number, all_of) in queries.iter().enumerate() {
            let Some(clauses) = self.encode_clauses(all_of)? else { continue };
            numbers.push(number);
            batch.push(Cnf::new(clauses)?);
        }
        let found = self.index.count_cnf_batch(&batch, options, enough, deadline)?;
        numbers.into_iter().zip(found).for_each(|(number, count)| counts[number] = Some(count));
        self.index.check_sizes()?;
        Ok(counts)
    }

    /// The token ids of every term; `None` where a word has none.
    pub(crate) fn encode_clauses(
        &self,
        all_of: &[Vec<String>],
    ) -> Result<Option<Vec<Vec<Vec<u32>>>>> {
        let mut clauses = Vec::with_capacity(all_of.len());
        for words in all_of {
            let clause = words
                .iter()
                .map(|word| self.tokenizer.encode_word(word))
                .collect::<Result<Vec<_>>>()?;
            if clause.iter().any(Vec::is_empty) {
                return Ok(None);
            }
            clauses.push(clause);
        }
        Ok(Some(clauses))
    }
}

/// Reads `a AND b OR c` as a AND (b OR c): the operators are upper-case words, and there are no
/// brackets.
///
/// # Errors
/// [`Error::InvalidArgument`] where nothing stands on one side of an operator.
pub fn parse_query(text: &str) -> Result<Vec<Vec<String>>> {
    let clause = |part: &str| -> Vec<String> {
        part.split(" OR ").map(|word| word.trim().to_owned()).collect()
    };
    let all_of: Vec<Vec<String>> = text.split(" AND ").map(clause).collect();
    let is_operator = |word: Option<&str>| matches!(word, Some("AND" | "OR"));
    let lacks_a_side = |term: &String| {
        let mut words = term.split_whitespace();
        is_operator(words.next()) || is_operator(words.next_back())
    };
    if all_of.iter().flatten().any(|term| term.is_empty() || lacks_a_side(term)) {
        return Err(Error::empty_query(if text.trim().is_empty() { "query" } else { "term" }));
    }
    Ok(all_of)
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
