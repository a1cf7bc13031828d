//! White space and words as the method defines them. It was published in Python, whose character
//! classes differ from Rust's: U+001C–U+001F are white space, and combining marks are not part of a word.

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
    fn combining_mark_ends_word() {
        assert_eq!(words("Dvor\u{30c}ák").collect::<Vec<_>>(), ["Dvor", "ák"]);
    }

    #[test]
    fn char_offsets_accept_positions_in_any_order() {
        let offsets = CharOffsets::new("aéb");
        assert_eq!((offsets.at(3), offsets.at(1), offsets.at(4)), (2, 1, 3));
    }
}
