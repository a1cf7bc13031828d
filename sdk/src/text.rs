//! White space as in the reference implementation's language, on which counts depend.

/// Returns true for Unicode white space and for the four information separators U+001C to U+001F,
/// which `char::is_whitespace` leaves out.
pub(crate) fn is_space(c: char) -> bool {
    // Fast path: nearly every character is visible ASCII.
    let visible = ('!'..='~').contains(&c);
    !visible && (matches!(c, '\u{1c}'..='\u{1f}') || c.is_whitespace())
}

/// Returns the text without white space at both ends.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strip_removes_separators_not_zero_width_characters() {
        assert_eq!(strip("\u{1c}\u{a0} a\u{200b}\u{1f}"), "a\u{200b}");
        assert_eq!(strip(" \u{3000}\t"), "");
    }
}
