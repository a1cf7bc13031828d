//! Removes the spaces before punctuation that `transformers` removes from a decoded text if
//! tokenizer_config.json sets `clean_up_tokenization_spaces`.

use std::ops::Range;

use serde_json::Value as Json;
use tokenizers::{ModelWrapper, Tokenizer};

/// The tokenizers whose decoded text is cleaned up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanUp {
    /// None.
    Never,
    /// All except BPE, whose spaces are those of the text (`transformers` 5.7 and later).
    ExceptBpe,
    /// All, BPE included.
    Always,
}

impl CleanUp {
    /// Reads a tokenizer_config.json.
    pub(crate) fn read(config: &Json) -> Self {
        let is_set = |key: &str| config.get(key).and_then(Json::as_bool).unwrap_or_default();
        if !is_set("clean_up_tokenization_spaces") {
            Self::Never
        } else if is_set("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output")
        {
            Self::Always
        } else {
            Self::ExceptBpe
        }
    }

    /// Returns true if the text of this tokenizer is cleaned up.
    pub(crate) fn applies_to(self, tokenizer: &Tokenizer) -> bool {
        match self {
            Self::Never => false,
            Self::ExceptBpe => !matches!(tokenizer.get_model(), ModelWrapper::BPE(_)),
            Self::Always => true,
        }
    }
}

/// Patterns in the order of `PreTrainedTokenizerBase.clean_up_tokenization`, each with the range of
/// its characters that remains.
const PATTERNS: [(&str, Range<usize>); 10] = [
    (" .", 1..2),
    (" ?", 1..2),
    (" !", 1..2),
    (" ,", 1..2),
    (" ' ", 1..2),
    (" n't", 1..4),
    (" 'm", 1..3),
    (" 's", 1..3),
    (" 've", 1..4),
    (" 're", 1..4),
];

/// A text without these spaces.
pub(crate) struct CleanedUp {
    pub text: String,
    /// Indices in the original text of the remaining characters, ascending.
    remaining: Vec<usize>,
}

impl CleanedUp {
    /// Converts a range of characters of the original text to one of the cleaned text.
    pub(crate) fn span(&self, original: &Range<usize>) -> Range<usize> {
        let start = self.remaining.partition_point(|&index| index < original.start);
        let end = self.remaining.partition_point(|&index| index < original.end);
        start..end
    }
}

pub(crate) fn clean_up(text: &str) -> CleanedUp {
    let mut remaining: Vec<(usize, char)> = text.chars().enumerate().collect();
    for (pattern, range) in PATTERNS {
        let characters: Vec<char> = pattern.chars().collect();
        let mut next = Vec::with_capacity(remaining.len());
        let mut rest = remaining.as_slice();
        while !rest.is_empty() {
            let is_match = rest.len() >= characters.len()
                && rest.iter().zip(&characters).all(|((_, got), expected)| got == expected);
            if is_match {
                next.extend_from_slice(&rest[range.clone()]);
                rest = &rest[characters.len()..];
            } else {
                next.push(rest[0]);
                rest = &rest[1..];
            }
        }
        remaining = next;
    }
    CleanedUp {
        text: remaining.iter().map(|(_, c)| c).collect(),
        remaining: remaining.iter().map(|(index, _)| *index).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_up_matches_transformers() {
        // Expected texts are from Python's str.replace with the list of transformers.
        for (text, expected) in [
            ("It is n't so , is it ? No !", "It isn't so, is it? No!"),
            ("I 'm , we 've , they 're , he 's .", "I'm, we've, they're, he's."),
            ("the dogs ' tails", "the dogs'tails"),
            ("a  . b", "a . b"),
            ("é ' . x", "é '. x"),
            (" .", "."),
            ("", ""),
        ] {
            assert_eq!(clean_up(text).text, expected, "{text:?}");
        }
    }

    #[test]
    fn clean_up_spans_follow_characters() {
        let cleaned = clean_up("so , é .");
        assert_eq!(cleaned.text, "so, é.");
        // “so”, “ ,”, “ ”, “é”, “ ”, “.”
        let spans = [0..2, 2..4, 4..5, 5..6, 6..7, 7..8].map(|span| cleaned.span(&span));
        assert_eq!(spans, [0..2, 2..3, 3..4, 4..5, 5..5, 5..6]);
    }
}
