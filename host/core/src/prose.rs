//! Sentences of real text: prose of any script, lists, lines, footnotes and quotations.
//!
//! Unicode's sentence terminators are candidates. A candidate is no boundary inside an abbreviation,
//! after an initial or a list number, or before a word in lower case. Bullets and line breaks are
//! boundaries too, except where a line is wrapped.

mod words;

use std::sync::LazyLock;

use regex::Regex;

use crate::Language;
use crate::language::{LanguageWords, words_of};

use words::{
    AFTER_ORDINAL, BEFORE_NUMBER, COMMON_WORDS, COMMON_WORDS_ELSEWHERE, MONTHS, NEVER_LAST,
    PERHAPS_LAST, STARTERS,
};

/// Markers of list items, headings and quotations at the start of a line.
static MARKER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x)^(?:
            (?: [-*+–—] | \#{1,6} | > | \(?\d{1,3}[.):] | \(?[a-z][.)] | \(?[A-Z]\)
              | \(?[ivx]{1,4}[.)] )\s+
          | \(?\d{1,3}\)
          | [•‣⁃◦▪▫●○■□►➤✓✔|①-⑳]\s*
          | [（(]?[0-9一二三四五六七八九十]{1,3}[、）]\s* )",
    )
});

/// Ends of lines, in plain text and in HTML. `\r\n` is one end: two would be an empty line.
static LINE_END: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\r\n|[\n\r\u{85}\u{2028}\u{2029}]|<br ?/?>|</?(?:p|li|ul|ol|div|tr|h[1-6])>")
});

/// Terminators, or the marker of a list item within a line.
static CANDIDATE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[\p{sb=STerm}\p{sb=ATerm}…]+|\s[•‣▪●①-⑳]\s|\s\(?\d{1,2}\)\s"));

/// A number in a bracket at the start of a list item. It shows that others within the line are
/// markers too.
static BRACKETED_NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\s*\(?\d{1,2}\)"));

/// Closing quotes, brackets, emphasis and footnotes, which belong to the sentence before them.
static CLOSING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"^(?:["'”’»›)}」』】）〉》*_`\]]|[⁰¹²³⁴-⁹]|\[(?:\d{1,3}(?:[,–-] ?\d{1,3})*|[a-z]|note \d+|citation needed)\])*"#,
    )
});

fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is constant")
}

/// Opening quotes, brackets, emphasis and dashes before the first word of a sentence.
const OPENING: &str = "\"'“‘«‹„‚([{（「『【〈《¿¡*_`-–—";

/// Shortest and longest width of text that is wrapped, in characters.
const WRAP_WIDTHS: std::ops::RangeInclusive<usize> = 40..=120;

/// Last words of a line that continues on the next one.
const UNFINISHED: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "by", "for", "from", "in", "is", "of", "on", "or", "that",
    "the", "to", "was", "were", "with",
];

/// Splits real text into sentences, without the markers of list items. The sentences are trimmed,
/// and each has a letter or a digit.
#[must_use]
pub fn split_prose(text: &str, language: Language) -> Vec<&str> {
    let prose = Prose {
        is_lowercase: !text.chars().any(char::is_uppercase),
        is_german: language == Language::German,
        other_words: (language != Language::English).then(|| words_of(language)),
    };
    let mut sentences = Vec::new();
    for block in prose.blocks(text) {
        prose.split_block(block, &mut sentences);
    }
    sentences
}

/// Properties of a text that decide where its sentences end.
struct Prose {
    /// True if the text has no capitals, so that a sentence starts without one.
    is_lowercase: bool,
    /// True if a number before a noun and a full stop is an ordinal.
    is_german: bool,
    /// Words of a language other than English, whose own are in [`words`].
    other_words: Option<&'static LanguageWords>,
}

