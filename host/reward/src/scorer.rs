//! The reward of completions, with its parts opened once.

use anyhow::Result;
use corver_core::{
    Backends, CreditKind, Graders, Question, RewardSettings, Rollout, Scored, Scorers,
    SentenceScorer as _, StepError, score,
};
use corver_inference::extract::OnnxExtractor;
use corver_settings::{CheckSettings, Settings};

use crate::parts::{self, Loader, SentenceRules};
use crate::{CorpusPassages, RewardConfig};

/// Extractor, corpus, rules and graders of a configuration. It scores completions, and checks texts
/// (see [`crate::check`]).
pub struct Scorer {
    pub(crate) extractor: OnnxExtractor,
    pub(crate) backends: Backends<'static>,
    pub(crate) rules: SentenceRules,
    pub(crate) passages: CorpusPassages,
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
        let rules = loader.sentence_rules()?;
        let graders = loader.graders()?;
        let (_, backends) = parts::open_backends(&config.corpus, &config.backends)?;
        parts::check_granted(&backends, &rules, &graders)?;
        let (_, extractor) = parts::open_extractor(&config.extractor)?;
        Ok(Self {
            extractor,
            backends,
            rules,
            passages: CorpusPassages::new(&config.corpus)?,
            check: settings.check,
            graders,
            settings: settings.reward,
        })
    }

    /// Scores completions; `question` of each rollout is an index into `questions`.
    ///
    /// # Errors
    /// If a part fails.
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

    /// True if an index is on this machine, so that passages can be shown.
    #[must_use]
    pub fn has_passages(&self) -> bool {
        !self.passages.is_empty()
    }

    /// Returns the weights and switches of the reward.
    #[must_use]
    pub fn settings(&self) -> &RewardSettings {
        &self.settings
    }

    /// Returns the kind of credit that the sentence rule uses.
    #[must_use]
    pub fn credit(&self) -> CreditKind {
        self.rules.credit()
    }

    /// Returns the name of the sentence rule; several names are joined with `+`.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rules.name
    }
}
