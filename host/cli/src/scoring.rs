//! Configuration of the parts that score completions.

use corver_reward::config::{ExtractorConfig, Problems, Resolve, RulesConfig};
use corver_settings::Settings;

use crate::args::RecordingArgs;
use crate::recording::{self, Answers};

/// Parts that score completions.
pub struct ScoringConfig {
    /// Extractor of the sentences' triplets.
    pub extractor: ExtractorConfig,
    /// Sentence rules and response rules.
    pub rules: RulesConfig,
    /// Corpus and capabilities that answer the rules.
    pub answers: Answers,
}

impl ScoringConfig {
    /// Resolves every part; with --replay neither corpus nor backends are needed.
    pub fn resolve(
        recording: &RecordingArgs,
        settings: &mut Settings,
        problems: &mut Problems,
    ) -> Option<Self> {
        let extractor = ExtractorConfig::resolve(settings, problems);
        let answers = recording::resolve(recording, settings, problems);
        let rules = RulesConfig::resolve(settings, problems);
        let (extractor, answers) = (extractor?, answers?);
        if let Some((corpus, _)) = &answers {
            extractor.check_corpus(corpus, problems)?;
        }
        Some(Self { extractor, rules: rules?, answers })
    }
}

/// Parts that score completions from a file, which may have triplets.
pub struct GivenConfig {
    /// Extractor of the sentences' triplets. `None`: the file has triplets.
    pub extractor: Option<ExtractorConfig>,
    /// Sentence rules and response rules.
    pub rules: RulesConfig,
    /// Corpus and capabilities that answer the rules.
    pub answers: Answers,
}

impl GivenConfig {
    /// Resolves the parts that are needed: no extractor if there are triplets, and neither corpus
    /// nor capabilities with --replay.
    pub fn resolve(
        has_triplets: bool,
        recording: &RecordingArgs,
        settings: &mut Settings,
        problems: &mut Problems,
    ) -> Option<Self> {
        if !has_triplets {
            let ScoringConfig { extractor, rules, answers } =
                ScoringConfig::resolve(recording, settings, problems)?;
            return Some(Self { extractor: Some(extractor), rules, answers });
        }
        let rules = RulesConfig::resolve(settings, problems);
        let answers = recording::resolve(recording, settings, problems);
        Some(Self { extractor: None, rules: rules?, answers: answers? })
    }
}
