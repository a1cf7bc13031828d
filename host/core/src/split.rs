//! Stage 3: completion → sentences.
//!
//! The paper and the authors' published code differ here. [`Compatibility::Paper`] is the method as
//! written: sections are where their tags are, and tokens carry exact character spans.
//! [`Compatibility::Reference`] reproduces the code ([`compat`]), whose offsets drift and which
//! finds sections by searching for their text; the golden vectors pin it.

use std::ops::Range;

use crate::sentence::{Section, Sentence, Split, split_sentences};
use crate::template::{ALL_TAGS, ANSWER, THINK};
use crate::text::{CharOffsets, strip};
use crate::{Compatibility, compat};

/// Cuts a completion into the sentences of its think and answer blocks.
#[must_use]
pub fn split(completion: &str, compatibility: Compatibility) -> Split {
    match compatibility {
        Compatibility::Paper => split_by_position(completion),
        Compatibility::Reference => compat::split(completion),
    }
}

/// Sections lie where their tags are. An unclosed block ends at the next block or at the end of the
/// text (a completion that was cut off is still scored), and a lone `</think>` closes a block that
/// the prompt had opened.
fn split_by_position(completion: &str) -> Split {
    let find_from = |tag: &str, from: usize| completion[from..].find(tag).map(|at| from + at);
    let think = match (completion.find(THINK.open), completion.find(THINK.close)) {
        (Some(at), _) => Some(at + THINK.open.len()),
        (None, Some(_)) => Some(0),
        (None, None) => None,
    }
    .map(|start| {
        let end = find_from(THINK.close, start).or_else(|| find_from(ANSWER.open, start));
        start..end.unwrap_or(completion.len())
    });
    let answer = find_from(ANSWER.open, think.as_ref().map_or(0, |think| think.end))
        .or_else(|| completion[..think.as_ref().map_or(0, |think| think.start)].find(ANSWER.open))
        .map(|at| {
            let start = at + ANSWER.open.len();
            let end = find_from(ANSWER.close, start).unwrap_or(completion.len());
            let before_think =
                think.as_ref().filter(|think| think.start > start).map(|think| think.start);
            start
                ..before_think
                    .map_or(end, |limit| end.min(limit.saturating_sub(THINK.open.len())).max(start))
        });

    let mut blocks: Vec<(Section, Range<usize>)> = Vec::new();
    blocks.extend(think.map(|range| (Section::Think, range)));
    blocks.extend(answer.map(|range| (Section::Answer, range)));
    if blocks.is_empty() {
        blocks.push((Section::Body, 0..completion.len()));
    }

    let offsets = CharOffsets::new(completion);
    let chars = |part: &str| {
        let start = part.as_ptr() as usize - completion.as_ptr() as usize;
        offsets.at(start)..offsets.at(start + part.len())
    };
    let mut split = Split::default();
    for (section, range) in blocks {
        let block = strip(&completion[range]);
        if block.is_empty() {
            continue;
        }
        split.sections.push(chars(block));
        // A stray tag inside a block is markup, not text: it ends a sentence.
        for piece in cut_at_tags(block) {
            for text in split_sentences(piece) {
                split.sentences.push(Sentence {
                    text: text.to_owned(),
                    section,
                    span: Some(chars(text)),
                    triplets: Vec::new(),
                });
            }
        }
    }
    split
}

fn cut_at_tags(block: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(block);
    std::iter::from_fn(move || {
        let text = rest?;
        let next = ALL_TAGS.iter().filter_map(|tag| text.find(tag).map(|at| (at, tag.len()))).min();
        match next {
            Some((at, len)) => {
                rest = Some(&text[at + len..]);
                Some(&text[..at])
            }
            None => {
                rest = None;
                Some(text)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sentences(text: &str, compatibility: Compatibility) -> Vec<(Section, String)> {
        split(text, compatibility)
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
        fn paper_sentence_spans_match_their_text(text in "([a-zé\u{1c}.!? ]|<think>|</think>|<answer>|</answer>){0,30}") {
            let chars: Vec<char> = text.chars().collect();
            for sentence in split(&text, Compatibility::Paper).sentences {
                let span = sentence.span.expect("the place is always known");
                prop_assert_eq!(chars[span].iter().collect::<String>(), sentence.text);
            }
        }

        #[test]
        fn paper_and_reference_splits_agree_on_closed_blocks(think in "[a-c]{1,5}(\\. [a-c]{1,5}){0,3}", answer in "[x-z]{1,6}") {
            let text = format!("<think>{think}</think><answer>{answer}</answer>");
            prop_assert_eq!(split(&text, Compatibility::Paper), split(&text, Compatibility::Reference));
        }
    }
}
