//! A sentence as ids behind a prompt that every sentence shares.

use std::path::Path;

use corver_pretrained::PretrainedError;
use tokenizers::Tokenizer;

use crate::extract::{ExtractError, Result};

/// What stands around every sentence.
pub(crate) struct Prompt {
    tokenizer: Tokenizer,
    /// Ids that stand before every sentence, whatever it is.
    pub(crate) shared: Vec<u32>,
    /// The text between those and the sentence: what a tokenizer may join to the sentence's first
    /// word.
    lead: String,
    /// Ids at the beginning of an encoded `lead` that are `shared` too: all of them where the text
    /// cannot be encoded in two parts.
    skipped: usize,
    after: String,
}

/// Beginnings of a sentence that a tokenizer may want to join to what stands before them.
const PROBES: [&str; 6] = ["Paris", "a", "1967", "\"So", "(", "é"];
/// Tokens at the end of the prompt that are tried as part of the sentence.
const TRIED: usize = 16;

impl Prompt {
    /// `path` is named where the texts cannot be a prompt.
    pub(crate) fn new(
        tokenizer: Tokenizer,
        before: &str,
        after: String,
        path: &Path,
    ) -> Result<Self> {
        let whole = tokenizer.encode(before, false).map_err(|error| refused(before, &error))?;
        let ends = whole.get_offsets().iter().rev().take(TRIED).map(|(_, end)| *end);
        let cuts =
            std::iter::once(before.len()).chain(ends).filter(|&cut| before.is_char_boundary(cut));
        for cut in cuts {
            let (shared, lead) = before.split_at(cut);
            let shared = encode(&tokenizer, shared)?;
            let candidate = Self {
                tokenizer: tokenizer.clone(),
                shared,
                lead: lead.to_owned(),
                skipped: 0,
                after: after.clone(),
            };
            if candidate.is_exact(before)? {
                return Ok(candidate);
            }
        }
        // Some tokenizers begin every text with a space of their own: nothing can be encoded in two
        // parts.
        let mut shared = whole.get_ids().to_vec();
        for probe in PROBES {
            let ids = encode(&tokenizer, &format!("{before}{probe}{after}"))?;
            shared.truncate(shared.iter().zip(&ids).take_while(|(a, b)| a == b).count());
        }
        if shared.is_empty() && !before.is_empty() {
            let expected = "a prompt whose first tokens are the same before every sentence";
            return Err(PretrainedError::malformed(path, expected, format!("{before:?}")).into());
        }
        Ok(Self { skipped: shared.len(), shared, lead: before.to_owned(), tokenizer, after })
    }

    /// Sharing the first ids is exact only if they are followed by the same ids as in one text.
    fn is_exact(&self, before: &str) -> Result<bool> {
        for probe in PROBES {
            let whole = encode(&self.tokenizer, &format!("{before}{probe}{}", self.after))?;
            if self.encode(probe)?.is_none_or(|own| whole != [&self.shared[..], &own].concat()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ids of a sentence and of what stands around it, behind the shared ones; `None` where the
    /// tokenizer joins the sentence to a token that is shared.
    ///
    /// # Errors
    /// Where the tokenizer has no way to encode it.
    pub(crate) fn encode(&self, sentence: &str) -> Result<Option<Vec<u32>>> {
        let mut ids = encode(&self.tokenizer, &format!("{}{sentence}{}", self.lead, self.after))?;
        let is_behind = ids.starts_with(&self.shared[..self.skipped]);
        Ok(is_behind.then(|| ids.split_off(self.skipped)))
    }

    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer.decode(ids, true).map_err(|error| refused(&format!("{ids:?}"), &error))
    }

    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }
}

/// The prompt spells out every special token that it wants, so none is added.
fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let encoding = tokenizer.encode_fast(text, false).map_err(|error| refused(text, &error))?;
    Ok(encoding.get_ids().to_vec())
}

fn refused(text: &str, error: &tokenizers::Error) -> ExtractError {
    PretrainedError::InvalidInput(format!("the tokenizer cannot encode {text:?}: {error}")).into()
}
