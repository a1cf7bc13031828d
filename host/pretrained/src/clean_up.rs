//! The spaces that `transformers` takes out of a decoded text where tokenizer_config.json has
//! `clean_up_tokenization_spaces`.

use std::ops::Range;

/// Every pattern in its turn, and which of its characters stay. As
/// `PreTrainedTokenizerBase.clean_up_tokenization` has them.
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

/// A text without those spaces.
pub(crate) struct CleanedUp {
    pub text: String,
    /// The characters that are left, by their places in the text as it was.
    kept: Vec<usize>,
}

impl CleanedUp {
    /// Where characters of the text as it was are now.
    pub(crate) fn span(&self, before: &Range<usize>) -> Range<usize> {
        let now = |place: usize| self.kept.partition_point(|&kept| kept < place);
        now(before.start)..now(before.end)
    }
}

pub(crate) fn clean_up(text: &str) -> CleanedUp {
    let mut left: Vec<(usize, char)> = text.chars().enumerate().collect();
    for (pattern, stays) in PATTERNS {
        let pattern: Vec<char> = pattern.chars().collect();
        let mut next = Vec::with_capacity(left.len());
        let mut rest = left.as_slice();
        while !rest.is_empty() {
            let found = rest.len() >= pattern.len()
                && rest.iter().zip(&pattern).all(|((_, got), wanted)| got == wanted);
            let (taken, stays) = if found { (pattern.len(), stays.clone()) } else { (1, 0..1) };
            next.extend_from_slice(&rest[stays]);
            rest = &rest[taken..];
        }
        left = next;
    }
    CleanedUp {
        text: left.iter().map(|(_, c)| c).collect(),
        kept: left.iter().map(|(place, _)| *place).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_up_matches_transformers() {
        // By Python's str.replace, with the list of transformers.
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
