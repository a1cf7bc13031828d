//! The published code where it differs from the paper, its faults included:
//! [`corver_settings::Compatibility::Reference`]. The golden vectors pin it.

use std::ops::Range;

use crate::TextSettings;
use crate::sentence::{Section, Sentence, Split};
use crate::split::split_text;
use crate::template::{ANSWER, MIN_REASONING, THINK, Tags, answer_block};
use crate::text::{CharOffsets, is_space, strip};

/// Returns true for the refusal with a typographic apostrophe, which only the training judge accepts.
pub(crate) fn is_training_refusal(answer: &str) -> bool {
    strip(&answer.to_lowercase()) == "i don\u{2019}t know"
}

/// Returns the answer for the training judge and the self-filter: the answer block, or the whole text
/// without one.
pub(crate) fn training_answer(completion: &str) -> &str {
    answer_block(completion).unwrap_or(strip(completion))
}

/// Returns the answer for the evaluation: from `<answer>` to the end of the text, closing tag
/// included.
pub(crate) fn evaluation_answer(completion: &str) -> &str {
    completion.split_once(ANSWER.open).map_or("", |(_, rest)| strip(rest))
}

/// Returns true if an evaluated completion has the format. The published script prepends a missing
/// `<think>` first.
#[must_use]
pub fn keeps_evaluation_format(completion: &str) -> bool {
    completion.split_once(THINK.close).is_some_and(|(_, rest)| rest.contains(ANSWER.open))
}

/// Returns true if a completion matches the format pattern of training, here looser than the paper and
/// there stricter.
///
/// All tags but `<answer>` may be missing: `<think>` is prepended to a text that does not begin with
/// it. The characters of `</think>` and the blanks before it count towards the 30, and only ASCII
/// letters are letters.
pub(crate) fn keeps_format(completion: &str) -> bool {
    let body =
        completion.strip_prefix(THINK.open).unwrap_or(completion).trim_start_matches(is_space);
    if body.is_empty() || body.starts_with('<') {
        return false;
    }
    let Some((region, answer)) = body.split_once(ANSWER.open) else { return false };
    let answer = answer.trim_start_matches(is_space);
    let Some(first) = answer.chars().next() else { return false };
    let tail = &answer[first.len_utf8()..];
    if region.contains(THINK.open) || tail.contains(THINK.open) || tail.contains(ANSWER.open) {
        return false;
    }
    reasoning(region).is_some_and(|text| text.contains(|c: char| c.is_ascii_alphabetic()))
}

/// Returns the shortest prefix of `region` with at least [`MIN_REASONING`] characters that only white
/// space and at most one `</think>` follow.
fn reasoning(region: &str) -> Option<&str> {
    let trimmed = region.trim_end_matches(is_space);
    let closed = trimmed.strip_suffix(THINK.close).and_then(|inside| prefix_within(inside, inside));
    closed.or_else(|| prefix_within(trimmed, region))
}

/// Returns the shortest prefix of `text` that covers `least` without its trailing white space and has
/// at least [`MIN_REASONING`] characters.
fn prefix_within<'a>(least: &str, text: &'a str) -> Option<&'a str> {
    let needed = least.trim_end_matches(is_space).chars().count().max(MIN_REASONING);
    match text.char_indices().nth(needed) {
        Some((end, _)) => Some(&text[..end]),
        None => (text.chars().count() == needed).then_some(text),
    }
}

/// Splits a completion: sections are the first closed blocks, located by searching for their trimmed
/// text.
pub(crate) fn split(completion: &str, settings: TextSettings) -> Split {
    if strip(completion).is_empty() {
        return Split::default();
    }
    let search = SentenceSearch { completion, offsets: CharOffsets::new(completion), settings };
    let mut split = Split::default();
    let think = closed_block(completion, THINK);
    let answer = closed_block(completion, ANSWER);
    let after_think = think.map_or(0, |(_, end)| end);
    for (section, tagged, from) in
        [(Section::Think, think, 0), (Section::Answer, answer, after_think)]
    {
        let Some((text, _)) = tagged.filter(|(text, _)| !text.is_empty()) else { continue };
        let start = completion[from..].find(text).map(|at| from + at);
        if let Some(start) = start {
            let end = start + text.len();
            split.sections.push(search.offsets.at(start)..search.offsets.at(end));
        }
        search.add_sentences(text, section, start, &mut split.sentences);
    }
    if [think, answer].iter().flatten().all(|(text, _)| text.is_empty()) {
        split.sections.push(0..completion.chars().count());
        search.add_sentences(completion, Section::Body, Some(0), &mut split.sentences);
    }
    split
}

/// Returns the trimmed text of a block, and the byte offset after its closing tag.
fn closed_block(completion: &str, tags: Tags) -> Option<(&str, usize)> {
    let start = completion.find(tags.open)? + tags.open.len();
    let length = completion[start..].find(tags.close)?;
    Some((strip(&completion[start..start + length]), start + length + tags.close.len()))
}

/// A completion whose sentences are searched in it.
struct SentenceSearch<'a> {
    completion: &'a str,
    offsets: CharOffsets<'a>,
    settings: TextSettings,
}

impl SentenceSearch<'_> {
    /// Adds the sentences of a section. Each is searched from the end of the one before. A section
    /// that is not found starts at −1, which Python reads as the last character.
    fn add_sentences(
        &self,
        section_text: &str,
        section: Section,
        start: Option<usize>,
        sentences: &mut Vec<Sentence>,
    ) {
        let last = self.completion.char_indices().next_back().map_or(0, |(at, _)| at);
        let mut from = start.unwrap_or(last);
        for text in split_text(section_text, self.settings) {
            let span = self.completion[from..].find(text).map(|at| {
                let begin = from + at;
                from = begin + text.len();
                self.offsets.at(begin)..self.offsets.at(from)
            });
            sentences.push(Sentence { text: text.to_owned(), section, span, triplets: Vec::new() });
        }
    }
}

/// Returns token spans as the published code finds them: every token is decoded alone, and the lengths
/// are added up. They drift from the true text where a token is part of a character or loses its
/// leading space.
///
/// `pieces` is `[T]`; `None` or an empty text for a special token.
#[must_use]
pub fn spans_of_pieces<S: AsRef<str>>(pieces: &[Option<S>]) -> Vec<Option<Range<usize>>> {
    let mut end = 0;
    pieces
        .iter()
        .map(|piece| {
            let length = piece.as_ref().map_or(0, |text| text.as_ref().chars().count());
            let start = end;
            end += length;
            (length > 0).then_some(start..end)
        })
        .collect()
}
