//! A completion's text, with every sentence coloured by its reward.

use corver_core::split::split;
use corver_core::{RewardSettings, SentenceTrace, Trace};
use maud::{Markup, html};

use crate::number;

/// Number of shades of each colour.
const SHADES: f64 = 3.0;
/// Absolute reward of the strongest shade, the paper's largest penalty. It is the same on every page,
/// so that colours of two pages can be compared.
const FULL_REWARD: f64 = 0.3;
/// Smallest absolute reward that is not shown as 0.
const LEAST: f64 = 1e-9;

/// Returns the completion with coloured sentences.
#[must_use]
pub fn coloured(trace: &Trace, settings: &RewardSettings) -> Markup {
    html! {
        div.text {
            @for (text, sentence) in pieces(trace, settings) {
                @match sentence {
                    Some(sentence) => (marked(text, sentence)),
                    // Text outside sentences, mostly tags.
                    None => span.tag { (text) },
                }
            }
        }
    }
}

/// Returns a sentence in its colour, followed by its reward.
#[must_use]
pub fn marked(text: &str, sentence: &SentenceTrace) -> Markup {
    let reward = sentence.verdict.as_ref().and_then(|verdict| verdict.reward).map(f64::from);
    html! {
        mark class=(shade(reward)) {
            (text)
            @if let Some(reward) = reward { small { (number::with_sign(reward)) } }
        }
    }
}

/// Returns the legend of the colours.
#[must_use]
pub fn scale() -> Markup {
    html! {
        p.scale {
            @for share in [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0] {
                @let reward = share * FULL_REWARD / SHADES;
                mark class=(shade(Some(reward))) { (number::with_sign(reward)) } " "
            }
            "reward of a sentence, the outer shades for larger ones too; not marked: the rule \
             abstained"
        }
    }
}

/// Splits the text into sentences and the text between them. A sentence whose text differs from the
/// trace's counts as text between others.
fn pieces<'a>(
    trace: &'a Trace,
    settings: &RewardSettings,
) -> Vec<(&'a str, Option<&'a SentenceTrace>)> {
    let text = trace.completion.as_str();
    let bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let cut = split(text, settings.text()).sentences;
    let same =
        cut.into_iter().zip(&trace.sentences).filter(|(cut, traced)| cut.text == traced.text);
    let mut spans: Vec<_> = same
        .filter_map(|(sentence, traced)| {
            sentence.span.map(|span| (bytes[span.start], bytes[span.end], traced))
        })
        .collect();
    spans.sort_by_key(|(start, ..)| *start);
    let mut pieces = Vec::new();
    let mut shown = 0;
    for (start, end, sentence) in spans {
        if start >= shown {
            pieces.push((&text[shown..start], None));
            pieces.push((&text[start..end], Some(sentence)));
            shown = end;
        }
    }
    pieces.push((&text[shown..], None));
    pieces.retain(|(piece, _)| !piece.is_empty());
    pieces
}

fn shade(reward: Option<f64>) -> &'static str {
    let Some(reward) = reward else { return "none" };
    let shade = (SHADES * reward.abs() / FULL_REWARD - 1e-6).ceil().clamp(1.0, SHADES);
    match (shade as u8, reward) {
        _ if reward.abs() < LEAST => "zero",
        (1, reward) if reward > 0.0 => "plus-1",
        (2, reward) if reward > 0.0 => "plus-2",
        (_, reward) if reward > 0.0 => "plus-3",
        (1, _) => "minus-1",
        (2, _) => "minus-2",
        _ => "minus-3",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::trace;

    #[test]
    fn coloured_completion_marks_sentences_with_rewards() {
        let mut trace =
            trace("q", "<think>Größe is <b>. Rome & Peru!</think> <answer>Größe</answer>", 1.0);
        for (sentence, reward) in trace.sentences.iter_mut().zip([Some(-0.3), None, Some(0.0)]) {
            sentence.verdict.as_mut().unwrap().reward = reward;
        }
        let shown = coloured(&trace, &RewardSettings::default()).0;
        for part in [
            "<span class=\"tag\">&lt;think&gt;</span>",
            "<mark class=\"minus-3\">Größe is &lt;b&gt;.<small>−0.30</small></mark>",
            "<mark class=\"none\">Rome &amp; Peru!</mark>",
            "<mark class=\"zero\">Größe<small>0.00</small></mark>",
        ] {
            assert!(shown.contains(part), "no {part} in {shown}");
        }
    }

    #[test]
    fn coloured_completion_allows_answer_before_think() {
        let shown = coloured(
            &trace("q", "<answer>B.</answer><think>A.</think>", 1.0),
            &RewardSettings::default(),
        )
        .0;
        assert!(shown.find("B.").unwrap() < shown.find("A.").unwrap(), "{shown}");
        assert_eq!(shown.matches("<mark").count(), 2);
    }

    #[test]
    fn shades_grow_with_the_reward() {
        let shades = [-0.3, -0.15, -0.01, 0.0, 0.1, 0.3, 9.0].map(|reward| shade(Some(reward)));
        assert_eq!(shades, ["minus-3", "minus-2", "minus-1", "zero", "plus-1", "plus-3", "plus-3"]);
        assert_eq!(shade(None), "none");
    }
}
