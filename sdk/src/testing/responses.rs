//! Response rules, on completions by hand and on generated ones.

use std::ops::RangeInclusive;

use crate::{Completion, ResponseRule, Section};

const OPEN: &str = "<answer>";
const CLOSE: &str = "</answer>";

/// What a completion may be made of: blocks that are closed, left open, doubled or missing, in any script.
const BEGINNINGS: [&str; 6] = [
    "",
    "<think>",
    "<think>Rome is the capital city of Italy, I think.</think>",
    "Well. ",
    "<think></think>\n",
    "東京 ",
];
const ENDS: [&str; 8] = [
    "",
    "<answer>",
    "<answer>Rome</answer>",
    "<answer> The Rome! ",
    "<answer>I don\u{2019}t know</answer>",
    "Rome",
    "<answer>Rome</answer><answer>İ ß e\u{301}\0</answer>",
    "</think></answer>",
];

/// A completion with one answer block at most, and its sentences as one per block.
#[must_use]
pub fn response(question: &str, golds: &[&str], text: &str) -> Completion {
    let answer = text.split_once(OPEN).map(|(_, rest)| rest.split(CLOSE).next().unwrap_or(rest).trim());
    let think = text.split(OPEN).next().unwrap_or(text).replace("<think>", "").replace("</think>", "");
    let sentences = match answer {
        Some(answer) => vec![(Section::Think, think.trim().to_owned()), (Section::Answer, answer.to_owned())],
        None => vec![(Section::Body, text.trim().to_owned())],
    };
    Completion {
        question: question.to_owned(),
        golds: golds.iter().map(|gold| (*gold).to_owned()).collect(),
        text: text.to_owned(),
        answer: answer.unwrap_or(text.trim()).to_owned(),
        sentences: sentences.into_iter().filter(|(_, text)| !text.is_empty()).collect(),
    }
}

/// Grades generated completions (no tags and too many, empty, long, refusing) and checks what the host relies on: every
/// reward is finite and within `rewards`, every label is one word, and the same completion earns the same again.
///
/// # Panics
/// Where one of this does not hold. The message shows the completion.
pub fn check_responses<R: ResponseRule>(rule: &R, rewards: RangeInclusive<f64>) {
    let (lowest, highest) = (*rewards.start() as f32, *rewards.end() as f32);
    let texts = BEGINNINGS.iter().flat_map(|start| ENDS.iter().map(move |end| format!("{start}{end}")));
    for text in texts.flat_map(|text| [text.repeat(200), text]) {
        for golds in [&["Rome"][..], &["", "the", "Roma; Rome"], &[]] {
            let completion = response("What is the capital of Italy?", golds, &text);
            let grade = rule.grade(&completion);
            let reward = grade.reward;
            assert!(
                (lowest..=highest).contains(&reward),
                "the reward {reward} is not within {rewards:?}: {completion:?}"
            );
            let is_word = !grade.label.is_empty() && !grade.label.contains(char::is_whitespace);
            assert!(is_word, "the label {:?} is not one word: {completion:?}", grade.label);
            assert_eq!(rule.grade(&completion), grade, "graded again, it earns something else: {completion:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::{Grade, grade};

    /// A rule that grades by a function.
    macro_rules! rule {
        ($name:ident, |$completion:ident| $grade:expr) => {
            #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
            struct $name {}

            impl ResponseRule for $name {
                fn grade(&self, $completion: &Completion) -> Grade {
                    $grade
                }
            }
        };
    }

    #[test]
    #[should_panic(expected = "is not within 0.0..=1.0")]
    fn a_mean_over_no_golds_is_found() {
        rule!(Mean, |completion| grade(0.0 / completion.golds.len() as f64, "GOOD"));
        check_responses(&Mean {}, 0.0..=1.0);
    }

    #[test]
    #[should_panic(expected = "is not one word")]
    fn a_label_of_several_words_is_found() {
        rule!(Wordy, |completion| grade(0.0, &completion.answer));
        check_responses(&Wordy {}, 0.0..=0.0);
    }

    #[test]
    #[should_panic(expected = "earns something else")]
    fn a_memory_is_found() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        rule!(Fickle, |_completion| grade(f64::from(CALLS.fetch_add(1, Ordering::Relaxed) % 7), "GOOD"));
        check_responses(&Fickle {}, 0.0..=7.0);
    }

    #[test]
    fn an_answer_is_what_stands_in_its_block() {
        let answer = |text: &str| response("", &[], text).answer;
        assert_eq!(answer("<think>x</think><answer> Rome </answer> y"), "Rome");
        assert_eq!(answer(" Rome "), "Rome");
        assert_eq!(
            response("", &[], "<think>x</think><answer>y").sentences,
            [(Section::Think, "x".to_owned()), (Section::Answer, "y".to_owned())]
        );
    }
}
