//! Rounds of requests: run a rule on a batch, send its requests to the backends, and resume it with
//! the replies until nothing is pending.

use std::ops::Range;

use corver_core::verdict::push_new;
use corver_core::{
    Backends, BoxError, Capability, Completion, CorpusInfo, CreditKind, Exchange, Lookup,
};
use rayon::prelude::*;

use crate::bindings::types::Request;
use crate::error::{Failure, Fault};
use crate::limits::max_waiting;
use crate::requests::{AnsweredRequest, RequestCounts, RuleRequest, send_requests};
use crate::{Limits, RuleError};

/// Sentences after which a part of a batch is full. A fresh instance costs little compared with
/// them, and a training step has enough parts for several cores. It is a constant, so that the
/// completions that a rule sees together do not depend on the machine.
const PART_SENTENCES: usize = 256;

/// A fresh instance of a rule. The outcomes that it returns are not checked.
pub(crate) trait Session: Send {
    /// The verdict of a sentence rule, or the grade of a response rule.
    type Decision: Decision;

    /// Scores completions. Returns one outcome per subject of each.
    fn start(
        &mut self,
        completions: &[Completion<'_>],
        info: CorpusInfo,
    ) -> Result<Vec<Vec<Outcome<Self::Decision>>>, Failure>;

    /// Continues with the replies to the last requests, in their order. Returns the outcomes of the
    /// completions that had a pending subject.
    fn resume(
        &mut self,
        answered: &[AnsweredRequest],
    ) -> Result<Vec<Vec<Outcome<Self::Decision>>>, Failure>;

    /// Returns the messages that the rule has reported.
    fn into_reports(self) -> Vec<String>;
}

/// A rule's outcome for one subject: a sentence, or a completion.
#[derive(Debug, Clone)]
pub(crate) enum Outcome<D> {
    Done(D),
    Pending(Vec<Request>),
}

/// A verdict or a grade.
pub(crate) trait Decision: Default + Clone + Send {
    /// Returns the number of subjects in a completion.
    fn num_subjects(completion: &Completion<'_>) -> usize;

    /// Fails if the contract does not allow this decision.
    fn check(
        &self,
        completion: &Completion<'_>,
        subject: SubjectIndex,
        permissions: Permissions<'_>,
    ) -> Result<(), Fault>;

    /// Fails if `num_requests` are too many for one subject.
    fn check_num_requests(
        subject: SubjectIndex,
        num_requests: usize,
        limits: &Limits,
    ) -> Result<(), Fault>;

    /// Adds the requests that led to this decision, for the trace.
    fn with_requests(self, lookups: Vec<Lookup>, exchanges: Vec<Exchange>) -> Self;
}

/// Position of a subject.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SubjectIndex {
    /// Index of the completion in the batch.
    pub(crate) completion: usize,
    /// Index of the sentence in the completion; 0 for a response rule.
    pub(crate) sentence: usize,
}

/// Reason for a batch without decisions.
#[derive(Debug)]
pub(crate) enum BatchError {
    /// No instance could be created.
    Start(RuleError),
    /// An instance failed, or returned something that the contract does not allow.
    Rule(Failure),
    /// A backend failed.
    Backend(BoxError),
}

/// Bounds of a rule's outcomes.
#[derive(Clone, Copy)]
pub(crate) struct Permissions<'a> {
    pub(crate) limits: &'a Limits,
    /// Capabilities that its manifest requires.
    pub(crate) requires: &'a [Capability],
    /// Credit that its manifest declares.
    pub(crate) credit: CreditKind,
}

