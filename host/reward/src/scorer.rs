//! The reward of completions, with its parts opened once.

use anyhow::{Context, Result};
use corver_core::{
    Backends, Count, CreditKind, Extractor, GivenTriplets, Graders, Query, Question,
    RewardSettings, Rollout, Scored, Scorers, SentenceScorer as _, StepError, TextSettings, score,
};
use corver_corpus::MatchPassage;
use corver_settings::{CheckSettings, Settings};

use crate::config::{BackendsConfig, CorpusConfig, RulesConfig};
use crate::parts::{self, LoadedRule, Loader, OpenedExtractor, SentenceRules};
use crate::{CorpusPassages, RewardConfig};

/// Extractor, corpus, rules and graders of a configuration. It scores completions, and checks texts
/// (see [`crate::check`]).
pub struct Scorer {
    /// `None`: every text comes with its triplets.
    pub(crate) extractor: Option<OpenedExtractor>,
    /// True if the extractor reads sentences of the demo's world alone.
    pub(crate) is_demo_extractor: bool,
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
        let RewardConfig { extractor, corpus, backends, rules } = config;
        let opened = parts::open_extractor(extractor)?;
        let is_demo_extractor = extractor.is_demo_model();
        let scorer = Self::open_without_extractor(corpus, backends, rules, settings)?;
        Ok(Self { extractor: Some(opened), is_demo_extractor, ..scorer })
    }

    /// Opens all parts but the extractor, for texts that come with their triplets.
    ///
    /// # Errors
    /// If a part is not usable.
    pub fn open_without_extractor(
        corpus: &CorpusConfig,
        backends: &BackendsConfig,
        rules_config: &RulesConfig,
        settings: &Settings,
    ) -> Result<Self> {
        let loader = Loader::new(rules_config)?;
        let rules = loader.sentence_rules()?;
        let graders = loader.graders()?;
        let (_, backends) = parts::open_backends(corpus, backends)?;
        parts::check_granted(&backends, &rules, &graders)?;
        Ok(Self {
            extractor: None,
            is_demo_extractor: false,
            backends,
            rules,
            passages: CorpusPassages::new(corpus)?,
            check: settings.check,
            graders,
            settings: settings.reward,
        })
    }

    /// Scores completions with the triplets `given`, or with the extractor's; `question` of each
    /// rollout is an index into `questions`.
    ///
    /// # Errors
    /// If a part fails, or a sentence has neither given triplets nor an extractor.
    pub fn score(
        &mut self,
        rollouts: &[Rollout],
        questions: &[Question],
        given: Option<&GivenTriplets>,
    ) -> Result<Scored, StepError> {
        let mut triplets = given.cloned().unwrap_or_default();
        let extractor: &mut dyn Extractor = match &mut self.extractor {
            Some(extractor) if given.is_none() => extractor,
            _ => &mut triplets,
        };
        let mut scorers = Scorers {
            extractor,
            backends: &mut self.backends,
            sentence_scorer: &mut self.rules,
            graders: &mut self.graders,
        };
        score(rollouts, questions, &mut scorers, &self.settings)
    }

    /// Returns the settings that decide how a text that is checked is read.
    #[must_use]
    pub fn checked_text(&self) -> TextSettings {
        TextSettings { sentences: self.check.sentences, ..self.settings.text() }
    }

    /// True if an index is on this machine, so that passages can be shown.
    #[must_use]
    pub fn has_passages(&self) -> bool {
        !self.passages.is_empty()
    }

    /// Counts the matches of a query.
    ///
    /// # Errors
    /// If the corpus fails.
    pub fn count(&mut self, query: &Query) -> Result<Count> {
        let counts = self.backends.count(std::slice::from_ref(query));
        let counts = counts.map_err(anyhow::Error::from_boxed).context("counting")?;
        Ok(counts.into_iter().next().expect("one count for each query"))
    }

    /// Finds up to `limit` passages that match the clauses.
    ///
    /// # Errors
    /// If every index is on a server, or an index is damaged.
    pub fn find_passages(&self, all_of: &[Vec<String>], limit: usize) -> Result<Vec<MatchPassage>> {
        self.passages.find(all_of, limit)
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

    /// Returns the identity of each sentence rule.
    #[must_use]
    pub fn loaded_rules(&self) -> &[LoadedRule] {
        &self.rules.loaded
    }
}
