//! A model's folder: its files ─▶ what is needed to answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::onnx::{Device, RuntimeLibrary, Session, TensorElementType, session};
use corver_pretrained::{PretrainedError, read_tokenizer, read_weights};

use crate::nli::config::{Config, Labels};
use crate::nli::encode::Encoder;
use crate::nli::error::invalid_model;
use crate::nli::graph::{self, T5};
use crate::nli::{NliError, NliSettings, Result};

/// `model_max_length` of DeBERTa's tokenizer.
const MOST_OF_DEBERTA: usize = 512;
/// HHEM's published code has no bound; attention over more than this takes gigabytes.
const MOST_OF_HHEM: usize = 4096;

/// Tokens that are run together, on a processor and on a GPU.
const BATCH_OF_CPU: usize = 1024;
const BATCH_OF_GPU: usize = 16_384;

/// A folder that has been read, and its model loaded.
pub(crate) struct Opened {
    pub(crate) session: Session,
    pub(crate) encoder: Encoder,
    pub(crate) labels: Labels,
    pub(crate) max_batch_tokens: usize,
}

pub(crate) fn open(
    folder: &Path,
    settings: &NliSettings,
    runtime: &RuntimeLibrary,
) -> Result<Opened> {
    if let Some(problem) = corver_settings::check("verify.nli", settings).into_iter().next() {
        return Err(problem.into());
    }
    let path = folder.join("config.json");
    if !path.exists() {
        return Err(no_model(folder));
    }
    let config = Config::read(&path)?;
    let form = Form::of(folder)?;
    let (encoder, labels) = encoder(folder, &config, settings.max_tokens)?;
    let gpu = crate::onnx::gpu(settings.device, runtime)?;
    let session = match form {
        Form::Graph(graph) => {
            let session = session::open(&graph, gpu, runtime)?;
            check_graph(&session, labels.count, &graph)?;
            session
        }
        Form::Weights => {
            let most = encoder.max_tokens();
            let (graph, vocab_size) = match &config {
                Config::Hhem => {
                    let shape = shape_of_weights(folder)?;
                    (graph::t5(shape, labels.count, most), shape.vocab_size)
                }
                Config::Deberta(shape, _) => {
                    (graph::deberta(shape, labels.count, most), shape.vocab_size)
                }
            };
            if encoder.vocab_size() > vocab_size {
                return Err(malformed(
                    &folder.join("tokenizer.json"),
                    format!("at most the {vocab_size} tokens of the model"),
                    encoder.vocab_size().to_string(),
                ));
            }
            session::build(&graph, folder, gpu, runtime)?
        }
    };
    tracing::info!(device = %gpu.map_or(Device::Cpu, Device::Cuda), "the NLI model is loaded");
    let fitting = if gpu.is_some() { BATCH_OF_GPU } else { BATCH_OF_CPU };
    Ok(Opened {
        session,
        encoder,
        labels,
        max_batch_tokens: settings.max_batch_tokens.unwrap_or(fitting),
    })
}

/// Where the model's arithmetic comes from.
enum Form {
    /// A graph that somebody exported.
    Graph(PathBuf),
    /// Weights alone; the graph is written here.
    Weights,
}

impl Form {
    /// A graph beside config.json was put there to be used. One in onnx/ comes with every download,
    /// and the one written here is faster.
    fn of(folder: &Path) -> Result<Self> {
        let [beside, below] = ["model.onnx", "onnx/model.onnx"].map(|name| folder.join(name));
        let weights = ["model.safetensors", "model.safetensors.index.json"];
        if beside.exists() {
            Ok(Self::Graph(beside))
        } else if weights.iter().any(|name| folder.join(name).exists()) {
            Ok(Self::Weights)
        } else if below.exists() {
            Ok(Self::Graph(below))
        } else {
            Err(no_model(folder))
        }
    }
}

fn encoder(folder: &Path, config: &Config, max_tokens: Option<usize>) -> Result<(Encoder, Labels)> {
    let path = folder.join("tokenizer.json");
    match config {
        // The published folder of HHEM has no tokenizer.
        Config::Hhem if !path.exists() => Err(invalid_model(format!(
            "{} is missing. HHEM reads with the tokenizer of google/flan-t5-base: put its \
             tokenizer.json there",
            path.display()
        ))),
        Config::Hhem => Ok((
            Encoder::prompt(read_tokenizer(&path)?, max_tokens.unwrap_or(MOST_OF_HHEM))?,
            Labels::HHEM,
        )),
        Config::Deberta(_, labels) => Ok((
            Encoder::pair(read_tokenizer(&path)?, max_tokens.unwrap_or(MOST_OF_DEBERTA))?,
            *labels,
        )),
    }
}

fn shape_of_weights(folder: &Path) -> Result<T5> {
    let mut shapes = BTreeMap::new();
    read_weights(folder, |_, file| {
        shapes.extend(file.iter().map(|(name, view)| (name.to_owned(), view.shape().to_vec())));
        Ok::<_, PretrainedError>(())
    })?;
    T5::of(&shapes).map_err(|name| {
        let got = shapes
            .get(&name)
            .map_or("no such weight".to_owned(), |shape| format!("shape {shape:?}"));
        malformed(folder, format!("`{name}` as the encoder of flan-t5 has it"), got)
    })
}

/// What Optimum exports: `input_ids` and `attention_mask` `[B, N]`, `logits` `[B, C]`, or `[B, N,
/// C]` of every token.
fn check_graph(session: &Session, classes: usize, path: &Path) -> Result<()> {
    let wrong = |expected: &str, got: String| malformed(path, expected.to_owned(), got);
    let mut names: Vec<&str> = session.inputs().iter().map(|input| input.name()).collect();
    names.sort_unstable();
    if names != ["attention_mask", "input_ids"] {
        return Err(wrong("inputs input_ids and attention_mask alone", names.join(", ")));
    }
    if let Some(input) =
        session.inputs().iter().find(|i| i.dtype().tensor_type() != Some(TensorElementType::Int64))
    {
        return Err(wrong("64-bit integers as inputs", input.dtype().to_string()));
    }
    let Some(logits) = session.outputs().iter().find(|output| output.name() == "logits") else {
        let outputs: Vec<&str> = session.outputs().iter().map(|output| output.name()).collect();
        return Err(wrong("an output logits", outputs.join(", ")));
    };
    let shape = logits.dtype().tensor_shape().map(|shape| shape.to_vec()).unwrap_or_default();
    let fits = |last: i64| last < 0 || last == classes as i64;
    match shape.as_slice() {
        [_, last] | [_, _, last] if fits(*last) => Ok(()),
        _ => Err(wrong(
            &format!("logits of {classes} classes for a pair or for its tokens"),
            format!("{shape:?}"),
        )),
    }
}

fn malformed(path: &Path, expected: String, got: String) -> NliError {
    PretrainedError::malformed(path, expected, got).into()
}

fn no_model(folder: &Path) -> NliError {
    invalid_model(format!(
        "{}: no NLI model here. It is a Hugging Face folder with config.json, tokenizer.json, and \
         model.safetensors or model.onnx",
        folder.display()
    ))
}
