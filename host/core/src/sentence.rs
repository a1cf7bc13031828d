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
    /// Returns the first sentence that contains the midpoint of a token.
    fn sentence_at(&self, token: &Range<usize>) -> Option<usize> {
        self.sentences.iter().position(|sentence| {
            sentence.span.as_ref().is_some_and(|span| contains_midpoint(span, token))
        })
    }

    /// Returns true if the midpoint of a token is in a scored section.
    fn is_scored(&self, token: &Range<usize>) -> bool {
        self.sections.iter().any(|section| contains_midpoint(section, token))
    }
}

/// Returns true if `span` contains the midpoint of `token`.
fn contains_midpoint(span: &Range<usize>, token: &Range<usize>) -> bool {
    // Both sides doubled, because a midpoint may be half a character.
    let doubled = token.start + token.end;
    span.start * 2 <= doubled && doubled < span.end * 2
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
    /// Returns the token span of a sentence; `None` if no token is aligned to it.
    #[must_use]
    pub fn tokens_of(&self, sentence: usize) -> Option<Range<usize>> {
        let first = self.sentence_of.iter().position(|owner| *owner == Some(sentence))?;
        let last = self.sentence_of.iter().rposition(|owner| *owner == Some(sentence))?;
        Some(first..last + 1)
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
    for token in token_spans {
        let owner = token.as_ref().and_then(|token| split.sentence_at(token));
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
    use super::*;
    use crate::split::split;
    use crate::{Compatibility, SentenceSplitter};

    #[test]
    fn sentences_split_after_terminators_only() {
        let cut = |text| split_sentences(text).collect::<Vec<_>>();
        assert_eq!(cut(" A b.  C!\nD? e"), ["A b.", "C!", "D?", "e"]);
        assert_eq!(cut("3.5 m\nnext"), ["3.5 m\nnext"]);
        assert_eq!(cut("\u{1c}"), [""; 0]);
    }

    #[test]
    fn token_aligns_to_sentence_at_its_midpoint() {
        let split = split("<think>Ab. Cd.</think>", Compatibility::Paper, SentenceSplitter::Paper);
        // "<think>" "Ab" ". C" "d." "</think>"
        let spans = [Some(0..7), Some(7..9), Some(9..12), Some(12..14), Some(14..22), None];
        let alignment = align(&split, &spans);
        // The midpoint of ". C" is 10.5, on the blank between the sentences.
        assert_eq!(alignment.sentence_of, [None, Some(0), None, Some(1), None, None]);
        assert!((alignment.rate - 2.0 / 3.0).abs() < 1e-12);
    }
}
