//! Stage 3: sentences, and σ: the sentence that each token belongs to. [`crate::split`] makes them of a
//! completion.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Triplet;
use crate::text::{is_space, strip};

/// The block of the template that a sentence stood in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// Between the think tags.
    Think,
    /// Between the answer tags.
    Answer,
    /// The whole text, where it has neither block.
    Body,
}

/// One sentence of a completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentence {
    /// Trimmed, never empty.
    pub text: String,
    /// The block it stood in.
    pub section: Section,
    /// Its characters in the completion; `None` where [`Compatibility::Reference`] cannot find it
    /// again.
    pub span: Option<Range<usize>>,
    /// What the extractor found in it; empty until it ran.
    #[serde(default)]
    pub triplets: Vec<Triplet>,
}

/// A completion cut into sentences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// Think first, then answer.
    pub sentences: Vec<Sentence>,
    /// The characters of the scored sections, as far as they were found.
    pub sections: Vec<Range<usize>>,
}

/// σ for one completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Alignment {
    /// `[T]` index of each token's sentence.
    pub sentence_of: Vec<Option<usize>>,
    /// Aligned tokens ÷ tokens whose midpoint lies in a scored section; 0 where there is no
    /// sentence, 1 where there are sentences but no tokens (a completion that is scored as text
    /// alone).
    pub rate: f64,
}

impl Alignment {
    /// From the first to past the last token of a sentence; `None` where it has none.
    #[must_use]
    pub fn tokens_of(&self, sentence: usize) -> Option<Range<usize>> {
        let is_its = |of: &Option<usize>| *of == Some(sentence);
        let first = self.sentence_of.iter().position(is_its)?;
        let last = self.sentence_of.iter().rposition(is_its)?;
        Some(first..last + 1)
    }
}

/// Cuts `text` at white space that follows `.`, `!` or `?`; pieces are trimmed, empty ones dropped
/// (App. splitting).
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

/// The byte after the first terminator that white space follows, or the end.
fn sentence_end(text: &str) -> usize {
    let ends = |(at, c): (usize, char)| {
        let after = at + c.len_utf8();
        (matches!(c, '.' | '!' | '?') && text[after..].starts_with(is_space)).then_some(after)
    };
    text.char_indices().find_map(ends).unwrap_or(text.len())
}

/// σ: a token belongs to the first sentence whose span contains the token's midpoint (App.
/// alignment).
///
/// `token_spans` is `[T]`, in characters of the completion; `None` for a token without text.
#[must_use]
pub fn align(split: &Split, token_spans: &[Option<Range<usize>>]) -> Alignment {
    // Twice the midpoint, so that halves stay whole: span.start ≤ midpoint < span.end.
    let holds = |span: &Range<usize>, token: &Range<usize>| {
        let doubled = token.start + token.end;
        span.start * 2 <= doubled && doubled < span.end * 2
    };
    let sentence_of: Vec<Option<usize>> = token_spans
        .iter()
        .map(|token| {
            let token = token.as_ref()?;
            split
                .sentences
                .iter()
                .position(|sentence| sentence.span.as_ref().is_some_and(|span| holds(span, token)))
        })
        .collect();
    let aligned = sentence_of.iter().flatten().count();
    let scored = if split.sections.is_empty() {
        token_spans.len()
    } else {
        let inside =
            |token: &&Range<usize>| split.sections.iter().any(|section| holds(section, token));
        token_spans.iter().flatten().filter(inside).count()
    };
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
    use crate::Compatibility;
    use crate::split::split;

    #[test]
    fn sentences_split_after_terminators_only() {
        let cut = |text| split_sentences(text).collect::<Vec<_>>();
        assert_eq!(cut(" A b.  C!\nD? e"), ["A b.", "C!", "D?", "e"]);
        assert_eq!(cut("3.5 m\nnext"), ["3.5 m\nnext"]);
        assert_eq!(cut("\u{1c}"), [""; 0]);
    }

    #[test]
    fn token_aligns_to_sentence_at_its_midpoint() {
        let split = split("<think>Ab. Cd.</think>", Compatibility::Paper);
        // "<think>" "Ab" ". C" "d." "</think>"
        let spans = [Some(0..7), Some(7..9), Some(9..12), Some(12..14), Some(14..22), None];
        let alignment = align(&split, &spans);
        // The midpoint of ". C" is 10.5, on the blank between the sentences.
        assert_eq!(alignment.sentence_of, [None, Some(0), None, Some(1), None, None]);
        assert!((alignment.rate - 2.0 / 3.0).abs() < 1e-12);
    }
}
