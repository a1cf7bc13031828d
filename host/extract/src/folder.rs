//! An extractor's folder: a Hugging Face model, or an exported graph with its tokenizer.

use std::path::Path;
use std::process::Command;

use corver_pretrained::{Chat, ModelConfig, Switches, read_tokenizer, stop_tokens};

use crate::decoder::{Continued, Decoder, Exported};
use crate::prompt::Prompt;
use crate::settings::{Limits, Settings};
use crate::{Device, ExtractError, Result, RuntimeLibrary};

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
        return Err(ExtractError::NoModel { folder: folder.to_owned() });
    }
    let tokenizer_file = folder.join("tokenizer.json");
    let tokenizer = read_tokenizer(&tokenizer_file)?;
    let stop = match &settings.stop {
        None => stop_tokens(&tokenizer, folder)?,
        Some(stop) => {
            let id = |token: &String| {
                tokenizer.token_to_id(token).ok_or_else(|| ExtractError::Malformed {
                    path: tokenizer_file.clone(),
                    expected: format!("the stop token `{token}`"),
                    got: "no such token".to_owned(),
                })
            };
            stop.iter().map(id).collect::<Result<_>>()?
        }
    };
    let (before, after) = around(folder, options, &settings)?;
    let vocabulary = tokenizer.get_vocab_size(true);
    let prompt = Prompt::new(tokenizer, &before, after, folder)?;
    let shared = &prompt.shared;
    let gpu = corver_onnx::gpu(device, runtime)?;
    let (decoder, limits): (Box<dyn Decoder>, _) = if graph.exists() {
        let decoder = Exported::open(&graph, &settings, shared, vocabulary, gpu, runtime)?;
        (Box::new(decoder), settings.limits(usize::MAX))
    } else {
        let model = ModelConfig::read(&config)?;
        if vocabulary > model.vocab_size {
            return Err(ExtractError::Malformed {
                path: config,
                expected: format!("a vocab_size for the {vocabulary} tokens of tokenizer.json"),
                got: model.vocab_size.to_string(),
            });
        }
        let Some(room) = model.max_positions.checked_sub(shared.len()).filter(|room| *room > 1)
        else {
            return Err(ExtractError::PromptTooLong {
                tokens: shared.len(),
                positions: model.max_positions,
            });
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
            None => Err(ExtractError::NoPrompt { folder: folder.to_owned() }),
        };
    };
    let places = text.matches(PLACE).count();
    if places != 1 {
        return Err(ExtractError::Place { places });
    }
    let chat =
        if options.chat { Chat::open(folder, options.renderer, Switches::new())? } else { None };
    let text = chat.map_or(Ok(text.clone()), |chat| chat.render(None, &text))?;
    match text.split_once(PLACE) {
        Some((before, after)) => Ok((before.to_owned(), after.to_owned())),
        None => Err(ExtractError::Place { places: 0 }),
    }
}
