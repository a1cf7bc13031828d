//! A pair ─▶ tokens, as the published code of each model makes them.

use std::ops::Range;

use corver_core::NliPair;
use corver_pretrained::PretrainedError;
use tokenizers::{Tokenizer, TruncationParams};

use crate::nli::{NliError, Result};

/// How HHEM is asked: `prompt` of its configuration_hhem_v2.py.
const BEFORE: &str = "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: ";
const BETWEEN: &str = "\n\nHypothesis: ";

/// Room for texts beside what stands around them, at least.
const LEAST_ROOM: usize = 16;

/// Where a model's two texts go.
#[derive(Debug)]
enum Form {
    /// One text, a prompt around both.
    Prompt,
    /// Two texts, between the tokenizer's special tokens.
    Pair,
}

/// Makes tokens of pairs, at most so many.
#[derive(Debug)]
pub(crate) struct Encoder {
    tokenizer: Tokenizer,
    form: Form,
    max_tokens: usize,
}

/// A pair's tokens.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) ids: Vec<u32>,
    /// Whether something was left out.
    pub(crate) is_cut: bool,
}

impl Encoder {
    /// For HHEM.
    pub(crate) fn prompt(tokenizer: Tokenizer, max_tokens: usize) -> Result<Self> {
        Self::new(tokenizer, Form::Prompt, max_tokens)
    }

    /// For a model that was trained on pairs.
    pub(crate) fn pair(tokenizer: Tokenizer, max_tokens: usize) -> Result<Self> {
        Self::new(tokenizer, Form::Pair, max_tokens)
    }

    fn new(mut tokenizer: Tokenizer, form: Form, max_tokens: usize) -> Result<Self> {
        let failed = |error| refused("", &error);
        // tokenizer.json may hold the settings of whoever saved it.
        tokenizer.with_padding(None).with_truncation(None).map_err(failed)?;
        let nothing = NliPair { premise: String::new(), hypothesis: String::new() };
        let around = match form {
            Form::Prompt => tokenizer.encode(prompt(&nothing), true),
            Form::Pair => tokenizer.encode(("", ""), true),
        };
        let overhead = around.map_err(failed)?.len();
        if max_tokens < overhead + LEAST_ROOM {
            return Err(PretrainedError::InvalidInput(format!(
                "verify.nli.max_tokens is {max_tokens}, and {overhead} tokens stand around every \
                 pair of texts; raise it"
            ))
            .into());
        }
        if let Form::Pair = form {
            let longest_first =
                TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
            tokenizer.with_truncation(Some(longest_first)).map_err(failed)?;
        }
        Ok(Self { tokenizer, form, max_tokens })
    }

    /// One more than the highest id.
    pub(crate) fn vocab_size(&self) -> usize {
        self.tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    pub(crate) fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    pub(crate) fn encode(&self, pair: &NliPair) -> Result<Encoded> {
        match self.form {
            Form::Pair => {
                let texts = (pair.premise.as_str(), pair.hypothesis.as_str());
                let encoding = self
                    .tokenizer
                    .encode(texts, true)
                    .map_err(|error| refused(&pair.premise, &error))?;
                Ok(Encoded {
                    is_cut: !encoding.get_overflowing().is_empty(),
                    ids: encoding.get_ids().to_vec(),
                })
            }
            Form::Prompt => {
                let text = prompt(pair);
                let encoding = self
                    .tokenizer
                    .encode(text.as_str(), true)
                    .map_err(|error| refused(&text, &error))?;
                let is_cut = encoding.len() > self.max_tokens;
                let ids = encoding.get_ids();
                if !is_cut {
                    return Ok(Encoded { ids: ids.to_vec(), is_cut });
                }
                let premise = BEFORE.len()..BEFORE.len() + pair.premise.len();
                let hypothesis = text.len() - pair.hypothesis.len()..text.len();
                let [premise, hypothesis] =
                    [premise, hypothesis].map(|part| tokens_of(encoding.get_offsets(), &part));
                let gone = left_out(premise, hypothesis, ids.len() - self.max_tokens);
                let kept = ids
                    .iter()
                    .enumerate()
                    .filter(|(n, _)| !gone.iter().any(|gone| gone.contains(n)));
                Ok(Encoded { ids: kept.map(|(_, &id)| id).collect(), is_cut })
            }
        }
    }
}

fn prompt(NliPair { premise, hypothesis }: &NliPair) -> String {
    format!("{BEFORE}{premise}{BETWEEN}{hypothesis}")
}

/// The tokens with a character of this part of the text; a token may begin with the space before
/// it.
fn tokens_of(offsets: &[(usize, usize)], part: &Range<usize>) -> Range<usize> {
    let overlaps =
        |&(start, end): &(usize, usize)| start < end && start < part.end && part.start < end;
    match offsets.iter().position(overlaps) {
        Some(first) => first..offsets.iter().rposition(overlaps).map_or(first, |last| last + 1),
        None => 0..0,
    }
}

/// `excess` tokens from the ends of two texts, always of the one that is longer, as tokenizers cut
/// pairs.
fn left_out(first: Range<usize>, second: Range<usize>, excess: usize) -> [Range<usize>; 2] {
    let (mut one, mut two) = (first.len(), second.len());
    for _ in 0..excess {
        if one > two { one -= 1 } else { two = two.saturating_sub(1) }
    }
    [first.start + one..first.end, second.start + two..second.end]
}

fn refused(text: &str, error: &tokenizers::Error) -> NliError {
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
        let (frame, moon) = (empty.ids.len(), encode(0, 1).ids[empty.ids.len() - 1]);
        assert!(!empty.is_cut && encode(3, 2).ids.len() == frame + 5);
        for (premise, hypothesis, kept) in
            [(500, 5, 5), (5, 500, 195 - frame), (500, 500, (200 - frame) / 2)]
        {
            let Encoded { ids, is_cut } = encode(premise, hypothesis);
            assert!(
                is_cut && ids.len() == 200 && ids[0] == 0 && ids[199] == 1,
                "{premise} {hypothesis}"
            );
            assert_eq!(
                ids[..199].iter().rev().take_while(|id| **id == moon).count(),
                kept,
                "{premise} {hypothesis}"
            );
        }
    }

    #[test]
    fn longer_text_is_truncated_first() {
        assert_eq!(left_out(10..30, 40..45, 7), [23..30, 45..45]);
        assert_eq!(left_out(10..14, 20..26, 5), [13..14, 22..26]);
        assert_eq!(left_out(10..11, 20..21, 9), [10..11, 20..21]);
    }
}
