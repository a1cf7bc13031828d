//! Cutting documents into passages.

/// Passages of at most `words` words, which are what stands between spaces; as few as it takes, and
/// as equal in length as can be, so that no document ends in a passage of one word. The space
/// within a passage stays as it is. `words` is at least 1.
pub(crate) fn cut(text: &str, words: usize) -> Vec<&str> {
    let spans: Vec<(usize, usize)> = text
        .split_whitespace()
        .map(|word| {
            let start = word.as_ptr() as usize - text.as_ptr() as usize;
            (start, start + word.len())
        })
        .collect();
    let passages = spans.len().div_ceil(words);
    let cut = |passage: usize| passage * spans.len() / passages;
    (0..passages)
        .map(|passage| &text[spans[cut(passage)].0..spans[cut(passage + 1) - 1].1])
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn passage_lengths_are_balanced() {
        assert_eq!(cut(" a b\n\nc  d e ", 2), ["a", "b\n\nc", "d e"]);
        assert_eq!(cut("a b c d", 4), ["a b c d"]);
        assert_eq!(cut("über ﬁve", 1), ["über", "ﬁve"]);
        assert_eq!(cut(" \n", 4), [] as [&str; 0]);
    }

    proptest! {
        #[test]
        fn cutting_preserves_every_word(text in "[a ü\n]{0,60}", words in 1_usize..9) {
            let passages = cut(&text, words);
            let lengths: Vec<usize> = passages.iter().map(|passage| passage.split_whitespace().count()).collect();
            prop_assert!(lengths.iter().all(|&length| (1..=words).contains(&length)), "{lengths:?}");
            prop_assert!(lengths.iter().max().unwrap_or(&0) - lengths.iter().min().unwrap_or(&0) <= 1, "{lengths:?}");
            let again: Vec<&str> = passages.iter().flat_map(|passage| passage.split_whitespace()).collect();
            prop_assert_eq!(again, text.split_whitespace().collect::<Vec<_>>());
        }
    }
}
