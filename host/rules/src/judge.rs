//! The rounds: have the rule judge, look up what it asks, have it go on with the answers.

use std::ops::Range;

use corver_core::{Count, Counter, PartError, Query, RuleSentence, Verdict};
use rayon::prelude::*;

use crate::answers::Answers;
use crate::check::{check, check_number};
use crate::{Fault, Limits};

/// An instance takes whole completions until it has so many sentences: enough that a fresh one costs little beside
/// them, few enough that a training step keeps several cores busy. A constant, so that what a rule sees does not
/// depend on the machine.
const CALL_SENTENCES: usize = 256;

/// So many instances may wait for counts at the same time.
pub(crate) const MOST_WAITING: usize = 16;

/// A rule's answer for one sentence, in no version's own types.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Score { reward: f32, count: Option<u64>, triplet: Option<u32>, note: Option<String> },
    Abstain { note: Option<String> },
    Ask(Vec<Query>),
}

/// A fresh instance of a rule, for some whole completions. Its outcomes are unchecked.
pub(crate) trait Session: Send {
    type Error: Send;

    /// One outcome per sentence.
    fn score(&mut self, sentences: &[RuleSentence]) -> Result<Vec<Outcome>, Self::Error>;

    /// One outcome per sentence of those completions in which one asked, given the answers to what was asked, in order.
    fn resume<'a>(&mut self, counts: impl ExactSizeIterator<Item = &'a Count>) -> Result<Vec<Outcome>, Self::Error>;

    /// Ends it: its outcomes are not acceptable.
    fn refuse(self, fault: Fault) -> Self::Error;
}

/// Why there are no verdicts.
#[derive(Debug)]
pub(crate) enum Stop<E> {
    /// An instance failed, or its outcomes are not acceptable.
    Session(E),
    /// The instances together asked too much.
    Fault(Fault),
    Counter(PartError),
    /// Counts that came back, of how many.
    Answers {
        expected: usize,
        got: usize,
    },
}

/// One verdict per sentence. Instances work side by side, each for the completions that it got from `start`.
pub(crate) fn judge<S: Session>(
    sentences: &[RuleSentence],
    limits: &Limits,
    counter: &mut dyn Counter,
    start: impl Fn() -> Result<S, S::Error> + Sync,
) -> Result<Vec<Verdict>, Stop<S::Error>> {
    let mut verdicts = vec![Verdict::default(); sentences.len()];
    let mut answers = Answers::default();
    // For each sentence the places of the answers it has asked for, in the order asked.
    let mut asked: Vec<Vec<usize>> = vec![Vec::new(); sentences.len()];
    for calls in calls(sentences).chunks(MOST_WAITING) {
        let begin = |call: &Range<usize>| Call::begin(start()?, sentences, call.clone(), limits);
        let mut calls: Vec<Call<S>> = calls.par_iter().map(begin).collect::<Result<_, _>>().map_err(Stop::Session)?;
        for round in 0.. {
            let mut num_asking = 0;
            for call in &mut calls {
                for (&i, outcome) in call.judged.iter().zip(call.outcomes.drain(..)) {
                    match outcome {
                        Outcome::Score { reward, count, triplet, note } => {
                            verdicts[i] = Verdict { reward: Some(reward), count, triplet, note, ..Verdict::default() };
                        }
                        Outcome::Abstain { note } => verdicts[i] = Verdict { note, ..Verdict::default() },
                        Outcome::Ask(queries) => {
                            num_asking += 1;
                            let before = asked[i].len();
                            asked[i].extend(queries.into_iter().map(|query| answers.place_of(query)));
                            call.places.extend_from_slice(&asked[i][before..]);
                            check_number(&sentences[i], asked[i].len(), limits).map_err(Stop::Fault)?;
                        }
                    }
                }
            }
            calls.retain(|call| call.waiting.is_some());
            if calls.is_empty() {
                break;
            }
            if round == limits.rounds {
                return Err(Stop::Fault(Fault::Rounds { limit: limits.rounds, open: num_asking }));
            }
            answers.look_up(limits, counter)?;
            calls
                .par_iter_mut()
                .try_for_each(|call| call.resume(sentences, &answers, limits))
                .map_err(Stop::Session)?;
        }
    }
    answers.hand_out(asked, &mut verdicts);
    Ok(verdicts)
}

