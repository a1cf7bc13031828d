//! Configuration of the triplet extractor.

use std::path::PathBuf;

use corver_data::hub;
use corver_settings::{Device, ReplyGrammar, Settings};

use super::{CorpusConfig, DemoOr, DemoOrPath, Problems, Resolve, resolve_hub_path};

/// Model and prompt of the triplet extractor.
#[derive(Debug, Clone)]
pub struct ExtractorConfig {
    /// Folder of the model.
    pub model: DemoOrPath,
    /// File of the prompt. `None`: the prompt in the model's folder.
    pub prompt: Option<PathBuf>,
    /// True if the prompt is rendered with the model's chat template.
    pub chat: bool,
    /// Grammar of the replies.
    pub grammar: ReplyGrammar,
    /// Settings that override those in the model's folder.
    pub settings: corver_inference::extract::ExtractorSettings,
    /// Device that the model runs on.
    pub device: Device,
}

impl Resolve for ExtractorConfig {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let section = &mut settings.extract;
        problems.make_absolute("extract.prompt", &mut section.prompt);
        if let Some(prompt) = &section.prompt {
            problems.require_path("extract.prompt", prompt);
        }
        let text =
            problems.required("extract.model", section.model.as_mut(), "--extractor DIR|NAME")?;
        let model =
            problems.record("extract.model", resolve_hub_path(hub::RepoKind::Model, text))?;
        *text = model.to_setting(|path| path.display().to_string());
        Some(Self {
            model,
            prompt: section.prompt.clone(),
            chat: section.chat,
            grammar: section.grammar,
            settings: corver_inference::extract::ExtractorSettings {
                stop: section.stop.clone(),
                max_new_tokens: section.max_new_tokens,
                batch_size: section.batch_size,
                max_sentence_tokens: section.max_sentence_tokens,
                ..corver_inference::extract::ExtractorSettings::default()
            },
            device: section.device,
        })
    }
}

impl ExtractorConfig {
    /// Refuses the demo's extractor for another corpus: it would find no triplets, and every
    /// sentence would receive reward 0. Returns `None` if it adds a problem.
    pub fn check_corpus(&self, corpus: &CorpusConfig, problems: &mut Problems) -> Option<()> {
        if self.model == DemoOr::Demo && corpus.sources.iter().any(|source| *source != DemoOr::Demo)
        {
            let remedy = "--extractor DIR|NAME names one for a corpus of your own";
            problems.add(
                "extract.model",
                format!("the demo's extractor reads the demo's sentences alone; {remedy}"),
            );
            return None;
        }
        Some(())
    }
}
