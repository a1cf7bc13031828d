//! The rounds: have the rule judge, look up what it asks, have it go on with the answers.

use std::ops::Range;
use std::sync::LazyLock;

use corver_core::{Counter, PartError, Query, RuleSentence, Verdict};
use rayon::prelude::*;

use crate::answers::{Answer, Answers, Asked};
use crate::check::check;
use crate::{Fault, Limits};

/// An instance takes whole completions until it has so many sentences: enough that a fresh one costs little beside
/// them, few enough that a training step keeps several cores busy. A constant, so that what a rule sees does not
/// depend on the machine.
const CALL_SENTENCES: usize = 256;

/// So many instances may wait for counts at the same time: one for every core, and enough to look up much at once.
pub(crate) fn most_waiting() -> usize {
    // Asked once: the answer takes a dozen system calls.
    static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    CORES.max(16)
}

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
    fn resume(&mut self, answers: impl ExactSizeIterator<Item = Answer>) -> Result<Vec<Outcome>, Self::Error>;

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

/// One verdict per sentence. Instances work side by side, each for some of the completions.
pub(crate) fn judge<S: Session>(
    sentences: &[RuleSentence],
    limits: &Limits,
    counter: &mut dyn Counter,
    start: impl Fn() -> Result<S, S::Error> + Sync,
) -> Result<Vec<Verdict>, Stop<S::Error>> {
    let (mut answers, mut asked) = (Answers::default(), Vec::with_capacity(sentences.len()));
    let mut verdicts = vec![Verdict::default(); sentences.len()];
    let mut waiting = parts(sentences, &mut verdicts);
    while !waiting.is_empty() {
        let now = waiting.len().min(most_waiting());
        let begun: Result<Vec<Call<'_, S>>, S::Error> =
            waiting.par_drain(..now).map(|part| Call::begin(start()?, part, limits)).collect();
        let mut calls = begun.map_err(Stop::Session)?;
        for round in 0.. {
            let num_asking: usize = calls.iter().map(|call| call.questions.len()).sum();
            if num_asking == 0 {
                break;
            }
            if round == limits.rounds {
                return Err(Stop::Fault(Fault::Rounds { limit: limits.rounds, open: num_asking }));
            }
            answers.reserve(num_asking);
            calls.iter_mut().for_each(|call| call.ask(&mut answers));
            answers.look_up(limits, counter)?;
            calls.par_iter_mut().try_for_each(|call| call.resume(&answers, limits)).map_err(Stop::Session)?;
        }
        asked.extend(calls.into_iter().flat_map(|call| call.asked));
    }
    answers.hand_out(asked, &mut verdicts);
    Ok(verdicts)
}

/// What one instance judges: whole completions.
struct Part<'a> {
    /// The place of its first sentence in the batch.
    start: usize,
    sentences: &'a [RuleSentence],
    verdicts: &'a mut [Verdict],
}

/// Cuts a batch where a completion ends, as soon as there are enough sentences for a call.
fn parts<'a>(mut sentences: &'a [RuleSentence], mut verdicts: &'a mut [Verdict]) -> Vec<Part<'a>> {
    let (mut parts, mut start) = (Vec::new(), 0);
    while !sentences.is_empty() {
        let enough = sentences.len().min(CALL_SENTENCES);
        let last = sentences[enough - 1].completion;
        let length = enough + sentences[enough..].iter().take_while(|next| next.completion == last).count();
        let within = "no part is longer than the batch";
        parts.push(Part {
            start,
            sentences: sentences.split_off(..length).expect(within),
            verdicts: verdicts.split_off_mut(..length).expect(within),
        });
        start += length;
    }
    parts
}

/// An instance and the completions that it judges.
struct Call<'a, S> {
    /// Until all is said.
    session: Option<S>,
    part: Part<'a>,
    /// All questions so far, in the order asked,
    asked: Vec<Asked>,
    /// of which so many are answered,
    answered: usize,
    /// and how many of them each sentence asked.
    num_asked: Vec<usize>,
    /// The completions to judge next. A rule sees a completion whole or not at all.
    open: Vec<Range<usize>>,
    /// The sentences that ask, with their questions.
    questions: Vec<(usize, Vec<Query>)>,
}

