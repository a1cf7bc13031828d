//! The rounds: have the rule judge, have answered what it asks, resume it with the replies.

use std::ops::Range;

use corver_core::{Completion, CorpusSize, Exchange, Lookup, PartError, Verifier, Verifiers};
use rayon::prelude::*;

use crate::bindings::types::Request;
use crate::instance::Failure;
use crate::limits::max_waiting;
use crate::questions::{Answered, Asked, Question, answer};
use crate::{Fault, Limits, RuleError};

/// An instance takes completions until it has so many sentences: enough that a fresh one costs little compared with
/// them, few enough that a training step keeps several cores busy. A constant, so that what a rule sees does not
/// depend on the machine.
const CALL_SENTENCES: usize = 256;

/// A fresh instance of a rule. What it says is unchecked.
pub(crate) trait Session: Send {
    /// What the rule says in the end of each subject: the sentences of a completion, or the completion itself.
    type Judgement: Judgement;

    /// For each completion, what it says of each subject.
    fn begin(&mut self, completions: &[Completion<'_>], size: CorpusSize) -> Said<Self::Judgement>;

    /// The same for those completions in which a subject asked, given the answers in the order asked.
    fn resume(&mut self, answered: &[Answered]) -> Said<Self::Judgement>;

    /// Everything that the rule has reported so far.
    fn into_reports(self) -> Vec<String>;
}

/// For each completion, one outcome per subject.
pub(crate) type Said<J> = Result<Vec<Vec<Outcome<J>>>, Failure>;

/// What a rule says of one subject.
#[derive(Debug, Clone)]
pub(crate) enum Outcome<J> {
    Judged(J),
    Asks(Vec<Request>),
}

/// The final word on a subject.
pub(crate) trait Judgement: Default + Clone + Send {
    /// How many subjects a completion has.
    fn subjects(completion: &Completion<'_>) -> usize;

    /// Whether it is acceptable.
    fn check(&self, completion: &Completion<'_>, place: Place, limits: &Limits) -> Result<(), Fault>;

    /// Whether a subject may have asked so many questions.
    fn check_asked(place: Place, asked: usize, limits: &Limits) -> Result<(), Fault>;

    /// With all that was asked for it.
    fn resting_on(self, lookups: Vec<Lookup>, exchanges: Vec<Exchange>) -> Self;
}

/// Where a subject is, both counted from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    /// Which completion of the batch.
    pub(crate) completion: usize,
    /// Which sentence of it.
    pub(crate) index: usize,
}

/// Why there are no judgements.
#[derive(Debug)]
pub(crate) enum Stop {
    /// There is no instance.
    Start(RuleError),
    /// An instance failed, or what it said is not acceptable.
    Broken(Failure),
    /// A verifier failed.
    Unanswered(PartError),
}

/// What a rule may do.
#[derive(Clone, Copy)]
pub(crate) struct Allowed<'a> {
    pub(crate) limits: &'a Limits,
    /// The verifiers that its manifest names.
    pub(crate) asks: &'a [Verifier],
}

/// For each completion, one judgement per subject. Instances work side by side, each on some of the completions.
pub(crate) fn judge<S: Session>(
    completions: &[Completion<'_>],
    allowed: Allowed<'_>,
    verifiers: &mut Verifiers<'_>,
    start: impl Fn() -> Result<S, RuleError> + Sync,
) -> Result<Vec<Vec<S::Judgement>>, Stop> {
    let size = verifiers.size();
    let mut judged = Vec::with_capacity(completions.len());
    let mut asked = Asked::default();
    for parts in parts(completions).chunks(max_waiting()) {
        let begin = |part: &Range<usize>| {
            let session = start().map_err(Stop::Start)?;
            Call::begin(session, part.start, &completions[part.clone()], size, allowed)
        };
        let mut calls: Vec<Call<'_, S>> = parts.par_iter().map(begin).collect::<Result<_, Stop>>()?;
        for round in 0.. {
            let open = calls.iter().map(|call| call.num_asking).sum();
            if open == 0 {
                break;
            }
            let limits = allowed.limits;
            if round == limits.rounds {
                return Err(broken(Fault::Rounds { limit: limits.rounds, open }));
            }
            let questions: Vec<Question> = calls.iter_mut().flat_map(|call| call.questions.drain(..)).collect();
            asked.add(&questions, limits).map_err(broken)?;
            let mut answered = answer(questions, verifiers).map_err(Stop::Unanswered)?.into_iter();
            calls.iter_mut().for_each(|call| call.take_answers(&mut answered));
            calls.par_iter_mut().try_for_each(|call| call.resume(allowed))?;
        }
        judged.extend(calls.into_iter().flat_map(Call::into_judgements));
    }
    Ok(judged)
}

fn broken(fault: Fault) -> Stop {
    Stop::Broken((fault, Vec::new()))
}

/// Cuts a batch where a completion ends, as soon as there are enough sentences for a call.
fn parts(completions: &[Completion<'_>]) -> Vec<Range<usize>> {
    let (mut parts, mut start, mut sentences) = (Vec::new(), 0, 0);
    for (i, completion) in completions.iter().enumerate() {
        // One without sentences costs its text.
        sentences += completion.sentences.len().max(1);
        if sentences >= CALL_SENTENCES || i + 1 == completions.len() {
            parts.push(start..i + 1);
            (start, sentences) = (i + 1, 0);
        }
    }
    parts
}

/// An instance and the completions that it judges.
struct Call<'a, S: Session> {
    /// Until all is said.
    session: Option<S>,
    /// The place of its first completion in the batch.
    start: usize,
    completions: &'a [Completion<'a>],
    /// What the rule said last of each subject, and all that it has asked.
    subjects: Vec<Vec<Subject<S::Judgement>>>,
    /// The completions to judge next.
    open: Vec<usize>,
    /// Subjects that ask.
    num_asking: usize,
    /// What they ask, and each question's subject: its completion, and its place there.
    questions: Vec<Question>,
    askers: Vec<(usize, usize)>,
    answered: Vec<Answered>,
}

#[derive(Clone, Default)]
struct Subject<J> {
    judgement: J,
    asked: usize,
    lookups: Vec<Lookup>,
    exchanges: Vec<Exchange>,
}

impl<J> Subject<J> {
    /// A rule may ask one thing several times; a judgement shows it once.
    fn take(&mut self, answered: Answered) {
        match answered {
            Answered::Count(lookup) if !self.lookups.contains(&lookup) => self.lookups.push(lookup),
            Answered::Other(exchange) if !self.exchanges.contains(&exchange) => self.exchanges.push(exchange),
            Answered::Count(_) | Answered::Other(_) => {}
        }
    }
}

impl<'a, S: Session> Call<'a, S> {
    fn begin(
        mut session: S,
        start: usize,
        completions: &'a [Completion<'a>],
        size: CorpusSize,
        allowed: Allowed<'_>,
    ) -> Result<Self, Stop> {
        let outcomes = session.begin(completions, size).map_err(Stop::Broken)?;
        let subjects = |completion| vec![Subject::default(); S::Judgement::subjects(completion)];
        let mut call = Self {
            session: None,
            start,
            completions,
            subjects: completions.iter().map(subjects).collect(),
            open: (0..completions.len()).collect(),
            num_asking: 0,
            questions: Vec::new(),
            askers: Vec::new(),
            answered: Vec::new(),
        };
        call.settle(session, outcomes, allowed)?;
        Ok(call)
    }

    /// Takes as many as it has asked for.
    fn take_answers(&mut self, answered: &mut impl Iterator<Item = Answered>) {
        self.answered.extend(answered.take(self.askers.len()));
    }

    fn resume(&mut self, allowed: Allowed<'_>) -> Result<(), Stop> {
        let Some(mut session) = self.session.take() else { return Ok(()) };
        let outcomes = session.resume(&self.answered).map_err(Stop::Broken)?;
        for ((completion, index), answered) in self.askers.drain(..).zip(self.answered.drain(..)) {
            self.subjects[completion][index].take(answered);
        }
        self.settle(session, outcomes, allowed)
    }

    /// Takes in what the instance said about the open completions. Those in which a subject asks stay open.
    fn settle(
        &mut self,
        session: S,
        outcomes: Vec<Vec<Outcome<S::Judgement>>>,
        allowed: Allowed<'_>,
    ) -> Result<(), Stop> {
        match self.take_in(outcomes, allowed) {
            Ok(()) => {
                self.session = (!self.open.is_empty()).then_some(session);
                Ok(())
            }
            Err(fault) => Err(Stop::Broken((fault, session.into_reports()))),
        }
    }

    fn take_in(&mut self, outcomes: Vec<Vec<Outcome<S::Judgement>>>, allowed: Allowed<'_>) -> Result<(), Fault> {
        if outcomes.len() != self.open.len() {
            return Err(Fault::Completions { expected: self.open.len(), got: outcomes.len() });
        }
        self.num_asking = 0;
        for (completion, outcomes) in std::mem::take(&mut self.open).into_iter().zip(outcomes) {
            let asking_before = self.num_asking;
            self.take_in_completion(completion, outcomes, allowed)?;
            if self.num_asking > asking_before {
                self.open.push(completion);
            }
        }
        Ok(())
    }

    fn take_in_completion(
        &mut self,
        number: usize,
        outcomes: Vec<Outcome<S::Judgement>>,
        Allowed { limits, asks }: Allowed<'_>,
    ) -> Result<(), Fault> {
        let (completion, subjects) = (&self.completions[number], &mut self.subjects[number]);
        let in_batch = self.start + number;
        if outcomes.len() != subjects.len() {
            return Err(Fault::Outcomes { completion: in_batch, expected: subjects.len(), got: outcomes.len() });
        }
        for (index, (outcome, subject)) in outcomes.into_iter().zip(subjects).enumerate() {
            let place = Place { completion: in_batch, index };
            match outcome {
                Outcome::Judged(judgement) => {
                    judgement.check(completion, place, limits)?;
                    subject.judgement = judgement;
                }
                Outcome::Asks(requests) => {
                    subject.asked += requests.len();
                    S::Judgement::check_asked(place, subject.asked, limits)?;
                    subject.judgement = S::Judgement::default();
                    self.num_asking += 1;
                    for request in requests {
                        let question = Question::from(request);
                        question.check(asks, limits)?;
                        self.questions.push(question);
                        self.askers.push((number, index));
                    }
                }
            }
        }
        Ok(())
    }

    fn into_judgements(self) -> impl Iterator<Item = Vec<S::Judgement>> {
        let judgement = |Subject { judgement, lookups, exchanges, .. }: Subject<S::Judgement>| {
            judgement.resting_on(lookups, exchanges)
        };
        self.subjects.into_iter().map(move |subjects| subjects.into_iter().map(judgement).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

    use corver_core::{Count, Counter, Query, Section, Sentence, Verdict};

    use super::*;
    use crate::bindings::types;

    /// Counts a query's clauses, and keeps what each look-up asked.
    #[derive(Default)]
    struct Clauses(Vec<Vec<String>>);

    impl Counter for Clauses {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
            self.0.push(queries.iter().map(Query::to_string).collect());
            let count = |query: &Query| Count { occurrences: Some(query.all_of.len() as u64), exact: true };
            Ok(queries.iter().map(count).collect())
        }

        fn size(&self) -> CorpusSize {
            CorpusSize { tokens: Some(1_000), documents: None }
        }
    }

    /// A sentence by its completion and its place there; each completion's text is its number.
    type Name = (usize, usize);

    /// What a call was given: each sentence, and its number of counts.
    type Seen = Vec<(Name, usize)>;

    /// A rule that keeps its sentences as the SDK does, and answers for one sentence with so many counts like this.
    struct Script<'a, F> {
        answer: F,
        /// The completions that are judged next: of each sentence its name, the queries that wait, and its counts.
        open: Vec<Vec<(Name, usize, Vec<u64>)>>,
        log: &'a Log,
    }

    #[derive(Default)]
    struct Log {
        seen: Mutex<Vec<Seen>>,
        alive: AtomicUsize,
        max_alive: AtomicUsize,
    }

    impl<F> Drop for Script<'_, F> {
        fn drop(&mut self) {
            self.log.alive.fetch_sub(1, Relaxed);
        }
    }

