//! Response rules: completions → grades.

use corver_core::{Completion, Grade, PartError};
use rayon::prelude::*;

use crate::bindings::{types, with_lowered};
use crate::check::check_text;
use crate::limits::defaults::LABEL_BYTES;
use crate::{Fault, Limits, ResponseRule, RuleError};

/// Completions of one call; see the sentence rules' for why it is a constant.
const CALL_COMPLETIONS: usize = 64;

impl ResponseRule {
    /// One grade per completion, in order. Every call of the rule runs in a fresh instance; large batches take several calls,
    /// on all cores.
    ///
    /// # Errors
    /// Where the rule breaks its contract or a limit. There is no partial answer.
    pub fn grade(&self, completions: &[Completion<'_>]) -> Result<Vec<Grade>, RuleError> {
        let calls = completions.par_chunks(CALL_COMPLETIONS).enumerate();
        let grades: Result<Vec<Vec<Grade>>, RuleError> = calls
            .map(|(call, completions)| {
                let mut instance = self.instantiate()?;
                let assessed = with_lowered(completions, |completions| {
                    instance.call(|rule, store| rule.call_assess(store, completions))
                });
                let grades: Vec<Grade> =
                    assessed.map_err(|failure| self.broken(failure))?.into_iter().map(grade).collect();
                check(call * CALL_COMPLETIONS, completions.len(), &grades, &self.limits)
                    .map_err(|fault| self.broken((fault, instance.into_reports())))?;
                Ok(grades)
            })
            .collect();
        Ok(grades?.into_iter().flatten().collect())
    }
}

impl corver_core::ResponseRule for ResponseRule {
    fn grade(&mut self, completions: &[Completion<'_>]) -> Result<Vec<Grade>, PartError> {
        Ok(Self::grade(self, completions)?)
    }
}

fn grade(types::Grade { reward, label, note }: types::Grade) -> Grade {
    Grade { reward: f64::from(reward), label, note }
}

/// Whether `grades` are acceptable answers to `expected` completions, of which the first is number `first` of the batch.
fn check(first: usize, expected: usize, grades: &[Grade], limits: &Limits) -> Result<(), Fault> {
    if grades.len() != expected {
        return Err(Fault::Grades { expected, got: grades.len() });
    }
    for (completion, Grade { reward, label, note }) in (first..).zip(grades) {
        if !reward.is_finite() {
            return Err(Fault::GradeNotFinite { completion, reward: *reward });
        }
        if !(1..=LABEL_BYTES).contains(&label.len()) || label.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let label = label.chars().take(LABEL_BYTES).collect();
            return Err(Fault::Label { completion, label, limit: LABEL_BYTES });
        }
        if let Some(note) = note {
            check_text("note", note, limits.text_bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_are_one_per_completion_finite_and_labelled() {
        let limits = Limits { text_bytes: 9, ..Limits::default() };
        let fault = |grade: Grade| check(64, 1, &[grade], &limits).unwrap_err().to_string();
        assert!(check(0, 1, &[Grade::new(1.0, "GOOD")], &limits).is_ok());
        assert_eq!(check(0, 2, &[Grade::new(1.0, "GOOD")], &limits), Err(Fault::Grades { expected: 2, got: 1 }));
        assert!(fault(Grade::new(f64::NAN, "GOOD")).starts_with("gave completion 64 the reward NaN"));
        for label in ["", "two words", "tab\t", &"x".repeat(65)] {
            assert!(fault(Grade::new(0.0, label)).contains("one word"), "{label:?}");
        }
        let wordy = Grade { note: Some("ten bytes.".into()), ..Grade::new(0.0, "GOOD") };
        assert!(fault(wordy).contains("limits.text_bytes"));
    }
}