impl<'a, S: Session> Call<'a, S> {
    fn begin(mut session: S, part: Part<'a>, limits: &Limits) -> Result<Self, S::Error> {
        let mut end = 0;
        let completions = part.sentences.chunk_by(|a, b| a.completion == b.completion).map(|completion| {
            let start = end;
            end += completion.len();
            start..end
        });
        let open = completions.collect();
        let outcomes = session.score(part.sentences)?;
        let num_asked = vec![0; part.sentences.len()];
        let mut call =
            Self { session: None, part, asked: Vec::new(), answered: 0, num_asked, open, questions: Vec::new() };
        call.settle(session, outcomes, limits)?;
        Ok(call)
    }

    /// Hands the questions over.
    fn ask(&mut self, answers: &mut Answers) {
        self.asked.reserve(self.questions.len());
        for (sentence, queries) in self.questions.drain(..) {
            self.num_asked[sentence] += queries.len();
            let asked = |query| Asked { sentence: self.part.start + sentence, place: answers.place_of(query) };
            self.asked.extend(queries.into_iter().map(asked));
        }
    }

    fn resume(&mut self, answers: &Answers, limits: &Limits) -> Result<(), S::Error> {
        if let Some(mut session) = self.session.take() {
            let outcomes = session.resume(answers.to(&self.asked[self.answered..]))?;
            self.answered = self.asked.len();
            self.settle(session, outcomes, limits)?;
        }
        Ok(())
    }

