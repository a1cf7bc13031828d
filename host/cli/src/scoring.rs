//! Configuration of the parts that score completions.

use anyhow::Result;
use corver_reward::config::{ExtractorConfig, Grader, Problems, Resolve, RulesConfig};
use corver_reward::parts::OpenedExtractor;
use corver_reward::plugin;
use corver_runs::fingerprint;
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
        let extractor = extractor?;
        let answers = answers?;
        if let Some((corpus, _)) = &answers {
            extractor.check_corpus(corpus, problems)?;
        }
        Some(Self { extractor, rules: rules?, answers })
    }
}

/// Returns the fingerprint of an extractor's folder; `names` if there is no model.
pub fn extractor_fingerprint(extractor: &OpenedExtractor) -> Result<String> {
    match extractor {
        OpenedExtractor::Names(_) => Ok("names".to_owned()),
        OpenedExtractor::Model { folder, .. } => Ok(fingerprint(folder)?),
    }
}

/// Returns the BLAKE3 hash of a response rule's file; `built in` if there is none.
pub fn grader_fingerprint(grader: Option<&Grader>) -> Result<String> {
    match grader {
        None => Ok("built in".to_owned()),
        Some(grader) => Ok(fingerprint(&plugin::find(&grader.plugin)?.path)?),
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
