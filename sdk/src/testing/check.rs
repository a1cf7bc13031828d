//! Requirements of every rule, checked on generated completions.

use std::ops::RangeInclusive;

use super::responses::response;
use super::rounds::stop_at_limit;
use super::{ScoredSentence, completion_from, score};
use crate::{
    Completion, CompletionRule, CorpusInfo, Count, CountMode, Entailment, Passage, Precision,
    Reply, Request, Section, Sentence, Triplet,
};

/// Number of completions of one check.
const CASES: u32 = 300;

/// Sentences: empty, blank, long, in several scripts.
const TEXTS: [&str; 8] = [
    "",
    " ",
    "It is so.",
    "Mario Camerini directed Il Seduttore.",
    "Dvořák naît à Nelahozeves 🎻.",
    "東京は日本の首都です。",
    "e\u{301}\u{200b}\u{202e}\u{0}\n",
    "İİİİ ΑΣ ß AND OR (AND)",
];

/// Heads and tails: names, pronouns, stop words, nothing.
const ENTITIES: [&str; 16] = [
    "Paris",
    "France",
    "Mario Camerini",
    "the city of Rome",
    "rome",
    "She",
    "it",
    "",
    " \u{1c}",
    "of\n\tthe",
    "A OR B",
    "June 5, 1967",
    "İstanbul",
    "Ωmega ß",
    "東京",
    "🎻",
];

/// Counts. Most are small, around the usual thresholds; `None` is a query without a count.
const COUNTS: [Option<u64>; 12] = [
    None,
    Some(0),
    Some(0),
    Some(1),
    Some(4),
    Some(5),
    Some(9),
    Some(19),
    Some(20),
    Some(1_000),
    Some(500_000_000),
    Some(u64::MAX),
];

/// Probabilities of an NLI model.
const PROBABILITIES: [f32; 6] = [0.0, 0.25, 0.3, 0.5, 0.75, 1.0];

/// Sizes of the corpus: unknown, empty, huge.
const SIZES: [Option<u64>; 5] = [None, Some(0), Some(1), Some(1_000_000_000_000), Some(u64::MAX)];

/// Definitions of a match: unknown, and each one.
const MODES: [Option<CountMode>; 4] =
    [None, Some(CountMode::Compatible), Some(CountMode::Exact), Some(CountMode::Span)];

/// Scores generated completions (empty and odd texts, pronouns, no triplets and many; counts and
/// sizes of the corpus that are unknown or huge) and checks what the host relies on:
///
/// - every reward is finite and within `rewards`; there is one outcome per sentence, within the
///   host's limits; requests need no capability that `REQUIRES` does not name, and verdicts have the
///   credit of `CREDIT`;
/// - the same completion has the same result again, immediately and after others: the rule has no
///   state and draws no random numbers;
/// - if counting stops at a query's `limit`, the reward is the same.
///
/// The completions are the same in every run.
///
/// # Panics
/// Panics if a check fails, and prints the completion.
pub fn check<R: CompletionRule>(rule: &R, rewards: RangeInclusive<f64>) {
    check_with(rule, rewards, &[]);
}

/// As [`check()`], with additional texts for sentences and chat replies: for a rule that looks for
/// words which the generated ones do not contain.
///
/// # Panics
/// As [`check()`].
pub fn check_with<R: CompletionRule>(rule: &R, rewards: RangeInclusive<f64>, texts: &[&str]) {
    let texts = [&TEXTS, texts].concat();
    let lowest = *rewards.start() as f32;
    let highest = *rewards.end() as f32;
    let score_case = |case: &Case| {
        score(rule, &case.completion, case.info, |request| case.reply_to(request, &texts))
    };
    let mut results = Vec::new();
    for number in 0..CASES {
        results.push(score_case(&Case::new(number, &texts)));
    }
    // Backwards, so that state of the rule would show.
    for (number, first) in (0..CASES).zip(results).rev() {
        let case = Case::new(number, &texts);
        for reward in first.iter().filter_map(|sentence| sentence.reward) {
            assert!(
                (lowest..=highest).contains(&reward),
                "the reward {reward} is not within {rewards:?}"
            );
        }
        assert_eq!(score_case(&case), first, "scored again, the completion has another result");
        let limited = score(rule, &case.completion, case.info, |request| {
            stop_at_limit(request, case.reply_to(request, &texts))
        });
        assert_eq!(
            rewards_of(&limited),
            rewards_of(&first),
            "if counting stops at `limit`, the reward is another"
        );
    }
}

