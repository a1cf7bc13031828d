//! The characters of a decoded text that each token covers.
//!
//! Decoding tokens one by one loses the pieces of split characters and, with SentencePiece-style
//! tokenizers, leading spaces. Here a short window of tokens is decoded with and without the newest
//! one, and the difference is compared with the full text. This is exact for every decoder whose
//! output grows with its input, at a cost linear in the tokens.

use std::ops::Range;

use crate::error::Result;

/// Replacement for undecodable bytes, such as those of a character whose last piece is still to come.
const UNFINISHED: char = '\u{FFFD}';

/// Returns half-open ranges of characters, one per token, in order and without gaps.
///
/// Pieces of one character all cover it. A token that adds no character (a stripped leading space)
/// has an empty range.
pub(crate) fn token_spans(
    text: &str,
    tokens: &[u32],
    decode: impl Fn(&[u32]) -> Result<String>,
) -> Result<Vec<Range<usize>>> {
    let characters: Vec<char> = text.chars().collect();
    let mut spans = Vec::with_capacity(tokens.len());
    // tokens[window..settled] decode to `settled_text`, which ends between two characters, at index
    // `settled_end` of the text.
    let mut window = 0;
    let mut settled = 0;
    let mut settled_end = 0;
    let mut settled_text: Vec<char> = Vec::new();
    let mut covered = 0; // characters that are complete with the tokens so far
    for newest in 0..tokens.len() {
        let decoded: Vec<char> = decode(&tokens[window..=newest])?.chars().collect();
        let expected = settled_text.iter().chain(&characters[settled_end..]);
        let common = decoded.iter().zip(expected).take_while(|(a, b)| a == b).count();
        let complete = (settled_end + common.saturating_sub(settled_text.len())).max(covered);
        // Otherwise the newest token ends within a character.
        let is_complete = common == decoded.len() && decoded.len() >= settled_text.len();
        let end = if is_complete { complete } else { (complete + 1).min(characters.len()) };
        spans.push(covered..end.max(covered));
        covered = complete;
        if is_complete && decoded.last() != Some(&UNFINISHED) {
            window = settled;
            settled = newest + 1;
            settled_end = complete;
            settled_text = decode(&tokens[window..settled])?.chars().collect();
        }
    }
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{byte_level_tokenizer, metaspace_tokenizer};
    use crate::tokenizer::ChatTokenizer;

    fn pieces(tokenizer: &ChatTokenizer, tokens: &[u32]) -> (String, Vec<Range<usize>>) {
        let text = tokenizer.decode(tokens).unwrap();
        let spans = token_spans(&text, tokens, |ids| tokenizer.decode(ids)).unwrap();
        (text, spans)
    }

    fn byte_ids(tokenizer: &ChatTokenizer, text: &str) -> Vec<u32> {
        text.chars().map(|c| tokenizer.id(&c.to_string()).unwrap()).collect()
    }

    #[test]
    fn byte_level_pieces_share_character_span() {
        let tokenizer = byte_level_tokenizer();
        // “a”, the two bytes of é, “ ”, the four bytes of 😀, “b”, in GPT-2's byte alphabet.
        let tokens = byte_ids(tokenizer, "aÃ©ĠðŁĺĢb");
        let (text, spans) = pieces(tokenizer, &tokens);
        assert_eq!(text, "aé 😀b");
        assert_eq!(spans, [0..1, 1..2, 1..2, 2..3, 3..4, 3..4, 3..4, 3..4, 4..5]);
    }

    #[test]
    fn metaspace_spans_include_spaces() {
        let tokenizer = metaspace_tokenizer();
        let tokens: Vec<u32> =
            ["▁he", "l", "l", "o", "▁", "<0xC3>", "<0xA9>", "<0xC3>", "<0xA9>", "▁he"]
                .iter()
                .map(|t| tokenizer.id(t).unwrap())
                .collect();
        let (text, spans) = pieces(tokenizer, &tokens);
        assert_eq!(text, "hello éé he");
        let expected = [0..2, 2..3, 3..4, 4..5, 5..6, 6..7, 6..7, 7..8, 7..8, 8..11];
        assert_eq!(spans, expected);
    }

    #[test]
    fn truncated_last_character_is_covered() {
        let tokenizer = byte_level_tokenizer();
        let (text, spans) = pieces(tokenizer, &byte_ids(tokenizer, "aðŁ"));
        assert_eq!(text, "a\u{FFFD}");
        assert_eq!(spans, [0..1, 1..2, 2..2]);
    }

    proptest! {
        /// Any ids: the ranges are in order, leave no gap and cover the text.
        #[test]
        fn spans_cover_every_text(seed in proptest::collection::vec(0u32..600, 0..60)) {
            for tokenizer in [byte_level_tokenizer(), metaspace_tokenizer()] {
                let tokens: Vec<u32> = seed.iter().map(|id| id % tokenizer.vocab_size() as u32)
                    .filter(|&id| tokenizer.token_texts(&[id]).unwrap()[0].is_some()).collect();
                let (text, spans) = pieces(tokenizer, &tokens);
                let length = text.chars().count();
                let mut covered = 0;
                for span in spans {
                    prop_assert!(span.start <= covered && span.start <= span.end && span.end <= length, "{span:?}");
                    covered = covered.max(span.end);
                }
                prop_assert_eq!(covered, length);
            }
        }

        /// If no character is split, the characters of a range are the token's own text.
        #[test]
        fn unsplit_token_span_matches_its_text(text in "[a-z ]{0,40}") {
            let tokenizer = byte_level_tokenizer();
            let tokens = tokenizer.encode(&text).unwrap();
            let (decoded, spans) = pieces(tokenizer, &tokens);
            prop_assert_eq!(&decoded, &text);
            for (token, span) in tokens.iter().zip(spans) {
                prop_assert_eq!(tokenizer.decode(&[*token]).unwrap(), &text[span]);
            }
        }
    }
}
