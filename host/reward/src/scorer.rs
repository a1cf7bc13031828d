//! The reward, opened once: completions → what they earn. [`crate::check`] is the other thing that
//! it is good for.

use anyhow::Result;
use corver_core::{
    Backends, Graders, Question, RewardSettings, Rollout, Scored, Scorers, StepError, score,
};
use corver_inference::extract::Extractor;
use corver_settings::{CheckSettings, Settings};

use crate::parts::{self, Loader, SentenceRules};
use crate::{Passages, RewardConfig};

/// Extractor, corpus, rules and graders of a configuration.
pub struct Scorer {
    pub(crate) extractor: Extractor,
    pub(crate) backends: Backends<'static>,
    pub(crate) rules: SentenceRules,
    pub(crate) passages: Passages,
    pub(crate) check: CheckSettings,
    graders: Graders,
    settings: RewardSettings,
}

impl Scorer {
    /// Opens all parts of the reward; `settings` are those that they were resolved from.
    ///
    /// # Errors
    /// If a part is not usable.
    pub fn open(config: &RewardConfig, settings: &Settings) -> Result<Self> {
        let loader = Loader::new(&config.rules)?;
        let (rules, graders) = (loader.sentence_rules()?, loader.graders()?);
        let (_, backends) = parts::backends(&config.corpus, &config.verifiers)?;
        parts::check_granted(&backends, &rules, &graders)?;
        let (_, extractor) = parts::extractor(&config.extractor)?;
        let passages = Passages::new(&config.corpus)?;
        let (check, settings) = (settings.check, settings.reward);
        Ok(Self { extractor, backends, rules, passages, check, graders, settings })
    }

    /// What completions earn; `question` of each is an index into `questions`.
    ///
    /// # Errors
    /// Where a part fails.
    pub fn score(
        &mut self,
        rollouts: &[Rollout],
        questions: &[Question],
    ) -> Result<Scored, StepError> {
        let mut scorers = Scorers {
            extractor: &mut self.extractor,
            backends: &mut self.backends,
            sentence_scorer: &mut self.rules,
            graders: &mut self.graders,
        };
        score(rollouts, questions, &mut scorers, &self.settings)
    }

    /// Whether an index lies on this machine, so that there are passages to show.
    #[must_use]
    pub fn has_text(&self) -> bool {
        !self.passages.is_empty()
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