fn rewards_of(sentences: &[ScoredSentence]) -> Vec<Option<f32>> {
    sentences.iter().map(|sentence| sentence.reward).collect()
}

/// A generated completion with its own corpus. Printed if a panic ends the check.
struct Case {
    number: u32,
    completion: Completion,
    info: CorpusInfo,
}

impl Case {
    /// Returns the case of this number. The first ones are small; every tenth has a sentence with many
    /// triplets.
    fn new(number: u32, texts: &[&str]) -> Self {
        let mut draw = Draw(number.into());
        let sentences = draw.below(2 + u64::from(number) / 50);
        let crowd = draw.below(sentences.max(1));
        let mut sentence = |index| Sentence {
            section: draw.pick(&[Section::Think, Section::Answer, Section::Body]),
            text: draw.pick(texts).repeat(draw.pick(&[1, 1, 1, 200])),
            triplets: {
                let triplets = if number % 10 == 9 && index == crowd { 40 } else { draw.below(4) };
                (0..triplets).map(|_| draw.triplet()).collect()
            },
        };
        let mut completion = completion_from((0..sentences).map(&mut sentence).collect());
        if draw.pick(&[false, true]) {
            completion.text = in_blocks(&completion.sentences);
        }
        completion.answer = response("", &[], &completion.text).answer;
        completion.title = draw.pick(&[None, Some("Rome")]).map(str::to_owned);
        completion.evidence = (0..draw.below(3)).map(|_| draw.pick(texts).to_owned()).collect();
        let info = CorpusInfo {
            tokens: draw.pick(&SIZES),
            documents: draw.pick(&SIZES),
            window: draw.pick(&SIZES),
            mode: draw.pick(&MODES),
        };
        Self { number, completion, info }
    }

    /// Returns a reply that depends on the case and on the request's text, so not on `limit`.
    fn reply_to(&self, request: &Request, texts: &[&str]) -> Reply {
        let seed = |seed: u64, byte: u8| seed.rotate_left(5) ^ u64::from(byte);
        let mut draw = Draw(request.to_string().bytes().fold(self.number.into(), seed));
        match request {
            Request::Count(_) => {
                Reply::Count(Count { occurrences: draw.pick(&COUNTS), precision: Precision::Exact })
            }
            Request::Nli(_) => {
                let [entail, neutral] = [draw.pick(&PROBABILITIES), draw.pick(&PROBABILITIES)];
                let neutral = draw.pick(&[None, Some(neutral * (1.0 - entail))]);
                let contradict = neutral.map(|neutral| 1.0 - entail - neutral);
                Reply::Nli(Entailment { entail, neutral, contradict })
            }
            Request::Chat(_) => Reply::Chat(draw.pick(texts).repeat(draw.pick(&[1, 1, 1, 200]))),
            Request::Passages(search) => {
                let passage = |_| Passage {
                    title: draw.pick(&ENTITIES).to_owned(),
                    text: draw.pick(texts).to_owned(),
                };
                Reply::Passages((0..search.k.min(3)).map(passage).collect())
            }
        }
    }
}

/// Returns a text of a think and an answer block with their sentences.
fn in_blocks(sentences: &[Sentence]) -> String {
    let block = |section| {
        let inside = sentences.iter().filter(|sentence| sentence.section == section);
        inside.map(|sentence| sentence.text.as_str()).collect::<Vec<_>>().join(" ")
    };
    format!("<think>{}</think><answer>{}</answer>", block(Section::Think), block(Section::Answer))
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in completion {} of the check: {:#?}", self.number, self.completion);
        }
    }
}

