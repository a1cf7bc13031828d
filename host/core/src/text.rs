//! White space and words as the method defines them. It was published in Python, whose character
//! classes differ from Rust's: U+001C–U+001F are white space, and combining marks are not part of a word.

use std::fmt::Write;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// Returns true if the published method counts a character as white space.
#[must_use]
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// Trims white space off both ends.
#[must_use]
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Iterates over the maximal runs of letters, numbers and underscores.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    static WORD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[\p{L}\p{N}_]+").expect("a constant pattern that compiles"));
    WORD.find_iter(text).map(|found| found.as_str())
}

/// Longest part of a text that a message quotes, characters.
const MAX_QUOTED: usize = 200;

/// Returns the start of a text, for a message.
#[must_use]
pub fn excerpt(text: &str) -> String {
    shorten(text, MAX_QUOTED)
}

/// Returns the first `max_chars` characters of a text, and `…` if there are more.
#[must_use]
pub fn shorten(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Escapes control characters, and characters that end a line or change the direction of writing,
/// except for `allowed` ones. The escapes are JSON's, so that escaped JSON has the same value.
#[must_use]
pub fn escape_controls(text: &str, allowed: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        let is_hidden = c.is_control()
            || matches!(
                c,
                '\u{61c}'
                    | '\u{200e}'
                    | '\u{200f}'
                    | '\u{2028}'..='\u{202e}'
                    | '\u{2066}'..='\u{2069}'
            );
        if is_hidden && !allowed.contains(&c) {
            write!(escaped, "\\u{:04x}", u32::from(c)).expect("a String takes everything");
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Translates byte offsets of one text into character offsets.
pub(crate) struct CharOffsets<'a> {
    text: &'a str,
    /// Last offset that was translated, `(byte, char)`: most calls move forward from there.
    last: std::cell::Cell<(usize, usize)>,
}

impl<'a> CharOffsets<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, last: std::cell::Cell::new((0, 0)) }
    }

    /// Returns the characters that `part` covers, which is a slice of the text.
    pub(crate) fn of(&self, part: &str) -> Range<usize> {
        let start = part.as_ptr() as usize - self.text.as_ptr() as usize;
        self.at(start)..self.at(start + part.len())
    }

    /// Returns the number of characters before byte `offset`, which must be a character boundary.
    pub(crate) fn at(&self, offset: usize) -> usize {
        let (byte, chars) = self.last.get();
        let char_offset = if offset >= byte {
            chars + self.text[byte..offset].chars().count()
        } else {
            self.text[..offset].chars().count()
        };
        self.last.set((offset, char_offset));
        char_offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_separators_count_as_white_space() {
        assert_eq!(strip("\u{1c}a b\u{1f}\u{3000}"), "a b");
        assert!(!is_space('\u{200b}'));
    }

    #[test]
    fn hidden_characters_are_escaped() {
        assert_eq!(
            escape_controls("a\nb\0\x1b[2J\u{9b}1m\u{202e}\u{2066}", &['\n']),
            "a\nb\\u0000\\u001b[2J\\u009b1m\\u202e\\u2066"
        );
        assert_eq!(escape_controls("“Größe” 世界 − é", &[]), "“Größe” 世界 − é");
    }

    #[test]
    fn excerpt_has_at_most_two_hundred_characters() {
        assert_eq!(excerpt(&"é".repeat(200)), "é".repeat(200));
        assert_eq!(excerpt(&"é".repeat(201)), format!("{}…", "é".repeat(200)));
    }

    #[test]
    fn combining_mark_ends_word() {
        assert_eq!(words("Dvor\u{30c}ák").collect::<Vec<_>>(), ["Dvor", "ák"]);
    }

    #[test]
    fn char_offsets_accept_positions_in_any_order() {
        let offsets = CharOffsets::new("aéb");
        assert_eq!((offsets.at(3), offsets.at(1), offsets.at(4)), (2, 1, 3));
    }
}
