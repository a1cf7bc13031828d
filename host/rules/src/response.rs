//! Response rules: completions and what is asked about them → grades.

use corver_core::{
    Backends, BoxError, Capability, Completion, CorpusSize, Exchange, Grade, Lookup,
};

use crate::bindings::{response_grading, types, with_lowered};
use crate::check::check_text;
use crate::error::Fault;
use crate::instance::{Failure, Instance};
use crate::questions::{Answered, with_replies};
use crate::rounds::{Allowed, Judgement, Outcome, Place, Said, Session};
use crate::{Limits, ResponseRule, RuleError};
use corver_settings::limits::LABEL_BYTES;

impl ResponseRule {
    /// One grade per completion, in order. Fresh instances of the rule grade them, as
    /// [`crate::Rule::score`] says.
    ///
    /// # Errors
    /// Where the rule breaks its contract or a limit, or a verifier fails. There is no partial
    /// answer.
    pub fn grade(
        &self,
        completions: &[Completion<'_>],
        verifiers: &mut Backends<'_>,
    ) -> Result<Vec<Grade>, RuleError> {
        Ok(self.judge(completions, verifiers)?.into_iter().flatten().collect())
    }
}

impl corver_core::ResponseRule for ResponseRule {
    fn required_capabilities(&self) -> Vec<Capability> {
        self.manifest().requires.clone()
    }

    fn grade(
        &mut self,
        completions: &[Completion<'_>],
        verifiers: &mut Backends<'_>,
    ) -> Result<Vec<Grade>, BoxError> {
        Ok(Self::grade(self, completions, verifiers)?)
    }
}

impl Session for Instance<response_grading::Guest> {
    type Judgement = Grade;

    fn begin(&mut self, completions: &[Completion<'_>], size: CorpusSize) -> Said<Grade> {
        let CorpusSize { tokens, documents } = size;
        let wire_size = types::CorpusSize { tokens, documents };
        let assessed = with_lowered(completions, |completions| {
            self.call(|rule, store| rule.call_grade(store, completions, wire_size))
        });
        raised(assessed)
    }

    fn resume(&mut self, answered: &[Answered]) -> Said<Grade> {
        let assessed = with_replies(answered, |replies| {
            self.call(|rule, store| rule.call_resume(store, replies))
        });
        raised(assessed)
    }

    fn into_reports(self) -> Vec<String> {
        self.into_reports()
    }
}

/// A completion is its only subject.
fn raised(assessed: Result<Vec<types::ResponseOutcome>, Failure>) -> Said<Grade> {
    let outcome = |assessment| match assessment {
        types::ResponseOutcome::Done(types::Grade { reward, label, note }) => {
            Outcome::Judged(Grade { reward: f64::from(reward), label, note, ..Grade::default() })
        }
        types::ResponseOutcome::Pending(requests) => Outcome::Asks(requests),
    };
    Ok(assessed?.into_iter().map(|assessment| vec![outcome(assessment)]).collect())
}

impl Judgement for Grade {
    fn subjects(_: &Completion<'_>) -> usize {
        1
    }

    fn check(
        &self,
        _: &Completion<'_>,
        place: Place,
        Allowed { limits, .. }: Allowed<'_>,
    ) -> Result<(), Fault> {
        let Place { completion, .. } = place;
        let Self { reward, label, note, .. } = self;
        if !reward.is_finite() {
            return Err(Fault::Contract(format!(
                "gave completion {completion} the reward {reward}; it must be finite"
            )));
        }
        if !(1..=LABEL_BYTES).contains(&label.len())
            || label.contains(|c: char| c.is_whitespace() || c.is_control())
        {
            let label: String = label.chars().take(LABEL_BYTES).collect();
            return Err(Fault::Contract(format!(
                "gave completion {completion} the label {label:?}; it must be one word of at most \
                 {LABEL_BYTES} bytes"
            )));
        }
        note.as_ref().map_or(Ok(()), |note| check_text("note", note, limits.text_bytes))
    }

    fn check_asked(place: Place, got: usize, limits: &Limits) -> Result<(), Fault> {
        let (completion, limit) = (place.completion, limits.requests_per_completion);
        if got > limit {
            return Err(Fault::Limit(format!(
                "asked {got} questions about completion {completion}; at most {limit} are allowed \
                 (limits.requests_per_completion)"
            )));
        }
        Ok(())
    }

    fn resting_on(self, lookups: Vec<Lookup>, exchanges: Vec<Exchange>) -> Self {
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
        let allowed = Allowed { limits: &limits, requires: &[], credit: CreditKind::AllTokens };
        let check = |grade: Grade| {
            grade
                .check(&Completion::default(), Place { completion: 64, index: 0 }, allowed)
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