/// Pseudo-random numbers (splitmix64): the same on every machine, without a dependency.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn triplet(&mut self) -> Triplet {
        Triplet { head: self.entity(), relation: self.entity(), tail: self.entity() }
    }

    /// Returns, half the time, a name that is probably unique.
    fn entity(&mut self) -> String {
        match self.below(4) {
            0 | 1 => format!("Name{}", self.below(1_000)),
            2 => self.pick(&ENTITIES).to_owned(),
            _ => format!("{} {}", self.pick(&ENTITIES), self.pick(&ENTITIES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::prelude::*;
    use crate::tags::between_tags;
    use crate::testing::check;

    /// A rule that scores by a function.
    macro_rules! rule {
        ($name:ident, |$sentence:ident, $corpus:ident| $score:expr) => {
            #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
            struct $name {}

            impl SentenceRule for $name {
                fn score(
                    &self,
                    $sentence: &Sentence,
                    $corpus: &Corpus,
                ) -> Result<Verdict, Pending> {
                    $score
                }
            }
        };
    }

    #[test]
    #[should_panic(expected = "the reward 2 is not within -1.0..=1.0")]
    fn out_of_range_reward_is_detected() {
        rule!(Generous, |sentence, _corpus| Ok(
            Verdict::new(sentence.triplets.len().min(2) as f64)
        ));
        check(&Generous {}, -1.0..=1.0);
    }

    #[test]
    #[should_panic(expected = "the reward -2 is not within -1.0..=1.0")]
    fn check_with_tries_given_texts() {
        rule!(Stern, |sentence, _corpus| {
            let reward = if sentence.text.starts_with("Perhaps") { -2.0 } else { 0.0 };
            Ok(Verdict::new(reward))
        });
        check(&Stern {}, -1.0..=1.0);
        super::check_with(&Stern {}, -1.0..=1.0, &["Perhaps so."]);
    }

    #[test]
    #[should_panic(expected = "must be finite")]
    fn non_finite_reward_is_detected() {
        rule!(Mean, |sentence, _corpus| Ok(Verdict::new(0.0 / sentence.triplets.len() as f64)));
        check(&Mean {}, -1.0..=1.0);
    }

    #[test]
    #[should_panic(expected = "has another result")]
    fn stateful_rule_is_detected() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        rule!(Fickle, |_sentence, _corpus| {
            Ok(Verdict::new(f64::from(CALLS.fetch_add(1, Ordering::Relaxed) % 7)))
        });
        check(&Fickle {}, 0.0..=7.0);
    }

    #[test]
    #[should_panic(expected = "if counting stops at `limit`")]
    fn too_small_limit_is_detected() {
        rule!(Hasty, |sentence, corpus| {
            let facts = corpus.count_facts(sentence, 3)?;
            let is_frequent = facts.iter().any(|&(_, count)| count >= 5);
            Ok(Verdict::new(if is_frequent { 1.0 } else { 0.0 }))
        });
        check(&Hasty {}, 0.0..=1.0);
    }

    #[test]
    #[should_panic(expected = "still pending after 4 rounds")]
    fn endless_requests_are_detected() {
        rule!(Curious, |_sentence, corpus| {
            loop {
                corpus.count(Query::all_of(["more"]))?;
            }
        });
        check(&Curious {}, 0.0..=0.0);
    }

    #[test]
    #[should_panic(expected = "sends another request than before")]
    fn changing_requests_are_detected() {
        static CALLS: AtomicU32 = AtomicU32::new(1);
        rule!(Fickle, |sentence, corpus| {
            corpus.count_facts(sentence, CALLS.fetch_add(1, Ordering::Relaxed).into())?;
            Ok(Verdict::new(0.0))
        });
        check(&Fickle {}, 0.0..=0.0);
    }

    #[test]
    #[should_panic(expected = "one outcome per sentence")]
    fn missing_outcome_is_detected() {
        #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
        struct Lazy {}

        impl CompletionRule for Lazy {
            fn score_sentences(
                &self,
                _completion: &Completion,
                contexts: &[SentenceContext],
            ) -> Vec<Result<Verdict, Pending>> {
                contexts.iter().skip(1).map(|_| Ok(Verdict::abstain(""))).collect()
            }
        }
        check(&Lazy {}, 0.0..=0.0);
    }

    #[test]
    fn generated_answer_is_that_of_the_text() {
        #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
        struct Reader {}

        impl CompletionRule for Reader {
            fn score_sentences(
                &self,
                completion: &Completion,
                contexts: &[SentenceContext],
            ) -> Vec<Result<Verdict, Pending>> {
                let block = between_tags(&completion.text, "answer");
                assert_eq!(completion.answer, block.map_or(completion.text.as_str(), str::trim));
                contexts.iter().map(|_| Ok(Verdict::abstain(""))).collect()
            }
        }
        check(&Reader {}, 0.0..=0.0);
    }

    #[test]
    #[should_panic(expected = "the verdict's credit is not the rule's CREDIT")]
    fn undeclared_credit_is_detected() {
        rule!(Sly, |_sentence, _corpus| Ok(Verdict::advantage_sign(true)));
        check(&Sly {}, -1.0..=1.0);
    }
}
