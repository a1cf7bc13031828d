//! Sentence rules: completions and counts → verdicts.

use corver_core::{Completion, CorpusSize, Counter, Lookup, PartError, SentenceScorer, Verdict};

use crate::bindings::{sentence_scoring, types, with_lowered};
use crate::instance::{Failure, Instance};
use crate::rounds::{Session, Stop, score};
use crate::{Rule, RuleError};

impl Rule {
    /// For each completion, one verdict per sentence, all in order. A fresh instance of the rule judges them, so nothing is
    /// left of earlier ones; large batches take several, on all cores.
    ///
    /// # Errors
    /// Where the rule breaks its contract or a limit, or `counter` fails. There is no partial answer.
    pub fn score(
        &self,
        completions: &[Completion<'_>],
        counter: &mut dyn Counter,
    ) -> Result<Vec<Vec<Verdict>>, RuleError> {
        score(completions, &self.limits, counter, || self.instantiate()).map_err(|stop| match stop {
            Stop::Start(error) => error,
            Stop::Broken(failure) => self.broken(failure),
            Stop::Counter(source) => RuleError::Counter { plugin: self.name().to_owned(), source },
            Stop::Counts { expected, got } => RuleError::Counts { expected, got },
        })
    }
}

impl SentenceScorer for Rule {
    fn score(
        &mut self,
        completions: &[Completion<'_>],
        counter: &mut dyn Counter,
    ) -> Result<Vec<Vec<Verdict>>, PartError> {
        Ok(Self::score(self, completions, counter)?)
    }
}

impl Session for Instance<sentence_scoring::Guest> {
    fn score(&mut self, completions: &[Completion<'_>], size: CorpusSize) -> Result<Vec<Vec<types::Outcome>>, Failure> {
        let CorpusSize { tokens, documents } = size;
        let size = types::CorpusSize { tokens, documents };
        with_lowered(completions, |completions| self.call(|rule, store| rule.call_score(store, completions, size)))
    }

    fn resume(&mut self, lookups: &[Lookup]) -> Result<Vec<Vec<types::Outcome>>, Failure> {
        let reply = |lookup: &Lookup| {
            let corver_core::Count { occurrences, exact } = lookup.count;
            types::Reply::Count(types::Count { occurrences, exact })
        };
        let replies: Vec<types::Reply> = lookups.iter().map(reply).collect();
        self.call(|rule, store| rule.call_resume(store, &replies))
    }

    fn into_reports(self) -> Vec<String> {
        self.into_reports()
    }
}