/// Runs a rule on a batch. Returns one decision per subject of each completion.
///
/// Several instances run in parallel, each on a part of the batch. `create` returns a fresh one.
pub(crate) fn run_batch<S: Session>(
    completions: &[Completion<'_>],
    permissions: Permissions<'_>,
    backends: &mut Backends<'_>,
    create: impl Fn() -> Result<S, RuleError> + Sync,
) -> Result<Vec<Vec<S::Decision>>, BatchError> {
    let info = backends.info();
    let mut counts = RequestCounts::default();
    let mut decisions = Vec::with_capacity(completions.len());
    // Instances wait for replies, so their number is bounded: a large batch runs in several waves.
    for wave in split_batch(completions).chunks(max_waiting()) {
        let mut parts = wave
            .par_iter()
            .map(|range| {
                let session = create().map_err(BatchError::Start)?;
                let part = BatchPart::new(session, range.start, &completions[range.clone()]);
                part.start(info, permissions)
            })
            .collect::<Result<Vec<_>, BatchError>>()?;
        answer_requests(&mut parts, permissions, &mut counts, backends)?;
        for part in parts {
            part.append_decisions(&mut decisions);
        }
    }
    Ok(decisions)
}

/// Returns the range of each part. A part ends with a completion, as soon as it has enough
/// sentences.
fn split_batch(completions: &[Completion<'_>]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut sentences = 0;
    for (index, completion) in completions.iter().enumerate() {
        // A completion without sentences still costs its text.
        sentences += completion.sentences.len().max(1);
        if sentences >= PART_SENTENCES || index + 1 == completions.len() {
            parts.push(start..index + 1);
            start = index + 1;
            sentences = 0;
        }
    }
    parts
}

/// Answers requests and resumes the parts until nothing is pending. The requests of all parts go to
/// a backend together.
fn answer_requests<S: Session>(
    parts: &mut [BatchPart<'_, S>],
    permissions: Permissions<'_>,
    counts: &mut RequestCounts,
    backends: &mut Backends<'_>,
) -> Result<(), BatchError> {
    let limits = permissions.limits;
    for round in 0.. {
        let num_pending: usize = parts.iter().map(|part| part.num_pending).sum();
        if num_pending == 0 {
            break;
        }
        if round == limits.rounds {
            return Err(without_reports(Fault::Limit(format!(
                "still has {num_pending} pending outcomes after {round} rounds of replies \
                 (limits.rounds)"
            ))));
        }
        let mut requests = Vec::new();
        for part in parts.iter_mut() {
            requests.append(&mut part.requests);
        }
        counts.add(&requests, limits).map_err(without_reports)?;
        let mut answered =
            send_requests(requests, backends).map_err(BatchError::Backend)?.into_iter();
        for part in parts.iter_mut() {
            part.answered.extend(answered.by_ref().take(part.requesters.len()));
        }
        parts.par_iter_mut().try_for_each(|part| part.resume(permissions))?;
    }
    Ok(())
}

fn without_reports(fault: Fault) -> BatchError {
    BatchError::Rule(Failure { fault, reports: Vec::new() })
}

/// Completions of a batch that one instance scores.
struct BatchPart<'a, S: Session> {
    /// The instance; `None` once nothing is pending.
    session: Option<S>,
    /// Index of the first completion in the batch.
    start: usize,
    completions: &'a [Completion<'a>],
    /// State of each completion's subjects.
    subjects: Vec<Vec<SubjectState<S::Decision>>>,
    /// Completions, by index in the part, whose outcomes the instance returns next.
    open: Vec<usize>,
    /// Number of subjects whose last outcome was pending.
    num_pending: usize,
    /// Requests of the last outcomes.
    requests: Vec<RuleRequest>,
    /// Completion and sentence, by index in the part, of each request.
    requesters: Vec<(usize, usize)>,
    /// Replies to `requests`.
    answered: Vec<AnsweredRequest>,
}

/// Last decision on a subject, and its requests in all rounds.
#[derive(Clone, Default)]
struct SubjectState<D> {
    decision: D,
    /// Number of requests, repeated ones included.
    num_requests: usize,
    lookups: Vec<Lookup>,
    exchanges: Vec<Exchange>,
}

impl<D> SubjectState<D> {
    /// Adds a request to the trace, unless it is there.
    fn add(&mut self, answered: AnsweredRequest) {
        match answered {
            AnsweredRequest::Count(lookup) => push_new(&mut self.lookups, lookup),
            AnsweredRequest::Other(exchange) => push_new(&mut self.exchanges, exchange),
        }
    }
}

impl<'a, S: Session> BatchPart<'a, S> {
    fn new(session: S, start: usize, completions: &'a [Completion<'a>]) -> Self {
        let mut subjects = Vec::with_capacity(completions.len());
        for completion in completions {
            subjects.push(vec![SubjectState::default(); S::Decision::num_subjects(completion)]);
        }
        Self {
            session: Some(session),
            start,
            completions,
            subjects,
            open: (0..completions.len()).collect(),
            num_pending: 0,
            requests: Vec::new(),
            requesters: Vec::new(),
            answered: Vec::new(),
        }
    }

    /// Scores the completions for the first time.
    fn start(mut self, info: CorpusInfo, permissions: Permissions<'_>) -> Result<Self, BatchError> {
        if let Some(session) = &mut self.session {
            let outcomes = session.start(self.completions, info).map_err(BatchError::Rule)?;
            self.apply(outcomes, permissions)?;
        }
        Ok(self)
    }

    /// Passes the replies to the instance. Does nothing if no subject is pending.
    fn resume(&mut self, permissions: Permissions<'_>) -> Result<(), BatchError> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let outcomes = session.resume(&self.answered).map_err(BatchError::Rule)?;
        for ((completion, sentence), answered) in
            self.requesters.drain(..).zip(self.answered.drain(..))
        {
            self.subjects[completion][sentence].add(answered);
        }
        self.apply(outcomes, permissions)
    }

    /// Applies the outcomes of the open completions. Drops the instance if nothing is pending, so
    /// that another one may use its memory.
    fn apply(
        &mut self,
        outcomes: Vec<Vec<Outcome<S::Decision>>>,
        permissions: Permissions<'_>,
    ) -> Result<(), BatchError> {
        if let Err(fault) = self.apply_outcomes(outcomes, permissions) {
            let reports = self.session.take().map_or_else(Vec::new, S::into_reports);
            return Err(BatchError::Rule(Failure { fault, reports }));
        }
        if self.open.is_empty() {
            self.session = None;
        }
        Ok(())
    }

    fn apply_outcomes(
        &mut self,
        outcomes: Vec<Vec<Outcome<S::Decision>>>,
        permissions: Permissions<'_>,
    ) -> Result<(), Fault> {
        if outcomes.len() != self.open.len() {
            return Err(Fault::Contract(format!(
                "returned outcomes of {} completions; there are {}",
                outcomes.len(),
                self.open.len()
            )));
        }
        self.num_pending = 0;
        for (number, completion_outcomes) in
            std::mem::take(&mut self.open).into_iter().zip(outcomes)
        {
            let num_pending_before = self.num_pending;
            self.apply_to_completion(number, completion_outcomes, permissions)?;
            if self.num_pending > num_pending_before {
                self.open.push(number);
            }
        }
        Ok(())
    }

    fn apply_to_completion(
        &mut self,
        number: usize,
        outcomes: Vec<Outcome<S::Decision>>,
        permissions: Permissions<'_>,
    ) -> Result<(), Fault> {
        let Permissions { limits, requires, .. } = permissions;
        let completion = &self.completions[number];
        let subjects = &mut self.subjects[number];
        let number_in_batch = self.start + number;
        if outcomes.len() != subjects.len() {
            return Err(Fault::Contract(format!(
                "returned {} outcomes for the {} sentences of completion {number_in_batch}",
                outcomes.len(),
                subjects.len()
            )));
        }
        for (sentence, (outcome, subject)) in outcomes.into_iter().zip(subjects).enumerate() {
            let index = SubjectIndex { completion: number_in_batch, sentence };
            match outcome {
                Outcome::Done(decision) => {
                    decision.check(completion, index, permissions)?;
                    subject.decision = decision;
                }
                Outcome::Pending(requests) => {
                    subject.num_requests += requests.len();
                    S::Decision::check_num_requests(index, subject.num_requests, limits)?;
                    subject.decision = S::Decision::default();
                    self.num_pending += 1;
                    for wire_request in requests {
                        let request = RuleRequest::from(wire_request);
                        request.check(requires, limits)?;
                        self.requests.push(request);
                        self.requesters.push((number, sentence));
                    }
                }
            }
        }
        Ok(())
    }

    fn append_decisions(self, decisions: &mut Vec<Vec<S::Decision>>) {
        for subjects in self.subjects {
            let mut completion_decisions = Vec::with_capacity(subjects.len());
            for SubjectState { decision, lookups, exchanges, .. } in subjects {
                completion_decisions.push(decision.with_requests(lookups, exchanges));
            }
            decisions.push(completion_decisions);
        }
    }
}

#[cfg(test)]
mod tests;
