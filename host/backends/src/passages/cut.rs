//! Cutting documents into passages.

/// Cuts a text into the fewest passages of at most `words` words, as equal in length as possible,
/// so that no document ends in a passage of one word. A word is a run of characters without white
/// space; white space within a passage is preserved. `words` is at least 1.
pub(crate) fn cut(text: &str, words: usize) -> Vec<&str> {
    let mut spans = Vec::new();
    for word in text.split_whitespace() {
        let start = word.as_ptr() as usize - text.as_ptr() as usize;
        spans.push((start, start + word.len()));
    }
    let number = spans.len().div_ceil(words);
    let mut passages = Vec::with_capacity(number);
    for passage in 0..number {
        let first = passage * spans.len() / number;
        let end = (passage + 1) * spans.len() / number;
        passages.push(&text[spans[first].0..spans[end - 1].1]);
    }
    passages
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
            let mut lengths = Vec::new();
            let mut again = Vec::new();
            for passage in passages {
                lengths.push(passage.split_whitespace().count());
                again.extend(passage.split_whitespace());
            }
            let longest = lengths.iter().max().unwrap_or(&0);
            let shortest = lengths.iter().min().unwrap_or(longest);
            let all_in_range = lengths.iter().all(|&length| (1..=words).contains(&length));
            prop_assert!(all_in_range, "{lengths:?}");
            prop_assert!(longest - shortest <= 1, "{lengths:?}");
            prop_assert_eq!(again, text.split_whitespace().collect::<Vec<_>>());
        }
    }
}
