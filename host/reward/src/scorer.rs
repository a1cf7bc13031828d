//! The reward, opened once: completions → what they earn. [`crate::check`] is the other thing that it is good for.

use anyhow::Result;
use corver_core::{Graders, Question, RewardSettings, Rollout, Scored, Scorers, StepError, Verifiers, score};
use corver_extract::Extractor;

use crate::check::CheckSettings;
use crate::config::DemoOr;
use crate::parts::{self, Loader, SentenceRules};
use crate::{Config, Passages};

/// Extractor, corpus, rules and graders of a configuration.
pub struct Scorer {
    pub(crate) extractor: Extractor,
    pub(crate) verifiers: Verifiers<'static>,
    pub(crate) rules: SentenceRules,
    pub(crate) passages: Passages,
    pub(crate) check: CheckSettings,
    graders: Graders,
    settings: RewardSettings,
}

impl Scorer {
    /// Opens all that `config` names; the policy is not needed.
    ///
    /// # Errors
    /// Where something is not named, not there or not usable.
    pub fn open(config: &Config) -> Result<Self> {
        let own_index = config.sources.iter().any(|source| matches!(source, DemoOr::Own(_)));
        if own_index && config.extractor == Some(DemoOr::Demo) {
            tracing::warn!("the extractor is the demo's, which reads the demo's sentences alone: set `extract.model`");
        }
        let loader = Loader::new(config)?;
        let (rules, graders) = (loader.sentence_rules()?, loader.graders()?);
        let (_, verifiers) = parts::verifiers(config)?;
        parts::check_granted(&verifiers, &rules, &graders)?;
        let (_, extractor) = parts::extractor(config)?;
        let passages = Passages::new(config)?;
        Ok(Self { extractor, verifiers, rules, passages, check: config.check, graders, settings: config.reward })
    }

    /// What completions earn; `question` of each is an index into `questions`.
    ///
    /// # Errors
    /// Where a part fails.
    pub fn score(&mut self, rollouts: &[Rollout], questions: &[Question]) -> Result<Scored, StepError> {
        let mut scorers = Scorers {
            extractor: &mut self.extractor,
            verifiers: &mut self.verifiers,
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
