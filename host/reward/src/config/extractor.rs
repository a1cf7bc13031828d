//! Configuration of the triplet extractor.

use std::path::{Path, PathBuf};

use corver_core::NameExtractor;
use corver_data::hub;
use corver_settings::{DEMO, Device, ExtractKind, ReplyGrammar, Settings};
use serde_json::{Map, Value};

use super::{CorpusConfig, DemoOr, DemoOrPath, Problems, Resolve, resolve_hub_path};

/// Source of triplets.
#[derive(Debug, Clone)]
pub enum ExtractorConfig {
    /// Names, titles and numbers of the sentence.
    Names(NameExtractor),
    /// A language model.
    Model(Box<ModelExtractorConfig>),
}

/// Model and prompt of the triplet extractor.
#[derive(Debug, Clone)]
pub struct ModelExtractorConfig {
    /// Folder of the model.
    pub model: DemoOrPath,
    /// File of the prompt. `None`: the prompt in the model's folder.
    pub prompt: Option<PathBuf>,
    /// True if the prompt is rendered with the model's chat template.
    pub chat: bool,
    /// Variables of the chat template by name.
    pub chat_variables: Map<String, Value>,
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
        let has_variables = !section.chat_variables.is_empty();
        if section.kind == ExtractKind::Names {
            let is_own = section.model.as_deref().is_some_and(|model| model != DEMO);
            for (key, is_set) in [
                ("extract.model", is_own),
                ("extract.prompt", section.prompt.is_some()),
                ("extract.chat_variables", has_variables),
            ] {
                if is_set {
                    problems.add(key, "set, but `extract.kind = \"names\"` uses no model");
                    return None;
                }
            }
            let Some(extractor) = NameExtractor::new(settings.reward.language) else {
                let problem = "names, which needs a language with capitals; reward.language is zh";
                problems.add("extract.kind", problem);
                return None;
            };
            return Some(Self::Names(extractor));
        }
        problems.make_absolute("extract.prompt", &mut section.prompt);
        if let Some(prompt) = &section.prompt {
            problems.require_path("extract.prompt", prompt);
        }
        if has_variables && section.prompt.is_none() {
            problems.add("extract.chat_variables", "set, but `extract.prompt` is not");
        }
        if has_variables && !section.chat {
            problems.add("extract.chat_variables", "set, but `extract.chat` is false");
        }
        let text =
            problems.required("extract.model", section.model.as_mut(), "--extractor DIR|NAME")?;
        let model =
            problems.record("extract.model", resolve_hub_path(hub::RepoKind::Model, text))?;
        *text = model.to_setting(|path| path.display().to_string());
        Some(Self::Model(Box::new(ModelExtractorConfig {
            model,
            prompt: section.prompt.clone(),
            chat: section.chat,
            chat_variables: section.chat_variables.clone(),
            grammar: section.grammar,
            settings: corver_inference::extract::ExtractorSettings {
                stop: section.stop.clone(),
                max_new_tokens: section.max_new_tokens,
                batch_size: section.batch_size,
                max_sentence_tokens: section.max_sentence_tokens,
                ..corver_inference::extract::ExtractorSettings::default()
            },
            device: section.device,
        })))
    }
}

impl ExtractorConfig {
    /// Returns the file of the prompt; `None` if the model's folder has it, or there is no model.
    #[must_use]
    pub fn prompt(&self) -> Option<&Path> {
        match self {
            Self::Names(_) => None,
            Self::Model(model) => model.prompt.as_deref(),
        }
    }

    /// True if it is the demo's model, which reads sentences of the demo's world alone.
    #[must_use]
    pub fn is_demo_model(&self) -> bool {
        matches!(self, Self::Model(model) if model.model == DemoOr::Demo)
    }

    /// Refuses the demo's extractor for another corpus: it would find no triplets, and every
    /// sentence would receive reward 0. Returns `None` if it adds a problem.
    pub fn check_corpus(&self, corpus: &CorpusConfig, problems: &mut Problems) -> Option<()> {
        if self.is_demo_model() && corpus.sources.iter().any(|source| *source != DemoOr::Demo) {
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
