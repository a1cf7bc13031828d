//! Stage 3: sentences, and σ, the sentence that each token belongs to. [`crate::split`] splits
//! completions.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Triplet;
use crate::text::{is_space, strip};

/// The block of a completion that a sentence is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// Between the think tags.
    Think,
    /// Between the answer tags.
    Answer,
    /// The whole text, if it has neither block.
    Body,
}

/// One sentence of a completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentence {
    /// Text of the sentence, trimmed; never empty.
    pub text: String,
    /// Block that it is in.
    pub section: Section,
    /// Characters of the completion that it covers. `None`: under
    /// [`crate::Compatibility::Reference`] its text is not found again.
    pub span: Option<Range<usize>>,
    /// Triplets that the extractor read from it; empty until then.
    #[serde(default)]
    pub triplets: Vec<Triplet>,
}

/// A completion split into sentences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// Sentences of the think block, then those of the answer block.
    pub sentences: Vec<Sentence>,
    /// Characters of the scored sections that were found.
    pub sections: Vec<Range<usize>>,
}

impl Split {
    /// Returns the first sentence of each character, up to the last character of a sentence. A table
    /// makes the alignment linear in the length of the completion.
    fn sentence_of_character(&self) -> Vec<Option<usize>> {
        let spans = self.sentences.iter().filter_map(|sentence| sentence.span.as_ref());
        let length = spans.map(|span| span.end).max().unwrap_or(0);
        let mut owners = vec![None; length];
        for (index, sentence) in self.sentences.iter().enumerate().rev() {
            if let Some(span) = &sentence.span {
                owners[span.clone()].fill(Some(index));
            }
        }
        owners
    }

    /// Returns true if the midpoint of a token is in a scored section.
    fn is_scored(&self, token: &Range<usize>) -> bool {
        self.sections.iter().any(|section| section.contains(&midpoint(token)))
    }
}

/// Returns the character that holds the midpoint of a token, which may be half a character.
fn midpoint(token: &Range<usize>) -> usize {
    usize::midpoint(token.start, token.end)
}

/// The alignment σ of a completion: the sentence of each token.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Alignment {
    /// `[T]` index of each token's sentence. `None`: the token is in no sentence.
    pub sentence_of: Vec<Option<usize>>,
    /// Aligned tokens ÷ tokens whose midpoint is in a scored section. 0 without sentences; 1 with
    /// sentences but no tokens (a completion that is scored as text).
    pub rate: f64,
}

impl Alignment {
    /// Returns the token span of each sentence; `None` if no token is aligned to it.
    #[must_use]
    pub fn token_spans(&self, num_sentences: usize) -> Vec<Option<Range<usize>>> {
        let mut spans: Vec<Option<Range<usize>>> = vec![None; num_sentences];
        for (token, owner) in self.sentence_of.iter().enumerate() {
            let Some(sentence) = *owner else { continue };
            let first = spans[sentence].as_ref().map_or(token, |span| span.start);
            spans[sentence] = Some(first..token + 1);
        }
        spans
    }
}

/// Splits `text` at white space after `.`, `!` or `?` (App. splitting). The sentences are trimmed and
/// not empty.
pub fn split_sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = strip(text);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = sentence_end(rest);
        let sentence = &rest[..end];
        rest = rest[end..].trim_start_matches(is_space);
        Some(sentence)
    })
}

/// Returns the byte offset after the first terminator that white space follows, or the end.
fn sentence_end(text: &str) -> usize {
    for (at, c) in text.char_indices() {
        let after = at + c.len_utf8();
        if matches!(c, '.' | '!' | '?') && text[after..].starts_with(is_space) {
            return after;
        }
    }
    text.len()
}

