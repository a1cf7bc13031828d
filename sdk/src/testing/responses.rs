//! Response rules on given and on generated completions.

use std::ops::RangeInclusive;

use super::limits::{LABEL_BYTES, REQUESTS_PER_COMPLETION, TEXT_BYTES};
use super::rounds::stop_at_limit;
use super::{FakeCorpus, rounds};
use crate::{
    Completion, CorpusInfo, Entailment, Grade, Passage, Precision, Reply, Request, ResponseRule,
    Section, Sentence,
};

/// Parts of completions: blocks that are closed, left open, doubled or missing, in several scripts.
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

/// Returns a completion with its blocks as the host finds them if the answer block follows the
/// think block: the think block, which the prompt may have opened, and the answer block, or all of a
/// text without blocks. Each block is one sentence here, without triplets; the host splits it into
/// several.
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

/// Runs `rule` on a completion, with replies from `corpus`, until it returns a grade.
///
/// # Panics
/// Panics if the rule requests what `corpus` does not have, or breaks a limit of the host.
#[must_use]
pub fn run_response<R: ResponseRule>(
    rule: &R,
    completion: &Completion,
    corpus: &FakeCorpus,
) -> Grade {
    settle(rule, completion, corpus.info(), |request| corpus.reply_to(request))
}

fn settle<R: ResponseRule>(
    rule: &R,
    completion: &Completion,
    info: CorpusInfo,
    answer: impl Fn(&Request) -> Reply,
) -> Grade {
    let allowed = rounds::Allowed {
        capabilities: R::REQUIRES,
        requests_per_subject: REQUESTS_PER_COMPLETION,
    };
    let settled = rounds::run_rounds(
        &allowed,
        completion,
        1,
        info,
        |completion, corpora| vec![rule.grade(completion, &corpora[0])],
        answer,
    );
    settled.into_iter().next().expect("one outcome").outcome
}

/// Grades generated completions (no tags and too many, empty, long, refusals) and checks what the
/// host relies on: every reward is finite and within `rewards`, every label is one short word, every
/// note is within its limit, the same completion has the same grade again, reward and label are
/// the same if counting stops at a query's `limit`, and requests need no capability that `REQUIRES`
/// does not name.
///
/// # Panics
/// Panics if a check fails. The message shows the completion.
pub fn check_responses<R: ResponseRule>(rule: &R, rewards: RangeInclusive<f64>) {
    check_responses_with(rule, rewards, &[]);
}

/// As [`check_responses`], with additional replies of the chat model.
///
/// # Panics
/// As [`check_responses`].
pub fn check_responses_with<R: ResponseRule>(
    rule: &R,
    rewards: RangeInclusive<f64>,
    replies: &[&str],
) {
    let replies = [&["", "Yes.", "\u{0}東京 {}"], replies].concat();
    let unknown = CorpusInfo { tokens: None, documents: None, window: None, mode: None };
    let grade = |completion: &Completion| {
        settle(rule, completion, unknown, |request| reply_to(request, &replies))
    };
    let lowest = *rewards.start() as f32;
    let highest = *rewards.end() as f32;
    let texts =
        BEGINNINGS.iter().flat_map(|start| ENDS.iter().map(move |end| format!("{start}{end}")));
    for text in texts.flat_map(|text| [text.repeat(200), text]) {
        for golds in [&["Rome"][..], &["", "the", "Roma; Rome"], &[]] {
            let completion = response("What is the capital of Italy?", golds, &text);
            let first = grade(&completion);
            let reward = first.reward;
            assert!(
                (lowest..=highest).contains(&reward),
                "the reward {reward} is not within {rewards:?}: {completion:?}"
            );
            let is_plain = !first.label.contains(|c: char| c.is_whitespace() || c.is_control());
            let is_word = is_plain && (1..=LABEL_BYTES).contains(&first.label.len());
            assert!(is_word, "the label {:?} is not one word: {completion:?}", first.label);
            let note = first.note.as_ref().map_or(0, String::len);
            assert!(
                note <= TEXT_BYTES,
                "a note of {note} bytes, at most {TEXT_BYTES} are allowed: {completion:?}"
            );
            assert_eq!(
                grade(&completion),
                first,
                "graded again, the completion has another result: {completion:?}"
            );
            let limited = settle(rule, &completion, unknown, |request| {
                stop_at_limit(request, reply_to(request, &replies))
            });
            assert_eq!(
                (limited.reward, limited.label),
                (first.reward, first.label),
                "if counting stops at `limit`, the grade is another: {completion:?}"
            );
        }
    }
}

/// Returns a reply that depends on the request's text only.
fn reply_to(request: &Request, replies: &[&str]) -> Reply {
    let hash = request
        .to_string()
        .bytes()
        .fold(7_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    match request {
        Request::Count(_) => Reply::Count(crate::Count {
            occurrences: Some(hash as u64 % 30),
            precision: Precision::Exact,
        }),
        Request::Nli(_) => Reply::Nli(Entailment {
            entail: (hash % 5) as f32 / 4.0,
            neutral: None,
            contradict: None,
        }),
        Request::Chat(_) => Reply::Chat(replies[hash % replies.len()].to_owned()),
        Request::Passages(_) => {
            let passage =
                |_| Passage { title: String::new(), text: "Rome is in Italy.".to_owned() };
            Reply::Passages((0..hash % 3).map(passage).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::{Corpus, Pending, Query};

    /// A rule that grades by a function.
    macro_rules! rule {
        ($name:ident, |$completion:ident| $grade:expr) => {
            #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
            struct $name {}

            impl ResponseRule for $name {
                fn grade(&self, $completion: &Completion, _: &Corpus) -> Result<Grade, Pending> {
                    $grade
                }
            }
        };
    }

    #[test]
    #[should_panic(expected = "is not within 0.0..=1.0")]
    fn nan_grade_without_golds_is_detected() {
        rule!(Mean, |completion| Ok(Grade::new(0.0 / completion.golds.len() as f64, "GOOD")));
        check_responses(&Mean {}, 0.0..=1.0);
    }

    #[test]
    #[should_panic(expected = "is not one word")]
    fn multi_word_label_is_detected() {
        rule!(Wordy, |completion| Ok(Grade::new(0.0, &completion.answer)));
        check_responses(&Wordy {}, 0.0..=0.0);
    }

    #[test]
    #[should_panic(expected = "has another result")]
    fn stateful_rule_is_detected() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        rule!(Fickle, |_completion| {
            let calls = CALLS.fetch_add(1, Ordering::Relaxed);
            Ok(Grade::new(f64::from(calls % 7), "GOOD"))
        });
        check_responses(&Fickle {}, 0.0..=7.0);
    }

    #[test]
    #[should_panic(expected = "a note of")]
    fn overlong_note_is_detected() {
        rule!(Chatty, |completion| Ok(Grade::new(0.0, "GOOD").note(&completion.text.repeat(100))));
        check_responses(&Chatty {}, 0.0..=0.0);
    }

    #[test]
    #[should_panic(expected = "if counting stops at `limit`")]
    fn too_small_limit_is_detected() {
        #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
        struct Hasty {}

        impl ResponseRule for Hasty {
            fn grade(&self, completion: &Completion, corpus: &Corpus) -> Result<Grade, Pending> {
                let query = Query::all_of([completion.text.as_str()]).limit(3);
                let is_frequent = corpus.count(query)? >= Some(5);
                Ok(Grade::new(if is_frequent { 1.0 } else { 0.0 }, "GOOD"))
            }
        }
        check_responses(&Hasty {}, 0.0..=1.0);
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
