//! The tokens of a sentence after a prompt that all sentences share.

use std::path::Path;

use corver_core::template::THINK;
use corver_pretrained::PretrainedError;
use tokenizers::Tokenizer;

use crate::extract::{ExtractError, Result};

/// The text around every sentence, and its shared first tokens.
pub(crate) struct ExtractPrompt {
    tokenizer: Tokenizer,
    /// Token ids that precede every sentence.
    pub(crate) shared: Vec<u32>,
    /// Text between the shared tokens and the sentence, which the tokenizer may merge with the
    /// sentence's first word.
    lead: String,
    /// Number of ids at the beginning of an encoded `lead` that are in `shared` too. Not 0 only if
    /// the text cannot be encoded in two parts; then `lead` is the entire prompt.
    skipped: usize,
    after: String,
    /// True if the prompt ends with `<think>`, so that a reply begins within that block.
    opens_thinking: bool,
}

/// Beginnings of sentences that a tokenizer may merge with the text before them.
const PROBES: [&str; 6] = ["Paris", "a", "1967", "\"So", "(", "é"];
/// Most tokens at the end of the prompt that are moved from the shared part to `lead`.
const MAX_LEAD_TOKENS: usize = 16;

impl ExtractPrompt {
    /// Finds the longest prefix of `before` that can be encoded separately. `path` is for messages.
    pub(crate) fn new(
        tokenizer: Tokenizer,
        before: &str,
        after: String,
        path: &Path,
    ) -> Result<Self> {
        let opens_thinking = after.trim_end().ends_with(THINK.open);
        let encoding = tokenizer.encode(before, false).map_err(|error| refused(before, &error))?;
        let ends = encoding.get_offsets().iter().rev().take(MAX_LEAD_TOKENS).map(|(_, end)| *end);
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
                opens_thinking,
            };
            if candidate.is_exact(before)? {
                return Ok(candidate);
            }
        }
        // Some tokenizers put a space before every text, so that no text can be encoded in two
        // parts. Encode everything together then, and share the ids that are always the same.
        let mut shared = encoding.get_ids().to_vec();
        for probe in PROBES {
            let ids = encode(&tokenizer, &format!("{before}{probe}{after}"))?;
            shared.truncate(shared.iter().zip(&ids).take_while(|(a, b)| a == b).count());
        }
        if shared.is_empty() && !before.is_empty() {
            let expected = "a prompt whose first tokens are the same before every sentence";
            return Err(PretrainedError::malformed(path, expected, format!("{before:?}")).into());
        }
        Ok(Self {
            skipped: shared.len(),
            shared,
            lead: before.to_owned(),
            tokenizer,
            after,
            opens_thinking,
        })
    }

    /// True if the shared ids and those of a sentence are the ids of the entire text.
    fn is_exact(&self, before: &str) -> Result<bool> {
        for probe in PROBES {
            let whole = encode(&self.tokenizer, &format!("{before}{probe}{}", self.after))?;
            if self.encode(probe)?.is_none_or(|own| whole != [&self.shared[..], &own].concat()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the ids of a sentence and the text around it, without the shared ones. `None`: the
    /// tokenizer merges the sentence with a shared token.
    ///
    /// # Errors
    /// Fails if the tokenizer cannot encode the sentence.
    pub(crate) fn encode(&self, sentence: &str) -> Result<Option<Vec<u32>>> {
        let mut ids = encode(&self.tokenizer, &format!("{}{sentence}{}", self.lead, self.after))?;
        let has_shared_prefix = ids.starts_with(&self.shared[..self.skipped]);
        Ok(has_shared_prefix.then(|| ids.split_off(self.skipped)))
    }

    /// Returns the text of a reply, with the `<think>` before it that the prompt ends with.
    ///
    /// # Errors
    /// Fails if the tokenizer cannot decode the ids.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String> {
        let text = self
            .tokenizer
            .decode(ids, true)
            .map_err(|error| refused(&format!("{ids:?}"), &error))?;
        Ok(if self.opens_thinking { format!("{}{text}", THINK.open) } else { text })
    }

    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }
}

/// Encodes a text without additional special tokens: the prompt spells out those that it needs.
fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let encoding = tokenizer.encode_fast(text, false).map_err(|error| refused(text, &error))?;
    Ok(encoding.get_ids().to_vec())
}

fn refused(text: &str, error: &tokenizers::Error) -> ExtractError {
    PretrainedError::InvalidInput(format!("the tokenizer cannot encode {text:?}: {error}")).into()
}

#[cfg(test)]
mod tests {
    use corver_core::{ReplyGrammar, reply};
    use corver_pretrained::read_tokenizer;

    use super::*;

    #[test]
    fn reasoning_in_a_block_of_the_prompt_is_no_answer() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/assets/extractor");
        let said = r#"Not [["A", "is", "B"]]."#;
        for (after, num_claims) in
            [("\n", 1), ("\n<think></think>\n", 1), ("\n<think>", 0), ("\n<think>\n", 0)]
        {
            let tokenizer = read_tokenizer(&folder.join("tokenizer.json")).unwrap();
            let prompt = ExtractPrompt::new(tokenizer, "Of ", after.to_owned(), &folder).unwrap();
            let ids = encode(prompt.tokenizer(), said).unwrap();
            let text = prompt.decode(&ids).unwrap();
            let claims = reply::read(&text, ReplyGrammar::Tolerant).claims;
            assert_eq!(claims.len(), num_claims, "{after:?}: {text}");
        }
    }
}