impl Prose {
    /// Splits a text into list items, paragraphs and single lines.
    fn blocks<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let mut blocks = Vec::new();
        let mut paragraph: Vec<&str> = Vec::new();
        for line in LINE_END.split(text) {
            let line = line.trim();
            if line.is_empty() || MARKER.is_match(line) {
                self.push_paragraph(text, &paragraph, &mut blocks);
                paragraph.clear();
            }
            if !line.is_empty() {
                paragraph.push(line);
            }
        }
        self.push_paragraph(text, &paragraph, &mut blocks);
        blocks
    }

    /// Adds the lines of a paragraph, wrapped ones together.
    fn push_paragraph<'a>(&self, text: &'a str, lines: &[&'a str], blocks: &mut Vec<&'a str>) {
        let is_wrapped = is_wrapped(lines);
        let mut first = 0;
        for last in 0..lines.len() {
            let continues = lines
                .get(last + 1)
                .is_some_and(|next| is_wrapped || self.continues(lines[last], next));
            if !continues {
                let start = offset_in(text, lines[first]);
                let end = offset_in(text, lines[last]) + lines[last].len();
                blocks.push(&text[start..end]);
                first = last + 1;
            }
        }
    }

    /// Returns true if the sentence of `line` continues on the next line.
    fn continues(&self, line: &str, next: &str) -> bool {
        let last_word = line.rsplit(char::is_whitespace).next().unwrap_or_default();
        line.ends_with(',')
            || UNFINISHED.contains(&last_word)
            || self.other_words.is_some_and(|words| words.name_nothing(last_word))
            || (!self.is_lowercase && starts_lowercase(next))
    }

    /// Adds the sentences of a block.
    fn split_block<'a>(&self, block: &'a str, sentences: &mut Vec<&'a str>) {
        let has_bracketed_numbers = BRACKETED_NUMBER.is_match(block);
        let mut start = skip_markers(block, 0);
        let mut at = start;
        while let Some(found) = CANDIDATE.find_at(block, at) {
            let mut end = found.end();
            let is_marker = found.as_str().starts_with(char::is_whitespace);
            if is_marker {
                if found.as_str().ends_with(") ") && !has_bracketed_numbers {
                    at = end;
                    continue;
                }
                end = found.start();
            } else {
                end += CLOSING.find(&block[end..]).map_or(0, |closing| closing.len());
                end += closing_guillemet(&block[end..]);
            }
            let candidate = BoundaryCandidate {
                before: &block[start..found.start()],
                terminator: found.as_str(),
                closing: &block[found.end().min(end)..end],
                after: &block[end..],
            };
            if is_marker || self.is_boundary(&candidate) {
                push_sentence(&block[start..end], sentences);
                start = skip_markers(block, end);
                at = start.max(found.end());
            } else {
                at = end;
            }
        }
        push_sentence(&block[start.min(block.len())..], sentences);
    }

    fn is_boundary(&self, candidate: &BoundaryCandidate<'_>) -> bool {
        let &BoundaryCandidate { before, terminator, closing, after } = candidate;
        let next = after.trim_start();
        let has_blank = next.len() < after.len();
        let next_word = first_word(next);
        if next_word.is_empty() {
            return has_blank && !next.starts_with([',', ';', ':', '&', '/', '.']);
        }
        if is_of_other_script(terminator) {
            // 「…。」と言った: a quotation within a sentence.
            let is_quoted = !closing.is_empty() && next.starts_with(is_hiragana);
            return !is_quoted && !next.starts_with(['、', '，', ',']);
        }
        if next.starts_with([',', ';', ':', '&', '/', '%', '=', '.']) {
            return false;
        }
        if starts_lowercase(next_word) && !self.is_lowercase {
            return false;
        }
        if !has_blank {
            return !self.is_lowercase && self.is_boundary_without_blank(candidate, next_word);
        }
        let word = last_word(before);
        if terminator != "." || word.is_empty() {
            return true;
        }
        // A closing quote ends what an abbreviation would continue, a closing bracket may not.
        !is_list_number(before) && self.ends_at_full_stop(word, next, next_word)
    }

    /// Returns true if a sentence ends where a blank is missing: `in 1990.He died`, but not `example.Com`
    /// in an address or `St.Louis`.
    fn is_boundary_without_blank(
        &self,
        candidate: &BoundaryCandidate<'_>,
        next_word: &str,
    ) -> bool {
        let &BoundaryCandidate { before, terminator, closing, after } = candidate;
        let mut next = next_word.chars();
        let Some(first) = next.next() else { return false };
        if !first.is_uppercase() {
            let is_caseless = |c: char| c.is_alphabetic() && !c.is_lowercase();
            return is_caseless(first) && before.ends_with(is_caseless);
        }
        if !closing.is_empty() {
            return !after.starts_with(['-', '–']);
        }
        let is_capitalised = next
            .next()
            .map_or(self.is_starter(&next_word.to_lowercase()), |c| c.is_lowercase() || c == '\'');
        let word = last_word(before);
        let is_capitals = |text: &str| text.len() >= 4 && text.chars().all(char::is_uppercase);
        if is_capitals(word) && is_capitals(next_word) {
            return true;
        }
        let is_word = word.len() >= 2
            && word != "www"
            && word.ends_with(|c: char| c.is_lowercase() || c.is_ascii_digit())
            && !word.contains(['.', '@', ':', '\\', '_']);
        is_capitalised
            && is_word
            && !(terminator == "." && self.is_abbreviation(&word.to_lowercase()))
    }

    /// Returns true if a sentence ends at the full stop between a word and the next one.
    fn ends_at_full_stop(&self, word: &str, next: &str, next_word: &str) -> bool {
        let lower = word.to_lowercase();
        let lower_next = next_word.to_lowercase();
        let after_next = &next[offset_in(next, next_word) + next_word.len()..];
        let is_initial = after_next.starts_with('.');
        let is_starter = self.is_starter(&lower_next) && !is_initial;
        let is_number = starts_with_digit(next_word);
        if self.is_common_word(&lower) {
            let is_date = MONTHS.contains(&lower_next.as_str())
                && starts_with_digit(after_next.trim_start_matches(['.', ' ']));
            return !is_number && !is_date;
        }
        if self.is_never_last(&lower) {
            return false;
        }
        if BEFORE_NUMBER.contains(&lower.as_str()) {
            return !is_number && (word.chars().count() > 1 || is_starter);
        }
        if self.is_perhaps_last(&lower) || is_acronym(word) {
            return is_starter;
        }
        let is_day = word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_digit());
        let is_ordinal =
            AFTER_ORDINAL.contains(&lower_next.as_str()) || (self.is_german && !is_starter);
        !(is_day && is_ordinal)
    }

    fn is_abbreviation(&self, word: &str) -> bool {
        let is_in_list = self.is_never_last(word) || self.is_perhaps_last(word);
        is_in_list && !self.is_common_word(word)
    }

    fn is_common_word(&self, word: &str) -> bool {
        COMMON_WORDS.contains(&word)
            || (self.other_words.is_some() && COMMON_WORDS_ELSEWHERE.contains(&word))
    }

    fn is_never_last(&self, word: &str) -> bool {
        NEVER_LAST.contains(&word)
            || self.other_words.is_some_and(|words| words.never_last.contains(&word))
    }

    fn is_perhaps_last(&self, word: &str) -> bool {
        PERHAPS_LAST.contains(&word)
            || self.other_words.is_some_and(|words| words.perhaps_last.contains(&word))
    }

    /// Returns true if a word, in lower case, begins sentences and seldom a name. An apostrophe has
    /// ended it: `c` of “C'est”.
    fn is_starter(&self, word: &str) -> bool {
        STARTERS.contains(&word) || self.other_words.is_some_and(|words| words.name_nothing(word))
    }
}

