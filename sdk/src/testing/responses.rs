//! Response rules, on completions by hand and on generated ones.

use std::ops::RangeInclusive;

use super::limits::{LABEL_BYTES, QUESTIONS_PER_COMPLETION, TEXT_BYTES};
use super::{FakeCorpus, rounds};
use crate::{
    Completion, Corpus, CorpusSize, Entailment, Grade, Passage, Reply, Request, ResponseRule,
    Section, Sentence,
};

/// What a completion may be made of: blocks that are closed, left open, doubled or missing, in any
/// script.
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

/// A completion as the host cuts it: the think block, which the prompt may have opened, and the
/// answer block, or all of a text without blocks. Each is one sentence here, where the host cuts it
/// into its own; none has triplets.
#[must_use]
pub fn response(question: &str, golds: &[&str], text: &str) -> Completion {
    let (before, answer) = match text.split_once("<answer>") {
        Some((before, rest)) => {
            (before, Some(rest.split("</answer>").next().unwrap_or(rest).trim()))
        }
        None => (text, None),
    };
    let think = match (before.split_once("<think>"), before.split_once("</think>")) {
        (Some((_, rest)), _) => Some(rest.split("</think>").next().unwrap_or(rest)),
        (None, Some((opened_by_the_prompt, _))) => Some(opened_by_the_prompt),
        (None, None) => None,
    };
    let body = if think.is_none() && answer.is_none() { Some(text) } else { None };
    let blocks = [(Section::Think, think), (Section::Answer, answer), (Section::Body, body)];
    let sentence = |(section, block): (Section, Option<&str>)| {
        let trimmed = block?.trim();
        (!trimmed.is_empty()).then(|| Sentence {
            text: trimmed.to_owned(),
            section,
            triplets: Vec::new(),
        })
    };
    Completion {
        question: question.to_owned(),
        golds: golds.iter().map(|gold| (*gold).to_owned()).collect(),
        title: None,
        evidence: Vec::new(),
        text: text.to_owned(),
        answer: answer.unwrap_or(text.trim()).to_owned(),
        sentences: blocks.into_iter().filter_map(sentence).collect(),
    }
}

/// Calls `rule` as the host would, answering from `corpus` until it grades.
///
/// # Panics
/// Where the rule asks for what `corpus` does not hold, or does what the host refuses.
#[must_use]
pub fn run_response<R: ResponseRule>(
    rule: &R,
    completion: &Completion,
    corpus: &FakeCorpus,
) -> Grade {
    settle(rule, completion, corpus.size(), |request| corpus.answer(request))
}

fn settle<R: ResponseRule>(
    rule: &R,
    completion: &Completion,
    size: CorpusSize,
    answer: impl Fn(&Request) -> Reply,
) -> Grade {
    let rules = rounds::Rules { asks: R::ASKS, questions: QUESTIONS_PER_COMPLETION };
    let judge = |corpora: &[Corpus]| vec![rule.grade(completion, &corpora[0])];
    rounds::settle(&rules, 1, size, judge, answer).remove(0).0
}

/// Grades generated completions (no tags and too many, empty, long, refusing) and checks what the
/// host relies on: every reward is finite and within `rewards`, every label is one short word and
/// every note within bounds, the same completion earns the same again, and nothing is asked that
/// the rule's `ASKS` does not name.
///
/// # Panics
/// Where one of this does not hold. The message shows the completion.
pub fn check_responses<R: ResponseRule>(rule: &R, rewards: RangeInclusive<f64>) {
    check_responses_with(rule, rewards, &[]);
}

