//! The rounds: have the rule judge, have answered what it asks, resume it with the replies.

use std::ops::Range;

use corver_core::{
    Backends, BoxError, Capability, Completion, CorpusSize, CreditKind, Exchange, Lookup,
};
use rayon::prelude::*;

use crate::bindings::types::Request;
use crate::error::Fault;
use crate::instance::Failure;
use crate::limits::max_waiting;
use crate::questions::{Answered, Asked, Question, answer};
use crate::{Limits, RuleError};

/// An instance takes completions until it has so many sentences: enough that a fresh one costs
/// little compared with them, few enough that a training step keeps several cores busy. A constant,
/// so that what a rule sees does not depend on the machine.
const CALL_SENTENCES: usize = 256;

/// A fresh instance of a rule. What it says is unchecked.
pub(crate) trait Session: Send {
    /// What the rule says in the end of each subject: the sentences of a completion, or the
    /// completion itself.
    type Judgement: Judgement;

    /// For each completion, what it says of each subject.
    fn begin(&mut self, completions: &[Completion<'_>], size: CorpusSize) -> Said<Self::Judgement>;

    /// The same for those completions in which a subject asked, given the answers in the order
    /// asked.
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
    fn check(
        &self,
        completion: &Completion<'_>,
        place: Place,
        allowed: Allowed<'_>,
    ) -> Result<(), Fault>;

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
    Unanswered(BoxError),
}

/// What a rule may do.
#[derive(Clone, Copy)]
pub(crate) struct Allowed<'a> {
    pub(crate) limits: &'a Limits,
    /// The capabilities that its manifest requires.
    pub(crate) requires: &'a [Capability],
    /// The credit that its manifest declares.
    pub(crate) credit: CreditKind,
}

/// For each completion, one judgement per subject. Instances work side by side, each on some of the
/// completions.
pub(crate) fn judge<S: Session>(
    completions: &[Completion<'_>],
    allowed: Allowed<'_>,
    verifiers: &mut Backends<'_>,
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
        let mut calls: Vec<Call<'_, S>> =
            parts.par_iter().map(begin).collect::<Result<_, Stop>>()?;
        for round in 0.. {
            let open: usize = calls.iter().map(|call| call.num_asking).sum();
            if open == 0 {
                break;
            }
            let limits = allowed.limits;
            if round == limits.rounds {
                return Err(broken(Fault::Limit(format!(
                    "still asks about {open} of what it judges after {round} rounds of answers \
                     (limits.rounds)"
                ))));
            }
            let questions: Vec<Question> =
                calls.iter_mut().flat_map(|call| call.questions.drain(..)).collect();
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
            Answered::Other(exchange) if !self.exchanges.contains(&exchange) => {
                self.exchanges.push(exchange)
            }
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

    /// Takes in what the instance said about the open completions. Those in which a subject asks
    /// stay open.
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

    fn take_in(
        &mut self,
        outcomes: Vec<Vec<Outcome<S::Judgement>>>,
        allowed: Allowed<'_>,
    ) -> Result<(), Fault> {
        if outcomes.len() != self.open.len() {
            return Err(Fault::Contract(format!(
                "answered {} completions with {} answers",
                self.open.len(),
                outcomes.len()
            )));
        }
        self.num_asking = 0;
        for (completion, own_outcomes) in std::mem::take(&mut self.open).into_iter().zip(outcomes) {
            let asking_before = self.num_asking;
            self.take_in_completion(completion, own_outcomes, allowed)?;
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
        allowed: Allowed<'_>,
    ) -> Result<(), Fault> {
        let Allowed { limits, requires, .. } = allowed;
        let (completion, subjects) = (&self.completions[number], &mut self.subjects[number]);
        let in_batch = self.start + number;
        if outcomes.len() != subjects.len() {
            return Err(Fault::Contract(format!(
                "answered the {} sentences of completion {in_batch} with {} outcomes",
                subjects.len(),
                outcomes.len()
            )));
        }
        for (index, (outcome, subject)) in outcomes.into_iter().zip(subjects).enumerate() {
            let place = Place { completion: in_batch, index };
            match outcome {
                Outcome::Judged(judgement) => {
                    judgement.check(completion, place, allowed)?;
                    subject.judgement = judgement;
                }
                Outcome::Asks(requests) => {
                    subject.asked += requests.len();
                    S::Judgement::check_asked(place, subject.asked, limits)?;
                    subject.judgement = S::Judgement::default();
                    self.num_asking += 1;
                    for request in requests {
                        let question = Question::from(request);
                        question.check(requires, limits)?;
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
mod tests;
