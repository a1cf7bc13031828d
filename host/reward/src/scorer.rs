//! The reward, opened once: completions → what they earn.

use anyhow::Result;
use corver_core::{Counter, Extractor, Graders, Question, RewardSettings, Rollout, Scored, Scorers, StepError, score};

use crate::Config;
use crate::parts::{self, Loader, SentenceRules};

/// Extractor, corpus, rules and graders of a configuration.
pub struct Scorer {
    extractor: Box<dyn Extractor>,
    counter: Box<dyn Counter>,
    rules: SentenceRules,
    graders: Graders,
    settings: RewardSettings,
}

impl Scorer {
    /// Opens all that `config` names; the policy is not needed.
    ///
    /// # Errors
    /// Where something is not named, not there or not usable.
    pub fn open(config: &Config) -> Result<Self> {
        let loader = Loader::new(config)?;
        let (rules, graders) = (loader.sentence_rules()?, loader.graders()?);
        let (_, counter) = parts::corpus(config)?;
        let (_, extractor) = parts::extractor(config)?;
        Ok(Self { extractor, counter, rules, graders, settings: config.reward })
    }

    /// What completions earn; `question` of each is an index into `questions`.
    ///
    /// # Errors
    /// Where a part fails.
    pub fn score(&mut self, rollouts: &[Rollout], questions: &[Question]) -> Result<Scored, StepError> {
        let mut scorers = Scorers {
            extractor: self.extractor.as_mut(),
            counter: self.counter.as_mut(),
            sentence_scorer: &mut self.rules,
            graders: &mut self.graders,
        };
        score(rollouts, questions, &mut scorers, &self.settings)
    }

    /// Weights and switches of the reward.
    #[must_use]
    pub fn settings(&self) -> &RewardSettings {
        &self.settings
    }

    /// The rule's name; of several, joined with `+`.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rules.name
    }
}
