//! An extractor's folder: a Hugging Face model, or an exported graph with its tokenizer.

use std::path::Path;
use std::process::Command;

use corver_pretrained::{
    ChatTemplate, ModelConfig, PretrainedError, Switches, read_tokenizer, stop_tokens,
};

use crate::extract::decoder::{Continued, Decoder, Exported};
use crate::extract::prompt::Prompt;
use crate::extract::settings::{Limits, Settings};
use crate::extract::{Device, ExtractError, Result, RuntimeLibrary};

/// The place of the sentence in a prompt.
const PLACE: &str = "{sentence}";

/// What a run says about its extractor.
#[derive(Debug)]
pub struct Options {
    /// Instead of what extractor.toml says.
    pub settings: Settings,
    /// A prompt with the place of the sentence in it, `{sentence}`, instead of extractor.toml's.
    pub prompt: Option<String>,
    /// That prompt is a user's message: it goes through the folder's chat template, where there is
    /// one.
    pub chat: bool,
    /// Starts the process that renders the chat template, which calls
    /// [`corver_pretrained::render_as_child`]. Without, this one renders it.
    pub renderer: Option<Command>,
}

impl Default for Options {
    fn default() -> Self {
        Self { settings: Settings::default(), prompt: None, chat: true, renderer: None }
    }
}

/// A folder that has been read, and its model loaded.
pub(crate) struct Opened {
    pub(crate) decoder: Box<dyn Decoder>,
    pub(crate) prompt: Prompt,
    /// Ids that end a reply.
    pub(crate) stop: Vec<u32>,
    pub(crate) limits: Limits,
}

pub(crate) fn open(
    folder: &Path,
    options: Options,
    device: Device,
    runtime: &RuntimeLibrary,
) -> Result<Opened> {
    let toml = folder.join("extractor.toml");
    let in_folder = if toml.exists() { Settings::read(&toml)? } else { Settings::default() };
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
    let tokenizer_file = folder.join("tokenizer.json");
    let tokenizer = read_tokenizer(&tokenizer_file)?;
    let stop = match &settings.stop {
        None => stop_tokens(&tokenizer, folder)?,
        Some(stop) => {
            let mut ids = Vec::with_capacity(stop.len());
            for token in stop {
                ids.push(tokenizer.token_to_id(token).ok_or_else(|| {
                    let expected = format!("the stop token `{token}`");
                    PretrainedError::malformed(&tokenizer_file, expected, "no such token")
                })?);
            }
            ids
        }
    };
    let (before, after) = around(folder, options, &settings)?;
    let vocabulary = tokenizer.get_vocab_size(true);
    let prompt = Prompt::new(tokenizer, &before, after, folder)?;
    let shared = &prompt.shared;
    let gpu = crate::onnx::gpu(device, runtime)?;
    let (decoder, limits): (Box<dyn Decoder>, _) = if graph.exists() {
        let decoder = Exported::open(&graph, &settings, shared, vocabulary, gpu, runtime)?;
        (Box::new(decoder), settings.limits(usize::MAX))
    } else {
        let model = ModelConfig::read(&config)?;
        if vocabulary > model.vocab_size {
            let expected = format!("a vocab_size for the {vocabulary} tokens of tokenizer.json");
            return Err(PretrainedError::malformed(&config, expected, model.vocab_size).into());
        }
        let Some(room) = model.max_positions.checked_sub(shared.len()).filter(|room| *room > 1)
        else {
            return Err(ExtractError::InvalidPrompt(format!(
                "the extractor's prompt has {} tokens, and its model has {} positions",
                shared.len(),
                model.max_positions
            )));
        };
        let limits = settings.limits(room);
        let decoder = Continued::open(folder, &model, shared, limits.max_own_tokens, gpu, runtime)?;
        (Box::new(decoder), limits)
    };
    tracing::info!(device = %gpu.map_or(Device::Cpu, Device::Cuda), "the extractor is loaded");
    Ok(Opened { decoder, prompt, stop, limits })
}

/// The model's input before and after the sentence.
fn around(folder: &Path, options: Options, settings: &Settings) -> Result<(String, String)> {
    let Some(text) = options.prompt else {
        return match &settings.prompt_prefix {
            Some(before) => {
                Ok((before.clone(), settings.prompt_suffix.clone().unwrap_or_default()))
            }
            None => Err(ExtractError::InvalidPrompt(format!(
                "the extractor {} has no prompt: set extract.prompt to a file with the \
                 instructions and {PLACE} where the sentence goes, or prompt_prefix in its \
                 extractor.toml",
                folder.display()
            ))),
        };
    };
    let places = text.matches(PLACE).count();
    if places != 1 {
        return Err(wrong_places(places));
    }
    let chat = if options.chat {
        ChatTemplate::open(folder, options.renderer, Switches::new())?
    } else {
        None
    };
    let text = chat.map_or(Ok(text.clone()), |chat| chat.render(None, &text))?;
    match text.split_once(PLACE) {
        Some((before, after)) => Ok((before.to_owned(), after.to_owned())),
        None => Err(wrong_places(0)),
    }
}

/// Returns the error of a prompt, as given or as the chat template has it, with so many places.
fn wrong_places(places: usize) -> ExtractError {
    ExtractError::InvalidPrompt(format!(
        "the extractor's prompt has {places} places {PLACE}; it needs one"
    ))
}