/// [`check_responses`] with a chat model that gives these replies among others.
///
/// # Panics
/// As [`check_responses`].
pub fn check_responses_with<R: ResponseRule>(
    rule: &R,
    rewards: RangeInclusive<f64>,
    replies: &[&str],
) {
    let replies = [&["", "Yes.", "\u{0}東京 {}"], replies].concat();
    let unknown = CorpusSize { tokens: None, documents: None };
    let grade = |completion: &Completion| {
        settle(rule, completion, unknown, |request| answer(request, &replies))
    };
    let (lowest, highest) = (*rewards.start() as f32, *rewards.end() as f32);
    let texts =
        BEGINNINGS.iter().flat_map(|start| ENDS.iter().map(move |end| format!("{start}{end}")));
    for text in texts.flat_map(|text| [text.repeat(200), text]) {
        for golds in [&["Rome"][..], &["", "the", "Roma; Rome"], &[]] {
            let completion = response("What is the capital of Italy?", golds, &text);
            let graded = grade(&completion);
            let reward = graded.reward;
            assert!(
                (lowest..=highest).contains(&reward),
                "the reward {reward} is not within {rewards:?}: {completion:?}"
            );
            let is_plain = !graded.label.contains(|c: char| c.is_whitespace() || c.is_control());
            let is_word = is_plain && (1..=LABEL_BYTES).contains(&graded.label.len());
            assert!(is_word, "the label {:?} is not one word: {completion:?}", graded.label);
            let note = graded.note.as_ref().map_or(0, String::len);
            assert!(
                note <= TEXT_BYTES,
                "a note of {note} bytes, at most {TEXT_BYTES} are allowed: {completion:?}"
            );
            assert_eq!(
                grade(&completion),
                graded,
                "graded again, it earns something else: {completion:?}"
            );
        }
    }
}

/// Depends on the question alone.
fn answer(request: &Request, replies: &[&str]) -> Reply {
    let drawn = request
        .to_string()
        .bytes()
        .fold(7_usize, |drawn, byte| drawn.wrapping_mul(31).wrapping_add(byte.into()));
    match request {
        Request::Count(_) => {
            Reply::Count(crate::Count { occurrences: Some(drawn as u64 % 30), exact: true })
        }
        Request::Nli(_) => Reply::Nli(Entailment {
            entail: (drawn % 5) as f32 / 4.0,
            neutral: None,
            contradict: None,
        }),
        Request::Chat(_) => Reply::Chat(replies[drawn % replies.len()].to_owned()),
        Request::Passages(_) => {
            let passage =
                |_| Passage { title: String::new(), text: "Rome is in Italy.".to_owned() };
            Reply::Passages((0..drawn % 3).map(passage).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::response::{Graded, GradedExt as _, grade};

    /// A rule that grades by a function.
    macro_rules! rule {
        ($name:ident, |$completion:ident| $grade:expr) => {
            #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
            struct $name {}

            impl ResponseRule for $name {
                fn grade(&self, $completion: &Completion, _: &Corpus) -> Graded {
                    $grade
                }
            }
        };
    }

    #[test]
    #[should_panic(expected = "is not within 0.0..=1.0")]
    fn nan_grade_without_golds_is_detected() {
        rule!(Mean, |completion| grade(0.0 / completion.golds.len() as f64, "GOOD"));
        check_responses(&Mean {}, 0.0..=1.0);
    }

    #[test]
    #[should_panic(expected = "is not one word")]
    fn multi_word_label_is_detected() {
        rule!(Wordy, |completion| grade(0.0, &completion.answer));
        check_responses(&Wordy {}, 0.0..=0.0);
    }

    #[test]
    #[should_panic(expected = "earns something else")]
    fn stateful_rule_is_detected() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        rule!(Fickle, |_completion| grade(
            f64::from(CALLS.fetch_add(1, Ordering::Relaxed) % 7),
            "GOOD"
        ));
        check_responses(&Fickle {}, 0.0..=7.0);
    }

    #[test]
    #[should_panic(expected = "a note of")]
    fn overlong_note_is_detected() {
        rule!(Chatty, |completion| grade(0.0, "GOOD").note(&completion.text.repeat(100)));
        check_responses(&Chatty {}, 0.0..=0.0);
    }

    #[test]
    fn response_sections_match_host_split() {
        let answer = |text: &str| response("", &[], text).answer;
        assert_eq!(answer("<think>x</think><answer> Rome </answer> y"), "Rome");
        assert_eq!(answer(" Rome "), "Rome");
        let sections = |text: &str| {
            let sentences = response("", &[], text).sentences.into_iter();
            sentences.map(|sentence| (sentence.section, sentence.text)).collect::<Vec<_>>()
        };
        let (think, answered) =
            ((Section::Think, "A.".to_owned()), (Section::Answer, "B".to_owned()));
        assert_eq!(sections("<think>A.</think><answer>B"), [think.clone(), answered.clone()]);
        assert_eq!(sections("A.</think><answer>B"), [think.clone(), answered.clone()]);
        assert_eq!(sections("<think>A."), [think]);
        assert_eq!(sections("Well. <answer>B</answer>"), [answered]);
        assert_eq!(sections("A. B"), [(Section::Body, "A. B".to_owned())]);
    }
}
