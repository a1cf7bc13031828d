//! Parts that score completions, answered by a corpus or by a recording.

use corver_reward::config::{ExtractorConfig, Problems, Resolve, RulesConfig};
use corver_settings::Settings;

use crate::args::RecordingArgs;
use crate::recording::{self, Answers};

/// Parts that score completions.
pub struct ScoringConfig {
    /// Triplet extractor.
    pub extractor: ExtractorConfig,
    /// Rules of sentences and of completions.
    pub rules: RulesConfig,
    /// Corpus and capabilities that answer the rules.
    pub answers: Answers,
}

impl ScoringConfig {
    /// Resolves every part; with --replay neither corpus nor verifiers are needed.
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

/// Parts that score completions which may bring their triplets.
pub struct GivenConfig {
    /// Triplet extractor. `None`: the completions have their triplets.
    pub extractor: Option<ExtractorConfig>,
    /// Rules of sentences and of completions.
    pub rules: RulesConfig,
    /// Corpus and capabilities that answer the rules.
    pub answers: Answers,
}

impl GivenConfig {
    /// Resolves the parts that neither given triplets nor a recording makes unnecessary.
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
