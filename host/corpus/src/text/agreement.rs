//! The comparison of an index of another program with a tokenizer. Words are counted by their ids,
//! so another tokenizer gives wrong counts without an error.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::document::Document;
use crate::index::open::Index;
use crate::text::tokenizer::Tokenizer;

/// Number of tokens before a cut that are not compared: their text may have been cut in a word.
const CUT_TOKENS: usize = 32;
/// Largest share of the documents that may differ, as its inverse. The official builder encodes a
/// few texts otherwise than the tokenizer library does.
const TOLERANCE: u64 = 100;
/// Number of tokens shown before the first one that differs.
const SHOWN_BEFORE: usize = 8;
/// Number of tokens shown.
const SHOWN: usize = 16;

/// The size of a sample of an index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgreementSample {
    /// Largest number of documents, which are evenly spaced.
    documents: u64,
    /// Largest number of tokens from the start of a document.
    tokens: u64,
}

impl AgreementSample {
    /// A sample that takes some milliseconds.
    pub(crate) const QUICK: Self = Self { documents: 100, tokens: 256 };
    /// A sample that takes some seconds.
    pub(crate) const THOROUGH: Self = Self { documents: 2_000, tokens: 2_048 };
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// Number of documents in the sample.
    pub(crate) sampled: u64,
    /// Number of documents whose text has other ids than the index.
    pub(crate) different: u64,
}

/// A document that differs.
struct TokenDifference {
    shard: usize,
    document: u64,
    /// Text around the first token that differs.
    text: String,
    index: String,
    tokenizer: String,
}

/// Decodes a sample of an index and encodes the texts again.
///
/// # Errors
/// Fails if too many documents get other ids. The error shows one.
pub(crate) fn check(
    index: &Index,
    tokenizer: &Tokenizer,
    size: AgreementSample,
) -> Result<Agreement> {
    let documents = sample(index, size)?;
    let differences: Vec<Option<TokenDifference>> = documents
        .par_iter()
        .map(|document| compare(index, tokenizer, document, size.tokens))
        .collect::<Result<_>>()?;
    let sampled = documents.len() as u64;
    let different = differences.iter().flatten().count() as u64;
    let Some(TokenDifference { shard, document, text, index: expected, tokenizer: got }) =
        differences.into_iter().flatten().next()
    else {
        return Ok(Agreement { sampled, different });
    };
    if different <= sampled / TOLERANCE {
        return Ok(Agreement { sampled, different });
    }
    Err(Error::InvalidArgument(format!(
        "failed to match the tokenizer with the index {}: {different} of {sampled} documents get \
         other tokens; for example {text:?} (document {document} of shard {shard}) is {expected} in \
         the index and {got} by the tokenizer; use the tokenizer.json that the index was built with",
        index.path().display()
    )))
}

/// Returns evenly spaced documents of every shard.
fn sample(index: &Index, size: AgreementSample) -> Result<Vec<Document>> {
    let total: u64 = index.shards().map(|shard| shard.num_documents()).sum();
    let step = total.div_ceil(size.documents).max(1);
    let mut documents = Vec::new();
    for shard in index.shards() {
        for number in (0..shard.num_documents()).step_by(step as usize) {
            documents.push(index.document(shard, number)?);
        }
    }
    Ok(documents)
}

/// Compares a document's ids with those of its text; `None` if they are equal.
fn compare(
    index: &Index,
    tokenizer: &Tokenizer,
    document: &Document,
    max_tokens: u64,
) -> Result<Option<TokenDifference>> {
    let end = document.tokens.end.min(document.tokens.start + max_tokens);
    let stored = index.tokens(document.shard, document.tokens.start..end);
    // Some programs put special tokens around a document, which are not of its text.
    let ids = tokenizer.trim_special(&stored);
    let text = tokenizer.decode_all(ids)?;
    let encoded = tokenizer.encode_document(&text)?;
    let is_equal = if end == document.tokens.end {
        encoded == ids
    } else {
        encoded.starts_with(&ids[..ids.len().saturating_sub(CUT_TOKENS)])
    };
    if is_equal {
        return Ok(None);
    }
    let first = ids.iter().zip(&encoded).take_while(|(one, other)| one == other).count();
    let start = first.saturating_sub(SHOWN_BEFORE);
    let shown = &ids[start..ids.len().min(start + SHOWN)];
    Ok(Some(TokenDifference {
        shard: document.shard,
        document: document.number,
        text: tokenizer.decode_all(shown)?,
        index: pieces(tokenizer, &ids[first..]),
        tokenizer: pieces(tokenizer, &encoded[first..]),
    }))
}

/// Returns the first few ids as the vocabulary spells them.
fn pieces(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut pieces = Vec::new();
    for &id in ids.iter().take(3) {
        pieces
            .push(tokenizer.piece(id).map_or_else(|| id.to_string(), |piece| format!("{piece:?}")));
    }
    if pieces.is_empty() { "nothing".to_owned() } else { pieces.join(" ") }
}
