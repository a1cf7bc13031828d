//! An extractor's folder: a Hugging Face model, or an exported graph with its tokenizer.

use std::path::Path;
use std::process::Command;

use corver_core::ReplyGrammar;
use corver_pretrained::{
    ChatTemplate, ModelConfig, PretrainedError, StopTokens, Switches, check_vocabulary,
    read_tokenizer,
};
use tokenizers::Tokenizer;

use crate::extract::decoder::{Continued, Decoder, Exported};
use crate::extract::prompt::ExtractPrompt;
use crate::extract::settings::{DecodeLimits, ExtractorSettings};
use crate::extract::{Device, ExtractError, Result, RuntimeLibrary};

/// Default batch size (the paper's).
const BATCH_SIZE: usize = 32;
/// Default batch size of a Hugging Face folder on a GPU. There a step takes the time of its launches,
/// not of its rows.
const GPU_BATCH_SIZE: usize = 256;
/// Marker of the sentence in a prompt.
const SLOT: &str = "{sentence}";

/// Options of a run for its extractor.
#[derive(Debug)]
pub struct ExtractOptions {
    /// Settings that override those of extractor.toml.
    pub settings: ExtractorSettings,
    /// Prompt with the marker `{sentence}`. `None`: extractor.toml's prefix and suffix.
    pub prompt: Option<String>,
    /// True if `prompt` is a user message: the folder's chat template, if any, is applied to it.
    pub chat: bool,
    /// Variables of the chat template by name.
    pub switches: Switches,
    /// Grammar of the replies.
    pub grammar: ReplyGrammar,
    /// Command of the process that renders the chat template, by
    /// [`corver_pretrained::render_as_child`]. `None`: this process renders it.
    pub renderer: Option<Command>,
}

impl Default for ExtractOptions {
    fn default() -> Self {
        Self {
            settings: ExtractorSettings::default(),
            prompt: None,
            chat: true,
            switches: Switches::new(),
            grammar: ReplyGrammar::default(),
            renderer: None,
        }
    }
}

/// A loaded model with its prompt.
pub(crate) struct LoadedExtractor {
    pub(crate) decoder: Box<dyn Decoder>,
    pub(crate) prompt: ExtractPrompt,
    /// Token ids that end a reply.
    pub(crate) stop: Vec<u32>,
    pub(crate) limits: DecodeLimits,
    /// Grammar of the replies.
    pub(crate) grammar: ReplyGrammar,
}

pub(crate) fn open(
    folder: &Path,
    options: ExtractOptions,
    device: Device,
    runtime: &RuntimeLibrary,
) -> Result<LoadedExtractor> {
    let toml = folder.join("extractor.toml");
    let in_folder =
        if toml.exists() { ExtractorSettings::read(&toml)? } else { ExtractorSettings::default() };
    let settings = options.settings.clone().or(in_folder);
    let graph = folder.join("model.onnx");
    let config = folder.join("config.json");
    if !graph.exists() && !config.exists() {
        return Err(PretrainedError::InvalidModel(format!(
            "{}: no model here. An extractor is a Hugging Face folder (config.json, \
             model.safetensors, tokenizer.json), or one with model.onnx, tokenizer.json and \
             extractor.toml",
            folder.display()
        ))
        .into());
    }
    let tokenizer = read_tokenizer(&folder.join("tokenizer.json"))?;
    let stop = stop_ids(&tokenizer, &settings, folder)?;
    let grammar = options.grammar;
    let (before, after) = prompt_parts(folder, options, &settings)?;
    let vocabulary = tokenizer.get_vocab_size(true);
    let prompt = ExtractPrompt::new(tokenizer, &before, after, folder)?;
    let shared = &prompt.shared;
    let gpu = crate::onnx::gpu(device, runtime)?;
    let (decoder, limits): (Box<dyn Decoder>, _) = if graph.exists() {
        let decoder = Exported::open(&graph, &settings, shared, vocabulary, gpu, runtime)?;
        (Box::new(decoder), settings.limits(usize::MAX, BATCH_SIZE))
    } else {
        let model = ModelConfig::read(&config)?;
        check_vocabulary(prompt.tokenizer(), model.vocab_size)?;
        let Some(room) = model.max_positions.checked_sub(shared.len()).filter(|room| *room > 1)
        else {
            return Err(ExtractError::InvalidPrompt(format!(
                "the extractor's prompt has {} tokens, and its model has {} positions",
                shared.len(),
                model.max_positions
            )));
        };
        let default_batch_size = if gpu.is_some() { GPU_BATCH_SIZE } else { BATCH_SIZE };
        let limits = settings.limits(room, default_batch_size);
        let decoder = Continued::open(folder, &model, shared, limits.max_own_tokens, gpu, runtime)?;
        (Box::new(decoder), limits)
    };
    tracing::info!(device = %gpu.map_or(Device::Cpu, Device::Cuda), "the extractor is loaded");
    Ok(LoadedExtractor { decoder, prompt, stop, limits, grammar })
}

/// Returns the ids of the tokens that end a reply: those of the settings, or of the model's folder.
fn stop_ids(
    tokenizer: &Tokenizer,
    settings: &ExtractorSettings,
    folder: &Path,
) -> Result<Vec<u32>> {
    let Some(tokens) = &settings.stop else { return Ok(StopTokens::read(tokenizer, folder)?.ids) };
    let mut ids = Vec::with_capacity(tokens.len());
    for token in tokens {
        let Some(id) = tokenizer.token_to_id(token) else {
            let file = folder.join("tokenizer.json");
            let expected = format!("the stop token `{token}`");
            return Err(PretrainedError::malformed(&file, expected, "no such token").into());
        };
        ids.push(id);
    }
    Ok(ids)
}

/// Returns the model's input before and after the sentence.
fn prompt_parts(
    folder: &Path,
    options: ExtractOptions,
    settings: &ExtractorSettings,
) -> Result<(String, String)> {
    let Some(text) = options.prompt else {
        return match &settings.prompt_prefix {
            Some(before) => {
                Ok((before.clone(), settings.prompt_suffix.clone().unwrap_or_default()))
            }
            None => Err(ExtractError::InvalidPrompt(format!(
                "the extractor {} has no prompt: set extract.prompt to a file with the \
                 instructions and {SLOT} where the sentence goes, or prompt_prefix in its \
                 extractor.toml",
                folder.display()
            ))),
        };
    };
    split_prompt(&text)?;
    let has_switches = !options.switches.is_empty();
    let chat = if options.chat {
        ChatTemplate::open(folder, options.renderer, options.switches)?
    } else {
        None
    };
    let rendered = match chat {
        Some(chat) => chat.render(None, &text)?,
        None if has_switches => {
            return Err(ExtractError::InvalidPrompt(format!(
                "extract.chat_variables is set, but the extractor {} has no chat template",
                folder.display()
            )));
        }
        None => text,
    };
    // The chat template may drop or change the marker.
    let (before, after) = split_prompt(&rendered)?;
    Ok((before.to_owned(), after.to_owned()))
}

/// Returns a prompt before and after its marker `{sentence}`.
///
/// # Errors
/// Fails if the prompt has no marker, or several.
pub fn split_prompt(prompt: &str) -> Result<(&str, &str)> {
    let slots = prompt.matches(SLOT).count();
    match prompt.split_once(SLOT) {
        Some(parts) if slots == 1 => Ok(parts),
        _ => Err(ExtractError::InvalidPrompt(format!(
            "the extractor's prompt has {slots} markers {SLOT}; it needs one"
        ))),
    }
}
