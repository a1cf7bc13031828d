//! Stage 3: rollout → sentences, and σ: which sentence each token belongs to.
//!
//! The paper and the authors' published code differ here. [`Compatibility::Paper`] is the method as
//! written: sections are where their tags are, and tokens carry exact character spans.
//! [`Compatibility::Reference`] reproduces the code ([`compat`]), whose offsets drift and which
//! finds sections by searching for their text; the golden vectors pin it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::template::{ALL_TAGS, ANSWER, THINK};
use crate::text::{CharOffsets, is_space, strip};
use crate::{Compatibility, Triplet, compat};

/// The block of the template that a sentence stood in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// Between the think tags.
    Think,
    /// Between the answer tags.
    Answer,
    /// The whole text, where it has neither block.
    Body,
}

/// One sentence of a completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentence {
    /// Trimmed, never empty.
    pub text: String,
    /// The block it stood in.
    pub section: Section,
    /// Its characters in the completion; `None` where [`Compatibility::Reference`] cannot find it
    /// again.
    pub span: Option<Range<usize>>,
    /// What the extractor found in it; empty until it ran.
    #[serde(default)]
    pub triplets: Vec<Triplet>,
}

/// A completion cut into sentences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// Think first, then answer.
    pub sentences: Vec<Sentence>,
    /// The characters of the scored sections, as far as they were found.
    pub sections: Vec<Range<usize>>,
}

/// σ for one completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Alignment {
    /// `[T]` index of each token's sentence.
    pub sentence_of: Vec<Option<usize>>,
    /// Aligned tokens ÷ tokens whose midpoint lies in a scored section; 0 where there is no
    /// sentence, 1 where there are sentences but no tokens (a completion that is scored as text
    /// alone).
    pub rate: f64,
}

impl Alignment {
    /// From the first to past the last token of a sentence; `None` where it has none.
    #[must_use]
    pub fn tokens_of(&self, sentence: usize) -> Option<Range<usize>> {
        let is_its = |of: &Option<usize>| *of == Some(sentence);
        let first = self.sentence_of.iter().position(is_its)?;
        let last = self.sentence_of.iter().rposition(is_its)?;
        Some(first..last + 1)
    }
}

/// Cuts `text` at white space that follows `.`, `!` or `?`; pieces are trimmed, empty ones dropped
/// (App. splitting).
pub fn split_sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = strip(text);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = sentence_end(rest);
        let sentence = &rest[..end];
        rest = rest[end..].trim_start_matches(is_space);
        Some(sentence)
    })
}

/// The byte after the first terminator that white space follows, or the end.
fn sentence_end(text: &str) -> usize {
    let ends = |(at, c): (usize, char)| {
        let after = at + c.len_utf8();
        (matches!(c, '.' | '!' | '?') && text[after..].starts_with(is_space)).then_some(after)
    };
    text.char_indices().find_map(ends).unwrap_or(text.len())
}

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

/// σ: a token belongs to the first sentence whose span contains the token's midpoint (App.
/// alignment).
///
/// `token_spans` is `[T]`, in characters of the completion; `None` for a token without text.
#[must_use]
pub fn align(split: &Split, token_spans: &[Option<Range<usize>>]) -> Alignment {
    // Twice the midpoint, so that halves stay whole: span.start ≤ midpoint < span.end.
    let holds = |span: &Range<usize>, token: &Range<usize>| {
        let doubled = token.start + token.end;
        span.start * 2 <= doubled && doubled < span.end * 2
    };
    let sentence_of: Vec<Option<usize>> = token_spans
        .iter()
        .map(|token| {
            let token = token.as_ref()?;
            split
                .sentences
                .iter()
                .position(|sentence| sentence.span.as_ref().is_some_and(|span| holds(span, token)))
        })
        .collect();
    let aligned = sentence_of.iter().flatten().count();
    let scored = if split.sections.is_empty() {
        token_spans.len()
    } else {
        let inside =
            |token: &&Range<usize>| split.sections.iter().any(|section| holds(section, token));
        token_spans.iter().flatten().filter(inside).count()
    };
    let rate = match (split.sentences.is_empty(), token_spans.is_empty()) {
        (true, _) => 0.0,
        (false, true) => 1.0,
        (false, false) => aligned as f64 / scored.max(1) as f64,
    };
    Alignment { sentence_of, rate }
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
    fn cuts_after_terminators_only() {
        let cut = |text| split_sentences(text).collect::<Vec<_>>();
        assert_eq!(cut(" A b.  C!\nD? e"), ["A b.", "C!", "D?", "e"]);
        assert_eq!(cut("3.5 m\nnext"), ["3.5 m\nnext"]);
        assert_eq!(cut("\u{1c}"), [""; 0]);
    }

    #[test]
    fn think_comes_first_and_tags_are_no_text() {
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
    fn the_papers_way_scores_what_was_cut_off_or_opened_by_the_prompt() {
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

    #[test]
    fn a_token_belongs_where_its_midpoint_is() {
        let split = split("<think>Ab. Cd.</think>", Compatibility::Paper);
        // "<think>" "Ab" ". C" "d." "</think>"
        let spans = [Some(0..7), Some(7..9), Some(9..12), Some(12..14), Some(14..22), None];
        let alignment = align(&split, &spans);
        // The midpoint of ". C" is 10.5, on the blank between the sentences.
        assert_eq!(alignment.sentence_of, [None, Some(0), None, Some(1), None, None]);
        assert!((alignment.rate - 2.0 / 3.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn paper_spans_hold_the_sentences(text in "([a-zé\u{1c}.!? ]|<think>|</think>|<answer>|</answer>){0,30}") {
            let chars: Vec<char> = text.chars().collect();
            for sentence in split(&text, Compatibility::Paper).sentences {
                let span = sentence.span.expect("the place is always known");
                prop_assert_eq!(chars[span].iter().collect::<String>(), sentence.text);
            }
        }

        #[test]
        fn both_agree_on_closed_blocks(think in "[a-c]{1,5}(\\. [a-c]{1,5}){0,3}", answer in "[x-z]{1,6}") {
            let text = format!("<think>{think}</think><answer>{answer}</answer>");
            prop_assert_eq!(split(&text, Compatibility::Paper), split(&text, Compatibility::Reference));
        }
    }
}