/// A place where a sentence may end.
struct BoundaryCandidate<'a> {
    /// The sentence up to the terminator.
    before: &'a str,
    terminator: &'a str,
    /// Quotes, brackets and footnotes after the terminator.
    closing: &'a str,
    /// The rest of the block.
    after: &'a str,
}

/// Returns true if the lines of a paragraph are wrapped: each is as long as the width allows.
fn is_wrapped(lines: &[&str]) -> bool {
    let lengths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
    let width = lengths.iter().copied().max().unwrap_or(0);
    // Two lines fit any width.
    lines.len() >= 3
        && WRAP_WIDTHS.contains(&width)
        && lines.iter().skip(1).zip(&lengths).all(|(next, length)| {
            let word = next.split_whitespace().next().unwrap_or_default();
            length + 1 + word.chars().count() > width
        })
}

/// Returns the byte offset of a part of `text`.
fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// Returns the byte offset of the first character at or after `start` that is neither white space nor
/// part of a list marker.
fn skip_markers(block: &str, start: usize) -> usize {
    let mut at = start;
    loop {
        let rest = block[at..].trim_start();
        at = block.len() - rest.len();
        match MARKER.find(rest) {
            Some(marker) => at += marker.len(),
            None => return at,
        }
    }
}

fn push_sentence<'a>(sentence: &'a str, sentences: &mut Vec<&'a str>) {
    let sentence = sentence.trim();
    if sentence.contains(char::is_alphanumeric) {
        sentences.push(sentence);
    }
}

