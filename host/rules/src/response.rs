//! Response rules: completions and the replies about them → grades.

use corver_core::{
    Backends, BoxError, Capability, Completion, CorpusInfo, Exchange, Grade, Lookup,
};
use corver_settings::limits::LABEL_BYTES;

use crate::bindings::{response_grading, types, wire_info, with_wire_completions};
use crate::check::check_text;
use crate::error::{Failure, Fault};
use crate::instance::Instance;
use crate::requests::{AnsweredRequest, with_wire_replies};
use crate::rounds::{Decision, Outcome, Permissions, Session, SubjectIndex};
use crate::{Limits, ResponseRule, RuleError};

impl ResponseRule {
    /// Returns one grade per completion, in order. Fresh instances of the rule grade each batch, as
    /// in [`crate::Rule::score`].
    ///
    /// # Errors
    /// Fails if the rule breaks its contract or a limit, or a backend fails; no grade is returned
    /// then.
    pub fn grade(
        &self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Grade>, RuleError> {
        Ok(self.run(completions, backends)?.into_iter().flatten().collect())
    }
}

impl corver_core::ResponseGrader for ResponseRule {
    fn required_capabilities(&self) -> Vec<Capability> {
        self.manifest().requires.clone()
    }

    fn grade(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Grade>, BoxError> {
        Ok(Self::grade(self, completions, backends)?)
    }
}

impl Session for Instance<response_grading::Guest> {
    type Decision = Grade;

    fn start(
        &mut self,
        completions: &[Completion<'_>],
        info: CorpusInfo,
    ) -> Result<Vec<Vec<Outcome<Grade>>>, Failure> {
        let outcomes = with_wire_completions(completions, |wire_completions| {
            self.call(|rule, store| rule.call_grade(store, wire_completions, wire_info(info)))
        })?;
        Ok(outcomes.into_iter().map(|outcome| vec![from_wire(outcome)]).collect())
    }

    fn resume(
        &mut self,
        answered: &[AnsweredRequest],
    ) -> Result<Vec<Vec<Outcome<Grade>>>, Failure> {
        let outcomes = with_wire_replies(answered, |replies| {
            self.call(|rule, store| rule.call_resume(store, replies))
        })?;
        Ok(outcomes.into_iter().map(|outcome| vec![from_wire(outcome)]).collect())
    }

    fn into_reports(self) -> Vec<String> {
        self.into_reports()
    }
}

fn from_wire(outcome: types::ResponseOutcome) -> Outcome<Grade> {
    match outcome {
        types::ResponseOutcome::Done(types::Grade { reward, label, note }) => {
            Outcome::Done(Grade { reward: f64::from(reward), label, note, ..Grade::default() })
        }
        types::ResponseOutcome::Pending(requests) => Outcome::Pending(requests),
    }
}

impl Decision for Grade {
    fn num_subjects(_: &Completion<'_>) -> usize {
        1
    }

    fn check(
        &self,
        _: &Completion<'_>,
        SubjectIndex { completion, .. }: SubjectIndex,
        Permissions { limits, .. }: Permissions<'_>,
    ) -> Result<(), Fault> {
        let Self { reward, label, note, .. } = self;
        if !reward.is_finite() {
            return Err(Fault::Contract(format!(
                "gave completion {completion} the reward {reward}; it must be finite"
            )));
        }
        if !(1..=LABEL_BYTES).contains(&label.len())
            || label.contains(|c: char| c.is_whitespace() || c.is_control())
        {
            let start: String = label.chars().take(LABEL_BYTES).collect();
            return Err(Fault::Contract(format!(
                "gave completion {completion} the label {start:?}; it must be one word of at most \
                 {LABEL_BYTES} bytes"
            )));
        }
        match note {
            Some(note) => check_text("note", note, limits.text_bytes),
            None => Ok(()),
        }
    }

    fn check_num_requests(
        SubjectIndex { completion, .. }: SubjectIndex,
        num_requests: usize,
        limits: &Limits,
    ) -> Result<(), Fault> {
        let limit = limits.requests_per_completion;
        if num_requests > limit {
            return Err(Fault::Limit(format!(
                "made {num_requests} requests about completion {completion}; at most {limit} are \
                 allowed (limits.requests_per_completion)"
            )));
        }
        Ok(())
    }

    fn with_requests(self, lookups: Vec<Lookup>, exchanges: Vec<Exchange>) -> Self {
        Self { lookups, exchanges, ..self }
    }
}

#[cfg(test)]
mod tests {
    use corver_core::CreditKind;

    use super::*;

    #[test]
    fn grades_are_finite_and_labelled() {
        let limits = Limits { text_bytes: 9, ..Limits::default() };
        let permissions =
            Permissions { limits: &limits, requires: &[], credit: CreditKind::AllTokens };
        let subject = SubjectIndex { completion: 64, sentence: 0 };
        let check = |grade: Grade| {
            grade
                .check(&Completion::default(), subject, permissions)
                .map_err(|(Fault::Limit(problem) | Fault::Contract(problem))| problem)
        };
        let fault = |grade| check(grade).unwrap_err();
        assert_eq!(check(Grade::new(1.0, "GOOD")), Ok(()));
        assert!(
            fault(Grade::new(f64::NAN, "GOOD")).starts_with("gave completion 64 the reward NaN")
        );
        for label in ["", "two words", "tab\t", &"x".repeat(65)] {
            assert!(fault(Grade::new(0.0, label)).contains("one word"), "{label:?}");
        }
        let wordy = Grade { note: Some("ten bytes.".into()), ..Grade::new(0.0, "GOOD") };
        assert!(fault(wordy).contains("limits.text_bytes"));
    }
}