/// An instance and its completions.
struct Call<S> {
    /// The instance, as long as it has questions.
    waiting: Option<S>,
    /// What it said last, and about which sentences.
    outcomes: Vec<Outcome>,
    judged: Vec<usize>,
    /// The sentences that it judges next: those of the completions in which one asks.
    open: Vec<usize>,
    /// Where the answers to its last questions are.
    places: Vec<usize>,
}

impl<S: Session> Call<S> {
    fn begin(
        mut session: S,
        sentences: &[RuleSentence],
        call: Range<usize>,
        limits: &Limits,
    ) -> Result<Self, S::Error> {
        let outcomes = session.score(&sentences[call.clone()])?;
        Self::said(session, outcomes, call.collect(), sentences, limits)
    }

    fn resume(&mut self, sentences: &[RuleSentence], answers: &Answers, limits: &Limits) -> Result<(), S::Error> {
        let Some(mut session) = self.waiting.take() else { return Ok(()) };
        let outcomes = session.resume(answers.at(&self.places))?;
        *self = Self::said(session, outcomes, std::mem::take(&mut self.open), sentences, limits)?;
        Ok(())
    }

    fn said(
        session: S,
        outcomes: Vec<Outcome>,
        judged: Vec<usize>,
        sentences: &[RuleSentence],
        limits: &Limits,
    ) -> Result<Self, S::Error> {
        if let Err(fault) = check(judged.iter().map(|&i| &sentences[i]), &outcomes, limits) {
            return Err(session.refuse(fault));
        }
        let mut open = Vec::new();
        let mut rest = outcomes.as_slice();
        // A rule sees a completion whole or not at all.
        for completion in judged.chunk_by(|&a, &b| sentences[a].completion == sentences[b].completion) {
            let (of_completion, others) = rest.split_at(completion.len());
            if of_completion.iter().any(|outcome| matches!(outcome, Outcome::Ask(_))) {
                open.extend_from_slice(completion);
            }
            rest = others;
        }
        let waiting = (!open.is_empty()).then_some(session);
        Ok(Self { waiting, outcomes, judged, open, places: Vec::new() })
    }
}