/// Computes σ: a token belongs to the first sentence whose span contains the token's midpoint (App.
/// alignment).
///
/// `token_spans` is `[T]`, in characters of the completion; `None` for a token without text.
#[must_use]
pub fn align(split: &Split, token_spans: &[Option<Range<usize>>]) -> Alignment {
    let mut sentence_of = Vec::with_capacity(token_spans.len());
    let mut aligned = 0;
    let mut in_sections = 0;
    let sentence_of_character = split.sentence_of_character();
    for token in token_spans {
        let character = token.as_ref().map(midpoint);
        let owner = character.and_then(|at| sentence_of_character.get(at).copied().flatten());
        aligned += usize::from(owner.is_some());
        sentence_of.push(owner);
        in_sections += usize::from(token.as_ref().is_some_and(|token| split.is_scored(token)));
    }
    let scored = if split.sections.is_empty() { token_spans.len() } else { in_sections };
    let rate = match (split.sentences.is_empty(), token_spans.is_empty()) {
        (true, _) => 0.0,
        (false, true) => 1.0,
        (false, false) => aligned as f64 / scored.max(1) as f64,
    };
    Alignment { sentence_of, rate }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::split::split;
    use crate::{Compatibility, TextSettings};

    #[test]
    fn sentences_split_after_terminators_only() {
        let cut = |text| split_sentences(text).collect::<Vec<_>>();
        assert_eq!(cut(" A b.  C!\nD? e"), ["A b.", "C!", "D?", "e"]);
        assert_eq!(cut("3.5 m\nnext"), ["3.5 m\nnext"]);
        assert_eq!(cut("\u{1c}"), [""; 0]);
    }

    #[test]
    fn token_aligns_to_sentence_at_its_midpoint() {
        let split = split("<think>Ab. Cd.</think>", TextSettings::default());
        // "<think>" "Ab" ". C" "d." "</think>"
        let spans = [Some(0..7), Some(7..9), Some(9..12), Some(12..14), Some(14..22), None];
        let alignment = align(&split, &spans);
        // The midpoint of ". C" is 10.5, on the blank between the sentences.
        assert_eq!(alignment.sentence_of, [None, Some(0), None, Some(1), None, None]);
        assert!((alignment.rate - 2.0 / 3.0).abs() < 1e-12);
    }
    /// The definition: the first sentence whose span contains the midpoint, doubled because it may be
    /// half a character.
    fn first_sentence_at_midpoint(split: &Split, token: &Range<usize>) -> Option<usize> {
        let doubled = token.start + token.end;
        split.sentences.iter().position(|sentence| {
            let span = sentence.span.as_ref();
            span.is_some_and(|span| 2 * span.start <= doubled && doubled < 2 * span.end)
        })
    }

    proptest! {
        #[test]
        fn alignment_matches_definition(
            text in "([ab.] ?|<think>|</think>|<answer>|</answer>){0,30}",
            ends in proptest::collection::vec((0usize..40, 0usize..6), 0..30),
            compatibility in prop_oneof![Just(Compatibility::Paper), Just(Compatibility::Reference)],
        ) {
            let split = split(&text, TextSettings { compatibility, ..TextSettings::default() });
            let spans: Vec<Option<Range<usize>>> =
                ends.into_iter().map(|(start, length)| Some(start..start + length)).collect();
            let alignment = align(&split, &spans);
            let token_spans = alignment.token_spans(split.sentences.len());
            for (token, span) in spans.iter().enumerate() {
                let expected = first_sentence_at_midpoint(&split, span.as_ref().unwrap());
                prop_assert_eq!(alignment.sentence_of[token], expected);
            }
            for (sentence, tokens) in token_spans.into_iter().enumerate() {
                let owned = |owner: &Option<usize>| *owner == Some(sentence);
                let first = alignment.sentence_of.iter().position(owned);
                let last = alignment.sentence_of.iter().rposition(owned);
                prop_assert_eq!(tokens, first.zip(last).map(|(first, last)| first..last + 1));
            }
        }
    }

    /// With work for each pair of a sentence and a token, or of a tag and the rest of the text, this
    /// would take hours.
    #[test]
    fn long_completion_is_aligned_in_linear_time() {
        for unit in ["x<think>", "A b. "] {
            let text = unit.repeat(200_000);
            let split = split(&text, TextSettings::default());
            let spans: Vec<_> = (0..text.len()).map(|at| Some(at..at + 1)).collect();
            let alignment = align(&split, &spans);
            assert!(split.sentences.len() >= 199_999);
            let token_spans = alignment.token_spans(split.sentences.len());
            assert!(token_spans.iter().all(Option::is_some));
        }
    }
}