/// Returns the length of `“`, `«` or ` »` if it closes a quotation, as in German and French.
fn closing_guillemet(rest: &str) -> usize {
    let inner =
        rest.strip_prefix([' ', '\u{a0}', '\u{202f}']).filter(|inner| inner.starts_with('»'));
    let quote = inner.unwrap_or(rest);
    match quote.strip_prefix(['“', '«', '»']) {
        Some(next) if next.is_empty() || next.starts_with(char::is_whitespace) => {
            rest.len() - next.len()
        }
        _ => 0,
    }
}

/// Returns true if a terminator needs no blank after it: one of another script than Latin, Greek and
/// Cyrillic.
fn is_of_other_script(terminator: &str) -> bool {
    terminator.chars().any(|c| !c.is_ascii() && !matches!(c, '…' | '‼' | '⁇' | '⁈' | '⁉' | '․'))
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn is_hiragana(c: char) -> bool {
    ('\u{3041}'..='\u{309f}').contains(&c)
}

/// Returns true if the first word has no capital. `iPhone` has one.
fn starts_lowercase(text: &str) -> bool {
    let mut letters = text.trim_start_matches(|c| OPENING.contains(c)).chars();
    letters.next().is_some_and(char::is_lowercase)
        && !letters.next().is_some_and(char::is_uppercase)
}

/// Returns the first letters or digits of a text, after opening quotes and brackets.
fn first_word(text: &str) -> &str {
    let text = text.trim_start_matches(|c: char| OPENING.contains(c) || c.is_whitespace());
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    &text[..end]
}

/// Returns the last word of a text, without opening quotes and brackets.
fn last_word(text: &str) -> &str {
    let start = text.rfind(|c: char| c.is_whitespace() || "([{\"“‘«„/—–".contains(c));
    let word = start.map_or(text, |at| &text[at..]);
    word.trim_start_matches(|c: char| !c.is_alphanumeric())
}

/// Returns true for the number of a list item, the only text of a sentence so far.
fn is_list_number(before: &str) -> bool {
    let number = before.trim();
    (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for an initial or an acronym with full stops: `W`, `U.S`, `Ph.D`.
fn is_acronym(word: &str) -> bool {
    let has_case = |c: char| c.is_lowercase() || c.is_uppercase();
    word.split(['.', '-']).all(|part| {
        let letters = part.chars().count();
        part.chars().all(has_case) && (letters == 1 || (letters == 2 && word.contains('.')))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Case {
        #[serde(default)]
        language: Language,
        text: String,
        sentences: Vec<String>,
    }

    /// Texts whose sentences a person marked.
    #[test]
    fn prose_splits_match_vectors() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../../../tests/vectors/prose.json")).unwrap();
        for Case { language, text, sentences } in cases {
            assert_eq!(split_prose(&text, language), sentences, "{text:?}");
        }
    }

    #[test]
    fn windows_line_ends_split_like_unix_ones() {
        for text in [
            "The castle was built in 1432,\nwhen the town was small. It burned down\nin 1512.",
            "The river rises in the hills and\nflows north.\n\nThe second paragraph\nends here.",
        ] {
            let unix = split_prose(text, Language::English);
            assert_eq!(unix.len(), 2, "{unix:?}");
            let windows_text = text.replace('\n', "\r\n");
            let windows: Vec<String> = split_prose(&windows_text, Language::English)
                .into_iter()
                .map(|sentence| sentence.replace("\r\n", "\n"))
                .collect();
            assert_eq!(windows, unix);
        }
    }

    proptest! {
        #[test]
        fn sentences_are_parts_of_text_in_order(text in r#"([A-Za-z0-9 .!?。…"'”“«»()\[\]\n-]|U\.S\.|Dr\. |•|<br>|1\) |\PC){0,40}"#) {
            let mut end = 0;
            for sentence in split_prose(&text, Language::English) {
                let start = offset_in(&text, sentence);
                prop_assert!(start >= end && sentence.contains(char::is_alphanumeric));
                prop_assert_eq!(sentence, sentence.trim());
                end = start + sentence.len();
            }
        }
    }
}
