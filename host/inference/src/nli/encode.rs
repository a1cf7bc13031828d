//! The tokens of a pair, the same as those of each model's published code.

use std::ops::Range;

use corver_core::NliPair;
use corver_pretrained::PretrainedError;
use tokenizers::{Tokenizer, TruncationParams};

use crate::nli::{NliError, Result};

/// First part of HHEM's prompt, from `prompt` of its configuration_hhem_v2.py.
const BEFORE: &str = "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: ";
/// Text between premise and hypothesis in the same prompt.
const BETWEEN: &str = "\n\nHypothesis: ";

/// Fewest tokens that must remain for the two texts.
const MIN_TEXT_TOKENS: usize = 16;

/// The form in which a model reads two texts.
#[derive(Debug)]
enum InputForm {
    /// One text: a prompt that contains both.
    Prompt,
    /// Two texts, which the tokenizer joins with special tokens.
    Pair,
}

/// Encodes pairs as at most `max_tokens` tokens.
#[derive(Debug)]
pub(crate) struct Encoder {
    tokenizer: Tokenizer,
    form: InputForm,
    max_tokens: usize,
}

/// The tokens of a pair.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) ids: Vec<u32>,
    /// True if tokens were removed.
    pub(crate) is_cut: bool,
}

impl Encoder {
    /// Returns an encoder for HHEM, which reads a prompt.
    pub(crate) fn prompt(tokenizer: Tokenizer, max_tokens: usize) -> Result<Self> {
        Self::new(tokenizer, InputForm::Prompt, max_tokens)
    }

    /// Returns an encoder for a model that was trained on pairs of texts.
    pub(crate) fn pair(tokenizer: Tokenizer, max_tokens: usize) -> Result<Self> {
        Self::new(tokenizer, InputForm::Pair, max_tokens)
    }

    fn new(mut tokenizer: Tokenizer, form: InputForm, max_tokens: usize) -> Result<Self> {
        let empty = NliPair { premise: String::new(), hypothesis: String::new() };
        let frame = match form {
            InputForm::Prompt => tokenizer.encode(prompt(&empty), true),
            InputForm::Pair => tokenizer.encode(("", ""), true),
        };
        let overhead = frame.map_err(|error| encoding_error("", &error))?.len();
        if max_tokens < overhead + MIN_TEXT_TOKENS {
            return Err(PretrainedError::InvalidInput(format!(
                "backends.nli.max_tokens is {max_tokens}, and {overhead} tokens are needed around \
                 every pair of texts; raise it"
            ))
            .into());
        }
        if let InputForm::Pair = form {
            let longest_first =
                TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
            tokenizer
                .with_truncation(Some(longest_first))
                .map_err(|error| encoding_error("", &error))?;
        }
        Ok(Self { tokenizer, form, max_tokens })
    }

    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    pub(crate) fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    pub(crate) fn encode(&self, pair: &NliPair) -> Result<Encoded> {
        match self.form {
            InputForm::Pair => {
                let texts = (pair.premise.as_str(), pair.hypothesis.as_str());
                let encoding = self
                    .tokenizer
                    .encode(texts, true)
                    .map_err(|error| encoding_error(&pair.premise, &error))?;
                Ok(Encoded {
                    is_cut: !encoding.get_overflowing().is_empty(),
                    ids: encoding.get_ids().to_vec(),
                })
            }
            InputForm::Prompt => {
                let text = prompt(pair);
                let encoding = self
                    .tokenizer
                    .encode(text.as_str(), true)
                    .map_err(|error| encoding_error(&text, &error))?;
                let is_cut = encoding.len() > self.max_tokens;
                let ids = encoding.get_ids();
                if !is_cut {
                    return Ok(Encoded { ids: ids.to_vec(), is_cut });
                }
                let premise = BEFORE.len()..BEFORE.len() + pair.premise.len();
                let hypothesis = text.len() - pair.hypothesis.len()..text.len();
                let [premise, hypothesis] =
                    [premise, hypothesis].map(|part| tokens_of(encoding.get_offsets(), &part));
                let removed = removed_tokens(premise, hypothesis, ids.len() - self.max_tokens);
                let mut remaining = Vec::with_capacity(self.max_tokens);
                for (n, &id) in ids.iter().enumerate() {
                    if !removed.iter().any(|range| range.contains(&n)) {
                        remaining.push(id);
                    }
                }
                Ok(Encoded { ids: remaining, is_cut })
            }
        }
    }
}

fn prompt(NliPair { premise, hypothesis }: &NliPair) -> String {
    format!("{BEFORE}{premise}{BETWEEN}{hypothesis}")
}

/// Returns the range of tokens that overlap a part of the text. A token may begin with the space
/// before the part.
fn tokens_of(offsets: &[(usize, usize)], part: &Range<usize>) -> Range<usize> {
    let overlaps =
        |&(start, end): &(usize, usize)| start < end && start < part.end && part.start < end;
    match offsets.iter().position(overlaps) {
        Some(first) => first..offsets.iter().rposition(overlaps).map_or(first, |last| last + 1),
        None => 0..0,
    }
}

/// Returns the tokens to remove from the ends of two texts, `excess` in all. They are taken from the
/// longer text one by one, the way in which tokenizers truncate pairs.
fn removed_tokens(first: Range<usize>, second: Range<usize>, excess: usize) -> [Range<usize>; 2] {
    let mut first_length = first.len();
    let mut second_length = second.len();
    for _ in 0..excess {
        if first_length > second_length {
            first_length -= 1;
        } else {
            second_length = second_length.saturating_sub(1);
        }
    }
    [first.start + first_length..first.end, second.start + second_length..second.end]
}

fn encoding_error(text: &str, error: &tokenizers::Error) -> NliError {
    let text: String = text.chars().take(200).collect();
    PretrainedError::InvalidInput(format!("the tokenizer cannot encode {text:?}: {error}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_preserves_prompt_frame() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/nli/small/hhem/tokenizer.json");
        let encoder =
            Encoder::prompt(corver_pretrained::read_tokenizer(&path).unwrap(), 200).unwrap();
        let encode = |premise: usize, hypothesis: usize| {
            let text = |words: usize| "moon ".repeat(words);
            encoder
                .encode(&NliPair { premise: text(premise), hypothesis: text(hypothesis) })
                .unwrap()
        };
        let empty = encode(0, 0);
        let frame = empty.ids.len();
        let moon = encode(0, 1).ids[frame - 1];
        assert!(!empty.is_cut && encode(3, 2).ids.len() == frame + 5);
        for (premise, hypothesis, remaining) in
            [(500, 5, 5), (5, 500, 195 - frame), (500, 500, (200 - frame) / 2)]
        {
            let Encoded { ids, is_cut } = encode(premise, hypothesis);
            assert!(
                is_cut && ids.len() == 200 && ids[0] == 0 && ids[199] == 1,
                "{premise} {hypothesis}"
            );
            assert_eq!(
                ids[..199].iter().rev().take_while(|id| **id == moon).count(),
                remaining,
                "{premise} {hypothesis}"
            );
        }
    }

    #[test]
    fn longer_text_is_truncated_first() {
        assert_eq!(removed_tokens(10..30, 40..45, 7), [23..30, 45..45]);
        assert_eq!(removed_tokens(10..14, 20..26, 5), [13..14, 22..26]);
        assert_eq!(removed_tokens(10..11, 20..21, 9), [10..11, 20..21]);
    }
}
