//! Cutting documents into passages.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

/// Longest word, characters. A longer run, such as encoded data, is cut into several words, which
/// limits the length of a passage.
const MAX_WORD_CHARS: usize = 64;

/// Cuts a text into the fewest passages of at most `words` words, as equal in length as possible,
/// so that no document ends in a passage of one word. White space within a passage is preserved.
/// `words` is at least 1.
pub(crate) fn cut(text: &str, words: usize) -> Vec<&str> {
    let spans = word_spans(text);
    let number = spans.len().div_ceil(words);
    let mut passages = Vec::with_capacity(number);
    for passage in 0..number {
        let first = passage * spans.len() / number;
        let end = (passage + 1) * spans.len() / number;
        passages.push(&text[spans[first].start..spans[end - 1].end]);
    }
    passages
}

/// Returns the byte range of each word with its punctuation. A word ends at white space, between two
/// characters of a script without spaces, and at [`MAX_WORD_CHARS`].
fn word_spans(text: &str) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    let mut num_chars = 0;
    let mut follows_word = false;
    for (start, segment) in text.split_word_bound_indices() {
        if segment.chars().all(char::is_whitespace) {
            num_chars = 0;
            continue;
        }
        let is_word = segment.contains(char::is_alphanumeric);
        // UAX #29 puts a boundary between two words without a space only in such scripts, or between
        // scripts.
        if num_chars == 0 || is_word && follows_word {
            spans.push(start..start);
            num_chars = 0;
        }
        follows_word = is_word;
        for (offset, c) in segment.char_indices() {
            if num_chars == MAX_WORD_CHARS {
                spans.push(start + offset..start + offset);
                num_chars = 0;
            }
            num_chars += 1;
            if let Some(span) = spans.last_mut() {
                span.end = start + offset + c.len_utf8();
            }
        }
    }
    spans
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
        assert_eq!(cut("The well-known (U.S.) 3.14% cat's", 1).len(), 5);
        assert_eq!(cut(" \n", 4), [] as [&str; 0]);
    }

    #[test]
    fn text_without_spaces_is_cut() {
        assert_eq!(cut("巴黎是法国的首都。", 4), ["巴黎是法", "国的首都。"]);
        assert_eq!(cut("กินข้าว", 2).concat(), "กินข้าว");
        for character in ["x", "巴", "。", "\u{301}", "\u{200d}"] {
            let text = character.repeat(30_000);
            let passages = cut(&text, 100);
            assert!(passages.len() > 4 && passages.concat() == text, "{character:?}");
            for passage in passages {
                assert!(passage.chars().count() <= 100 * MAX_WORD_CHARS, "{character:?}");
            }
        }
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