    impl<F: Fn(Name, &[u64]) -> Outcome<Verdict>> Script<'_, F> {
        fn outcomes(&mut self) -> Vec<Vec<Outcome<Verdict>>> {
            let seen = self.open.iter().flatten().map(|(name, _, counts)| (*name, counts.len())).collect();
            self.log.seen.lock().unwrap().push(seen);
            let mut all = Vec::new();
            self.open.retain_mut(|sentences| {
                let answered = sentences.iter_mut().map(|(name, asked, counts)| {
                    let outcome = (self.answer)(*name, counts);
                    *asked = if let Outcome::Asks(requests) = &outcome { requests.len() } else { 0 };
                    outcome
                });
                all.push(answered.collect());
                sentences.iter().any(|(_, asked, _)| *asked > 0)
            });
            all
        }
    }

    impl<F: Fn(Name, &[u64]) -> Outcome<Verdict> + Send> Session for Script<'_, F> {
        type Judgement = Verdict;

        fn begin(&mut self, completions: &[Completion<'_>], size: CorpusSize) -> Said<Verdict> {
            assert_eq!(size.tokens, Some(1_000));
            let open = |completion: &Completion<'_>| {
                let number = completion.text.parse().unwrap();
                (0..completion.sentences.len()).map(|index| ((number, index), 0, Vec::new())).collect()
            };
            self.open = completions.iter().map(open).collect();
            Ok(self.outcomes())
        }

        fn resume(&mut self, answered: &[Answered]) -> Said<Verdict> {
            let mut counts = answered.iter().map(|answered| match answered {
                Answered::Count(lookup) => lookup.count.occurrences.unwrap(),
                other => panic!("{other:?}"),
            });
            for (_, asked, known) in self.open.iter_mut().flatten() {
                known.extend(counts.by_ref().take(*asked));
            }
            assert_eq!(counts.len(), 0);
            Ok(self.outcomes())
        }

        fn into_reports(self) -> Vec<String> {
            vec!["last words".into()]
        }
    }

    /// The verdicts of a rule that answers like this on completions of so many sentences, and what its calls were given.
    fn run(
        lengths: &[usize],
        counter: &mut dyn Counter,
        answer: impl Fn(Name, &[u64]) -> Outcome<Verdict> + Send + Sync,
    ) -> Result<(Vec<Vec<Verdict>>, Vec<Seen>), Stop> {
        let sentence = Sentence { text: "Well.".into(), section: Section::Think, span: None, triplets: Vec::new() };
        let sentences = vec![sentence; lengths.iter().copied().max().unwrap_or(0)];
        let texts: Vec<String> = (0..lengths.len()).map(|number| number.to_string()).collect();
        let completion =
            |(text, &length)| Completion { text, sentences: &sentences[..length], ..Completion::default() };
        let completions: Vec<Completion<'_>> = texts.iter().map(String::as_str).zip(lengths).map(completion).collect();
        let log = Log::default();
        let start = || {
            log.max_alive.fetch_max(log.alive.fetch_add(1, Relaxed) + 1, Relaxed);
            Ok(Script { answer: &answer, open: Vec::new(), log: &log })
        };
        let allowed = Allowed { limits: &Limits::default(), asks: &[] };
        let verdicts = judge(&completions, allowed, &mut Verifiers::counting(counter), start)?;
        assert!(log.max_alive.into_inner() <= max_waiting());
        assert!(verdicts.iter().map(Vec::len).eq(lengths.iter().copied()));
        Ok((verdicts, log.seen.into_inner().unwrap()))
    }

    fn ask(words: &[&str]) -> Outcome<Verdict> {
        let request = |word: &&str| Request::Count(types::Query { all_of: vec![vec![(*word).into()]], enough: None });
        Outcome::Asks(words.iter().map(request).collect())
    }

    fn pay(reward: f32) -> Outcome<Verdict> {
        Outcome::Judged(Verdict { reward: Some(reward), ..Verdict::default() })
    }

    fn rewards(verdicts: &[Vec<Verdict>]) -> Vec<Option<f32>> {
        verdicts.iter().flatten().map(|verdict| verdict.reward).collect()
    }

    fn asked(verdict: &Verdict) -> Vec<String> {
        verdict.lookups.iter().map(|lookup| lookup.query.to_string()).collect()
    }

    #[test]
    fn completions_with_open_questions_are_judged_again_whole() {
        let mut counter = Clauses::default();
        // Sentence 1 of completion 1 asks twice; its neighbour's reward changes with every call.
        let calls = AtomicU32::new(0);
        let (verdicts, seen) = run(&[1, 2, 0, 1], &mut counter, |name, counts| match name {
            (1, 1) if counts.len() < 2 => ask(&[["a", "b"][counts.len()]]),
            (1, 0) => pay(calls.fetch_add(1, Relaxed) as f32),
            _ => pay(counts.len() as f32),
        })
        .unwrap();
        let [first, second, third] = [0, 1, 2].map(|counts| vec![((1, 0), 0), ((1, 1), counts)]);
        assert_eq!(seen, [[vec![((0, 0), 0)], first, vec![((3, 0), 0)]].concat(), second, third]);
        assert_eq!(rewards(&verdicts), [Some(0.0), Some(2.0), Some(2.0), Some(0.0)]);
        assert_eq!(asked(&verdicts[1][1]), ["a", "b"]);
        assert_eq!(counter.0, [["a"], ["b"]]);
    }

    #[test]
    fn a_verdict_shows_each_look_up_once_in_the_order_asked() {
        let mut counter = Clauses::default();
        let (verdicts, _) = run(&[2], &mut counter, |_, counts| match counts.len() {
            0 => ask(&["a", "b", "a"]),
            3 => ask(&["b", "c"]),
            _ => pay(counts.iter().sum::<u64>() as f32),
        })
        .unwrap();
        assert_eq!(counter.0, [vec!["a", "b", "a", "a", "b", "a"], vec!["b", "c", "b", "c"]]);
        assert_eq!(rewards(&verdicts), [Some(5.0), Some(5.0)], "one count for every query");
        assert_eq!(asked(&verdicts[0][1]), ["a", "b", "c"]);
    }

    #[test]
    fn large_batches_take_several_calls_of_whole_completions() {
        // 100 completions of 5 sentences, then one that is larger than a call.
        let lengths = [vec![5; 100], vec![1_000]].concat();
        let mut counter = Clauses::default();
        let (verdicts, seen) = run(&lengths, &mut counter, |(completion, index), counts| match (index, counts.len()) {
            (0, 0) => ask(&[&completion.to_string()]),
            _ => pay(index as f32),
        })
        .unwrap();
        let mut calls: Vec<usize> = seen.iter().map(Vec::len).collect();
        calls.sort_unstable();
        assert_eq!(calls, [260, 260, 1240, 1240], "twice, because every completion asks");
        let is_its = |verdicts: &Vec<Verdict>| (0..).zip(verdicts).all(|(i, verdict)| verdict.reward == Some(i as f32));
        assert!(verdicts.iter().all(is_its));
        let queries: Vec<String> = (0..=100).map(|i| i.to_string()).collect();
        assert_eq!(counter.0, [queries], "asked in one go, in order");
    }

    #[test]
    fn batches_of_any_size_need_a_bounded_number_of_instances() {
        let lengths = vec![1; CALL_SENTENCES * (max_waiting() + 3)];
        let mut counter = Clauses::default();
        let (verdicts, seen) = run(&lengths, &mut counter, |_, counts| match counts {
            [] => ask(&["a", "b"]),
            counts => pay(counts.len() as f32),
        })
        .unwrap();
        assert!(rewards(&verdicts).iter().all(|reward| *reward == Some(2.0)));
        assert_eq!(seen.len(), 2 * (max_waiting() + 3));
        let asked: Vec<usize> = counter.0.iter().map(Vec::len).collect();
        let first = CALL_SENTENCES * max_waiting();
        assert_eq!(asked, [2 * first, 2 * (lengths.len() - first)]);
    }

    #[test]
    fn faults_name_the_place_in_the_batch() {
        let fault = |answer: &(dyn Fn(Name, &[u64]) -> Outcome<Verdict> + Send + Sync)| {
            // The second call begins with completion 256.
            let lengths = [vec![1; 257], vec![4]].concat();
            match run(&lengths, &mut Clauses::default(), answer) {
                Err(Stop::Broken((fault, said))) => (fault, said.concat()),
                other => panic!("{other:?}"),
            }
        };
        let words: Vec<String> = (0..30).map(|i| i.to_string()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let at = |wrong: Outcome<Verdict>| {
            move |name: Name, _: &[u64]| if name == (257, 3) { wrong.clone() } else { pay(0.0) }
        };
        let too_much = Fault::SentenceQuestions { completion: 257, index: 3, limit: 64, got: 90 };
        assert_eq!(fault(&at(ask(&words))), (too_much, "last words".into()), "they add up over the rounds");
        let infinite = Fault::NotFinite { completion: 257, index: 3, reward: f32::INFINITY };
        assert_eq!(fault(&at(pay(f32::INFINITY))).0, infinite);
        assert_eq!(fault(&at(ask(&["a"]))), (Fault::Rounds { limit: 4, open: 1 }, String::new()));
    }

    #[test]
    fn a_verdict_that_turns_into_an_abstention_is_one() {
        let again = AtomicBool::new(false);
        let (verdicts, _) = run(&[2], &mut Clauses::default(), |(_, index), counts| match (index, counts) {
            (0, _) if again.swap(true, Relaxed) => {
                Outcome::Judged(Verdict { note: Some("on second thoughts".into()), ..Verdict::default() })
            }
            (1, []) => ask(&["a"]),
            _ => pay(1.0),
        })
        .unwrap();
        let [first, second] = &verdicts[0][..] else { panic!("{verdicts:?}") };
        assert_eq!((first.reward, first.note.as_deref()), (None, Some("on second thoughts")));
        assert_eq!((second.reward, asked(second)), (Some(1.0), vec!["a".into()]));
    }
}