/// Cuts sentences where a completion ends, as soon as there are enough for a call.
fn calls(sentences: &[RuleSentence]) -> Vec<Range<usize>> {
    let (mut calls, mut start) = (Vec::new(), 0);
    while start < sentences.len() {
        let mut end = sentences.len().min(start + CALL_SENTENCES);
        let last = sentences[end - 1].completion;
        end += sentences[end..].iter().take_while(|next| next.completion == last).count();
        calls.push(start..end);
        start = end;
    }
    calls
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use corver_core::Section;

    use super::*;

    /// Counts a query's clauses, and keeps what each look-up asked.
    #[derive(Default)]
    struct Clauses(Vec<Vec<String>>);

    impl Counter for Clauses {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
            self.0.push(queries.iter().map(Query::to_string).collect());
            // The index may answer under a query of its own making; the trace still shows the rule's.
            let count = |query: &Query| Count {
                query: Query { all_of: Vec::new(), enough: None },
                occurrences: Some(query.all_of.len() as u64),
                exact: true,
            };
            Ok(queries.iter().map(count).collect())
        }
    }

    /// What a call was given: completion, index and number of counts of each sentence.
    type Seen = Vec<(u32, u32, usize)>;

    /// A rule that keeps its sentences as the SDK does, and answers for one sentence with so many counts like this.
    struct Script<'a, F> {
        answer: F,
        sentences: Vec<(RuleSentence, usize, Vec<u64>)>,
        seen: &'a Mutex<Vec<Seen>>,
    }

    impl<F: Fn(&RuleSentence, &[u64]) -> Outcome + Send> Script<'_, F> {
        fn outcomes(&mut self) -> Vec<Outcome> {
            let seen = self.sentences.iter().map(|(s, _, counts)| (s.completion, s.index, counts.len())).collect();
            self.seen.lock().unwrap().push(seen);
            let outcomes: Vec<Outcome> = self.sentences.iter().map(|(s, _, counts)| (self.answer)(s, counts)).collect();
            for ((_, asked, _), outcome) in self.sentences.iter_mut().zip(&outcomes) {
                *asked = if let Outcome::Ask(queries) = outcome { queries.len() } else { 0 };
            }
            let asks: Vec<u32> = self.sentences.iter().filter(|(_, n, _)| *n > 0).map(|(s, ..)| s.completion).collect();
            self.sentences.retain(|(s, ..)| asks.contains(&s.completion));
            outcomes
        }
    }

    impl<F: Fn(&RuleSentence, &[u64]) -> Outcome + Send> Session for Script<'_, F> {
        type Error = Infallible;

        fn score(&mut self, sentences: &[RuleSentence]) -> Result<Vec<Outcome>, Infallible> {
            self.sentences = sentences.iter().map(|sentence| (sentence.clone(), 0, Vec::new())).collect();
            Ok(self.outcomes())
        }

        fn resume<'a>(
            &mut self,
            mut counts: impl ExactSizeIterator<Item = &'a Count>,
        ) -> Result<Vec<Outcome>, Infallible> {
            for (_, asked, known) in &mut self.sentences {
                known.extend(counts.by_ref().take(*asked).map(|count| count.occurrences.unwrap()));
            }
            assert_eq!(counts.len(), 0);
            Ok(self.outcomes())
        }

        fn refuse(self, fault: Fault) -> Infallible {
            panic!("{fault}")
        }
    }

    /// The verdicts of a rule that answers like this, and what each of its calls was given, sorted.
    fn run(
        sentences: &[RuleSentence],
        index: &mut dyn Counter,
        answer: impl Fn(&RuleSentence, &[u64]) -> Outcome + Send + Sync,
    ) -> Result<(Vec<Verdict>, Vec<Seen>), Stop<Infallible>> {
        let seen = Mutex::default();
        let start = || Ok(Script { answer: &answer, sentences: Vec::new(), seen: &seen });
        let verdicts = judge(sentences, &Limits::default(), index, start)?;
        Ok((verdicts, seen.into_inner().unwrap()))
    }

    fn sentence(completion: u32, index: u32) -> RuleSentence {
        RuleSentence { completion, index, text: "Well.".into(), section: Section::Think, triplets: Vec::new() }
    }

    fn ask(words: &[&str]) -> Outcome {
        Outcome::Ask(words.iter().map(|&word| Query { all_of: vec![vec![word.into()]], enough: None }).collect())
    }

    fn score(reward: f32) -> Outcome {
        Outcome::Score { reward, count: None, triplet: None, note: None }
    }

    fn asked(verdict: &Verdict) -> Vec<String> {
        verdict.counts.iter().map(|count| count.query.to_string()).collect()
    }

    #[test]
    fn completions_with_open_questions_are_judged_again_whole() {
        let sentences = [sentence(0, 0), sentence(1, 0), sentence(1, 1), sentence(2, 0)];
        let mut index = Clauses::default();
        // Sentence 1 of completion 1 asks twice; its neighbour's reward changes with every call.
        let calls = std::sync::atomic::AtomicU32::new(0);
        let (verdicts, seen) =
            run(&sentences, &mut index, |sentence, counts| match (sentence.completion, sentence.index) {
                (1, 1) if counts.len() < 2 => ask(&[["a", "b"][counts.len()]]),
                (1, 0) => score(calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) as f32),
                _ => score(counts.len() as f32),
            })
            .unwrap();
        assert_eq!(
            seen,
            [vec![(0, 0, 0), (1, 0, 0), (1, 1, 0), (2, 0, 0)], vec![(1, 0, 0), (1, 1, 1)], vec![(1, 0, 0), (1, 1, 2)]]
        );
        let rewards: Vec<Option<f32>> = verdicts.iter().map(|verdict| verdict.reward).collect();
        assert_eq!(rewards, [Some(0.0), Some(2.0), Some(2.0), Some(0.0)]);
        assert_eq!(asked(&verdicts[2]), ["a", "b"]);
        assert_eq!(index.0, [["a"], ["b"]]);
    }

    #[test]
    fn each_query_is_looked_up_once_a_batch() {
        let sentences = [sentence(0, 0), sentence(0, 1)];
        let mut index = Clauses::default();
        let (verdicts, _) = run(&sentences, &mut index, |_, counts| match counts.len() {
            0 => ask(&["a", "b", "a"]),
            3 => ask(&["b", "c"]),
            _ => score(counts.iter().sum::<u64>() as f32),
        })
        .unwrap();
        assert_eq!(index.0, [vec!["a", "b"], vec!["c"]]);
        assert_eq!(verdicts[1].reward, Some(5.0), "one count for every query");
        assert_eq!(asked(&verdicts[1]), ["a", "b", "c"]);
    }

    #[test]
    fn large_batches_take_several_calls_of_whole_completions() {
        // 100 completions of 5 sentences, then one that is larger than a call.
        let sentences: Vec<RuleSentence> =
            (0..500).map(|i| sentence(i / 5, i % 5)).chain((0..1000).map(|i| sentence(100, i))).collect();
        let mut index = Clauses::default();
        let (verdicts, seen) = run(&sentences, &mut index, |sentence, counts| match (sentence.index, counts.len()) {
            (0, 0) => ask(&[&sentence.completion.to_string()]),
            (index, _) => score(index as f32),
        })
        .unwrap();
        let mut calls: Vec<usize> = seen.iter().map(Vec::len).collect();
        calls.sort_unstable();
        assert_eq!(calls, [260, 260, 1240, 1240], "twice, because every completion asks");
        assert!(verdicts.iter().zip(&sentences).all(|(verdict, s)| verdict.reward == Some(s.index as f32)));
        let queries: Vec<String> = (0..=100).map(|i| i.to_string()).collect();
        assert_eq!(index.0, [queries], "asked in one go, in order");
    }

    #[test]
    fn batches_of_any_size_need_a_bounded_number_of_instances() {
        let sentences: Vec<RuleSentence> =
            (0..(CALL_SENTENCES * (MOST_WAITING + 3)) as u32).map(|i| sentence(i, 0)).collect();
        let mut index = Clauses::default();
        let (verdicts, seen) = run(&sentences, &mut index, |sentence, counts| match counts {
            [] => ask(&["the same", &sentence.completion.to_string()]),
            counts => score(counts.len() as f32),
        })
        .unwrap();
        assert!(verdicts.iter().all(|verdict| verdict.reward == Some(2.0)));
        assert_eq!(seen.len(), 2 * (MOST_WAITING + 3));
        let asked: Vec<usize> = index.0.iter().map(Vec::len).collect();
        let first = CALL_SENTENCES * MOST_WAITING;
        assert_eq!(asked, [1 + first, sentences.len() - first], "what was asked before is known");
    }

    #[test]
    fn a_verdict_that_turns_into_an_abstention_is_one() {
        let sentences = [sentence(0, 0), sentence(0, 1)];
        let again = std::sync::atomic::AtomicBool::new(false);
        let (verdicts, _) =
            run(&sentences, &mut Clauses::default(), |sentence, counts| match (sentence.index, counts) {
                (0, _) if again.swap(true, std::sync::atomic::Ordering::Relaxed) => {
                    Outcome::Abstain { note: Some("on second thoughts".into()) }
                }
                (1, []) => ask(&["a"]),
                _ => score(1.0),
            })
            .unwrap();
        assert_eq!((verdicts[0].reward, verdicts[0].note.as_deref()), (None, Some("on second thoughts")));
    }

    #[test]
    fn an_index_that_answers_too_little_is_an_error() {
        struct Silent;
        impl Counter for Silent {
            fn count(&mut self, _: &[Query]) -> Result<Vec<Count>, PartError> {
                Ok(Vec::new())
            }
        }
        let stop = run(&[sentence(0, 0)], &mut Silent, |_, _| ask(&["a"]));
        assert!(matches!(stop, Err(Stop::Answers { expected: 1, got: 0 })));
    }
}
