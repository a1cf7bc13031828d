//! Sentence rules: sentences and counts → verdicts.

use corver_core::{Counter, PartError, RuleSentence, Rules, Verdict};

use crate::answers::Answer;
use crate::judge::{Outcome, Session, Stop, judge};
use crate::v0_5::{Instance, SentenceRule};
use crate::{Fault, Rule, RuleError};

impl Rule {
    /// One verdict per sentence, in order. `sentences` holds whole completions, each in one piece. A fresh instance of
    /// the rule judges them, so nothing is left of earlier ones; large batches take several, on all cores.
    ///
    /// # Errors
    /// Where the rule breaks its contract or a limit, or `counter` fails. There is no partial answer.
    pub fn judge(&self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, RuleError> {
        let start = || Ok(Judging { rule: self, instance: self.instantiate()? });
        judge(sentences, &self.limits, counter, start).map_err(|stop| match stop {
            Stop::Session(error) => error,
            Stop::Fault(fault) => self.broken((fault, Vec::new())),
            Stop::Counter(source) => RuleError::Counter { plugin: self.name().to_owned(), source },
            Stop::Answers { expected, got } => RuleError::Answers { expected, got },
        })
    }
}

/// A fresh instance, and whom to name where it fails.
struct Judging<'a> {
    rule: &'a Rule,
    instance: Instance<SentenceRule>,
}

impl Session for Judging<'_> {
    type Error = RuleError;

    fn score(&mut self, sentences: &[RuleSentence]) -> Result<Vec<Outcome>, RuleError> {
        self.instance.score(sentences).map_err(|failure| self.rule.broken(failure))
    }

    fn resume(&mut self, answers: impl ExactSizeIterator<Item = Answer>) -> Result<Vec<Outcome>, RuleError> {
        self.instance.resume(answers).map_err(|failure| self.rule.broken(failure))
    }

    fn refuse(self, fault: Fault) -> RuleError {
        self.rule.broken((fault, self.instance.into_reports()))
    }
}

impl Rules for Rule {
    fn judge(&mut self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, PartError> {
        Ok(Self::judge(self, sentences, counter)?)
    }
}
