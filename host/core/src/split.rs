//! Stage 3: completion → sentences.
//!
//! The paper and the authors' published code differ here. [`Compatibility::Paper`] is the method as
//! written: sections are where their tags are, and tokens have exact character spans.
//! [`Compatibility::Reference`] reproduces the code ([`compat`]): it searches for the text of a
//! section, and its offsets drift. The golden vectors pin it.
//!
//! A block is split into sentences by one of two splitters: the paper's, or that of real text
//! ([`prose`]).

use std::ops::Range;

use crate::sentence::{Section, Sentence, Split, split_sentences};
use crate::template::{ALL_TAGS, ANSWER, THINK};
use crate::text::{CharOffsets, strip};
use crate::{Compatibility, SentenceSplitter, TextSettings, compat, prose};

/// Splits a completion into the sentences of its think and answer blocks.
#[must_use]
pub fn split(completion: &str, settings: TextSettings) -> Split {
    match settings.compatibility {
        Compatibility::Paper => split_by_position(completion, settings),
        Compatibility::Reference => compat::split(completion, settings),
    }
}

/// Splits a text without tags into sentences.
#[must_use]
pub fn split_text(text: &str, settings: TextSettings) -> Vec<&str> {
    match settings.sentences {
        SentenceSplitter::Paper => split_sentences(text).collect(),
        SentenceSplitter::Prose => prose::split_prose(text, settings.language),
    }
}

/// Splits a completion whose sections are where their tags are.
fn split_by_position(completion: &str, settings: TextSettings) -> Split {
    let think = think_range(completion);
    let answer = answer_range(completion, think.as_ref());
    let mut blocks: Vec<(Section, Range<usize>)> = Vec::new();
    blocks.extend(think.map(|range| (Section::Think, range)));
    blocks.extend(answer.map(|range| (Section::Answer, range)));
    if blocks.is_empty() {
        blocks.push((Section::Body, 0..completion.len()));
    }

    let offsets = CharOffsets::new(completion);
    let mut split = Split::default();
    for (section, range) in blocks {
        let block = strip(&completion[range]);
        if block.is_empty() {
            continue;
        }
        split.sections.push(offsets.of(block));
        // A stray tag inside a block is markup, not text: it ends a sentence.
        for piece in split_at_tags(block) {
            for text in split_text(piece, settings) {
                split.sentences.push(Sentence {
                    text: text.to_owned(),
                    section,
                    span: Some(offsets.of(text)),
                    triplets: Vec::new(),
                });
            }
        }
    }
    split
}

/// Returns the bytes between the think tags. An unclosed block ends at `<answer>` or at the end of
/// the text, because a truncated completion is scored too. A lone `</think>` closes a block that the
/// prompt opened.
fn think_range(completion: &str) -> Option<Range<usize>> {
    let start = match completion.find(THINK.open) {
        Some(at) => at + THINK.open.len(),
        None if completion.contains(THINK.close) => 0,
        None => return None,
    };
    let end = find_from(completion, THINK.close, start)
        .or_else(|| find_from(completion, ANSWER.open, start));
    Some(start..end.unwrap_or(completion.len()))
}

/// Returns the bytes between the answer tags: those after the think block, or else those before it.
/// An unclosed block ends at the think block or at the end of the text.
fn answer_range(completion: &str, think: Option<&Range<usize>>) -> Option<Range<usize>> {
    let (think_start, think_end) = think.map_or((0, 0), |think| (think.start, think.end));
    let at = find_from(completion, ANSWER.open, think_end)
        .or_else(|| completion[..think_start].find(ANSWER.open))?;
    let start = at + ANSWER.open.len();
    let mut end = find_from(completion, ANSWER.close, start).unwrap_or(completion.len());
    if think_start > start {
        end = end.min(think_start.saturating_sub(THINK.open.len())).max(start);
    }
    Some(start..end)
}

/// Returns the first byte offset of `tag` at or after `from`.
fn find_from(text: &str, tag: &str, from: usize) -> Option<usize> {
    text[from..].find(tag).map(|at| from + at)
}

/// Splits a block at the tags in it, which are dropped.
fn split_at_tags(block: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(block);
    std::iter::from_fn(move || {
        let text = rest?;
        match first_tag(text) {
            Some(tag) => {
                rest = Some(&text[tag.end..]);
                Some(&text[..tag.start])
            }
            None => {
                rest = None;
                Some(text)
            }
        }
    })
}

/// Returns the bytes of the first tag in a text. One search for all tags: a search for each would
/// read the whole text again for a tag that is not in it.
fn first_tag(text: &str) -> Option<Range<usize>> {
    for (at, _) in text.match_indices('<') {
        if let Some(tag) = ALL_TAGS.iter().find(|tag| text[at..].starts_with(**tag)) {
            return Some(at..at + tag.len());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sentences(text: &str, compatibility: Compatibility) -> Vec<(Section, String)> {
        split(text, TextSettings { compatibility, ..TextSettings::default() })
            .sentences
            .into_iter()
            .map(|sentence| (sentence.section, sentence.text))
            .collect()
    }

    #[test]
    fn split_assigns_sections_and_drops_tags() {
        let text = "<think>A b. C.</think> <answer>D</answer>";
        let expected = [(Section::Think, "A b."), (Section::Think, "C."), (Section::Answer, "D")];
        for compatibility in [Compatibility::Paper, Compatibility::Reference] {
            assert_eq!(
                sentences(text, compatibility),
                expected.map(|(section, text)| (section, text.to_owned()))
            );
        }
    }

    #[test]
    fn paper_split_accepts_unclosed_and_unopened_blocks() {
        let of = |text| sentences(text, Compatibility::Paper);
        assert_eq!(
            of("<think>A.</think><answer>B"),
            [(Section::Think, "A.".into()), (Section::Answer, "B".into())]
        );
        assert_eq!(
            of("A.</think><answer>B"),
            [(Section::Think, "A.".into()), (Section::Answer, "B".into())]
        );
        assert_eq!(
            of("<think>A. C"),
            [(Section::Think, "A.".into()), (Section::Think, "C".into())]
        );
        assert_eq!(
            of("<answer>B</answer><think>A.</think>"),
            [(Section::Think, "A.".into()), (Section::Answer, "B".into())]
        );
        assert_eq!(
            of("no block. At all"),
            [(Section::Body, "no block.".into()), (Section::Body, "At all".into())]
        );
    }

    proptest! {
        #[test]
        fn paper_sentence_spans_match_their_text(text in "([a-zé\u{1c}.!? \n]|- |。|<think>|</think>|<answer>|</answer>){0,30}") {
            let chars: Vec<char> = text.chars().collect();
            for sentences in [SentenceSplitter::Paper, SentenceSplitter::Prose] {
                let settings = TextSettings { sentences, ..TextSettings::default() };
                for sentence in split(&text, settings).sentences {
                    let span = sentence.span.expect("the place is always known");
                    prop_assert_eq!(chars[span].iter().collect::<String>(), sentence.text);
                }
            }
        }

        #[test]
        fn paper_and_reference_splits_agree_on_closed_blocks(think in "[a-c]{1,5}(\\. [a-c]{1,5}){0,3}", answer in "[x-z]{1,6}") {
            let text = format!("<think>{think}</think><answer>{answer}</answer>");
            let reference =
                TextSettings { compatibility: Compatibility::Reference, ..TextSettings::default() };
            prop_assert_eq!(split(&text, TextSettings::default()), split(&text, reference));
        }
    }
}
