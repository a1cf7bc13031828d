//! Sentence rules: sentences and counts → verdicts.

use corver_core::{Counter, PartError, RuleSentence, Rules, Verdict};

use crate::judge::{Outcome, Posed, Stop, check, judge};
use crate::{Rule, RuleError};

impl Rule {
    /// One verdict per sentence, in order. `sentences` holds whole completions, each in one piece. Every call of the
    /// rule runs in a fresh instance, so nothing is left of earlier ones; large batches take several calls, on all cores.
    ///
    /// # Errors
    /// Where the rule breaks its contract or a limit, or `counter` fails. There is no partial answer.
    pub fn judge(&self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, RuleError> {
        if sentences.is_empty() {
            return Ok(Vec::new());
        }
        judge(sentences, &self.limits, counter, |posed| self.call(posed)).map_err(|stop| match stop {
            Stop::Call(error) => error,
            Stop::Fault(fault) => self.broken((fault, Vec::new())),
            Stop::Counter(source) => RuleError::Counter { plugin: self.name().to_owned(), source },
            Stop::Answers { expected, got } => RuleError::Answers { expected, got },
        })
    }

    /// What the rule says to these sentences, in a fresh instance.
    fn call(&self, posed: &[Posed]) -> Result<Vec<Outcome>, RuleError> {
        let mut instance = self.instantiate()?;
        let outcomes = instance.score(posed).map_err(|failure| self.broken(failure))?;
        check(posed, &outcomes, &self.limits).map_err(|fault| self.broken((fault, instance.into_reports())))?;
        Ok(outcomes)
    }
}

impl Rules for Rule {
    fn judge(&mut self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, PartError> {
        Ok(Self::judge(self, sentences, counter)?)
    }
}