    /// Takes in what the instance said about the open completions. Those in which a sentence asks stay open.
    fn settle(&mut self, session: S, outcomes: Vec<Outcome>, limits: &Limits) -> Result<(), S::Error> {
        let Self { part: Part { sentences, verdicts, .. }, num_asked, open, questions, .. } = self;
        let judged = open.iter().cloned().flatten();
        if let Err(fault) = check(judged.map(|i| (&sentences[i], num_asked[i])), &outcomes, limits) {
            return Err(session.refuse(fault));
        }
        questions.reserve(outcomes.len());
        let mut outcomes = outcomes.into_iter();
        open.retain(|completion| {
            let before = questions.len();
            for (i, outcome) in completion.clone().zip(&mut outcomes) {
                match outcome {
                    Outcome::Score { reward, count, triplet, note } => {
                        verdicts[i] = Verdict { reward: Some(reward), count, triplet, note, ..Verdict::default() };
                    }
                    Outcome::Abstain { note } => verdicts[i] = Verdict { note, ..Verdict::default() },
                    Outcome::Ask(queries) => questions.push((i, queries)),
                }
            }
            questions.len() > before
        });
        self.session = (!open.is_empty()).then_some(session);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

    use corver_core::{Count, Section};

    use super::*;

    /// Counts a query's clauses, and keeps what each look-up asked.
    #[derive(Default)]
    struct Clauses(Vec<Vec<String>>);

    impl Counter for Clauses {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
            self.0.push(queries.iter().map(Query::to_string).collect());
            // The index may answer under a query of its own making; the trace still shows the rule's.
            let count = |query: &Query| Count {
                query: Query::from_text(String::new()),
                occurrences: Some(query.clauses().count() as u64),
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
        log: &'a Log,
    }

    #[derive(Default)]
    struct Log {
        seen: Mutex<Vec<Seen>>,
        alive: AtomicUsize,
        most_alive: AtomicUsize,
    }

    impl<F> Drop for Script<'_, F> {
        fn drop(&mut self) {
            self.log.alive.fetch_sub(1, Relaxed);
        }
    }

    impl<F: Fn(&RuleSentence, &[u64]) -> Outcome + Send> Script<'_, F> {
        fn outcomes(&mut self) -> Vec<Outcome> {
            let seen = self.sentences.iter().map(|(s, _, counts)| (s.completion, s.index, counts.len())).collect();
            self.log.seen.lock().unwrap().push(seen);
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
        type Error = Fault;

        fn score(&mut self, sentences: &[RuleSentence]) -> Result<Vec<Outcome>, Fault> {
            self.sentences = sentences.iter().map(|sentence| (sentence.clone(), 0, Vec::new())).collect();
            Ok(self.outcomes())
        }

        fn resume(&mut self, mut answers: impl ExactSizeIterator<Item = Answer>) -> Result<Vec<Outcome>, Fault> {
            for (_, asked, known) in &mut self.sentences {
                known.extend(answers.by_ref().take(*asked).map(|answer| answer.occurrences.unwrap()));
            }
            assert_eq!(answers.len(), 0);
            Ok(self.outcomes())
        }

        fn refuse(self, fault: Fault) -> Fault {
            fault
        }
    }

    /// The verdicts of a rule that answers like this, and what its calls were given.
    fn run(
        sentences: &[RuleSentence],
        index: &mut dyn Counter,
        answer: impl Fn(&RuleSentence, &[u64]) -> Outcome + Send + Sync,
    ) -> Result<(Vec<Verdict>, Vec<Seen>), Stop<Fault>> {
        let log = Log::default();
        let start = || {
            log.most_alive.fetch_max(log.alive.fetch_add(1, Relaxed) + 1, Relaxed);
            Ok(Script { answer: &answer, sentences: Vec::new(), log: &log })
        };
        let verdicts = judge(sentences, &Limits::default(), index, start)?;
        assert!(log.most_alive.into_inner() <= most_waiting());
        Ok((verdicts, log.seen.into_inner().unwrap()))
    }

    fn sentence(completion: u32, index: u32) -> RuleSentence {
        RuleSentence { completion, index, text: "Well.".into(), section: Section::Think, triplets: Vec::new() }
    }

    fn ask(words: &[&str]) -> Outcome {
        Outcome::Ask(words.iter().map(|&word| Query::new([[word]])).collect())
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
        let calls = AtomicU32::new(0);
        let (verdicts, seen) =
            run(&sentences, &mut index, |sentence, counts| match (sentence.completion, sentence.index) {
                (1, 1) if counts.len() < 2 => ask(&[["a", "b"][counts.len()]]),
                (1, 0) => score(calls.fetch_add(1, Relaxed) as f32),
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
    fn counts_stay_in_the_order_asked() {
        let sentences = [sentence(0, 0), sentence(0, 1), sentence(1, 0)];
        let words: Vec<String> = (0..40).rev().map(|i| i.to_string()).collect();
        let (verdicts, _) = run(&sentences, &mut Clauses::default(), |_, counts| match counts.len() {
            known if known < 40 => ask(&words[known..known + 20].iter().map(String::as_str).collect::<Vec<_>>()),
            _ => score(0.0),
        })
        .unwrap();
        assert!(verdicts.iter().all(|verdict| asked(verdict) == words));
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
            (0..(CALL_SENTENCES * (most_waiting() + 3)) as u32).map(|i| sentence(i, 0)).collect();
        let mut index = Clauses::default();
        let (verdicts, seen) = run(&sentences, &mut index, |sentence, counts| match counts {
            [] => ask(&["the same", &sentence.completion.to_string()]),
            counts => score(counts.len() as f32),
        })
        .unwrap();
        assert!(verdicts.iter().all(|verdict| verdict.reward == Some(2.0)));
        assert_eq!(seen.len(), 2 * (most_waiting() + 3));
        let asked: Vec<usize> = index.0.iter().map(Vec::len).collect();
        let first = CALL_SENTENCES * most_waiting();
        assert_eq!(asked, [1 + first, sentences.len() - first], "what was asked before is known");
    }

    #[test]
    fn neighbours_of_one_number_stay_two_completions() {
        let sentences = [sentence(0, 0), sentence(1, 0), sentence(0, 0)];
        let (verdicts, seen) = run(&sentences, &mut Clauses::default(), |sentence, counts| match counts.len() {
            0 => ask(&["a"]),
            1 if sentence.completion == 0 => ask(&["b"]),
            _ => score(0.0),
        })
        .unwrap();
        assert!(verdicts.iter().all(|verdict| verdict.reward == Some(0.0)));
        assert_eq!(seen[2], [(0, 0, 2), (0, 0, 2)]);
    }

    #[test]
    fn a_sentences_queries_add_up_over_the_rounds() {
        let words: Vec<String> = (0..30).map(|i| i.to_string()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let stop = run(&[sentence(7, 3)], &mut Clauses::default(), |_, _| ask(&words));
        let Err(Stop::Session(fault)) = stop else { panic!("{stop:?}") };
        assert_eq!(fault, Fault::SentenceQueries { completion: 7, index: 3, limit: 64, got: 90 });
    }

    #[test]
    fn a_verdict_that_turns_into_an_abstention_is_one() {
        let sentences = [sentence(0, 0), sentence(0, 1)];
        let again = AtomicBool::new(false);
        let (verdicts, _) =
            run(&sentences, &mut Clauses::default(), |sentence, counts| match (sentence.index, counts) {
                (0, _) if again.swap(true, Relaxed) => Outcome::Abstain { note: Some("on second thoughts".into()) },
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
