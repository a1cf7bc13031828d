//! Opening a model's folder: tokenizer, classes and session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::onnx::{Device, RuntimeLibrary, Session, TensorElementType, session};
use corver_pretrained::{
    PretrainedError, check_shape, check_vocabulary, read_tokenizer, read_weights, weight_shapes,
};

use crate::nli::config::{ClassLabels, Config, Deberta};
use crate::nli::encode::Encoder;
use crate::nli::error::invalid_model;
use crate::nli::graph::{self, T5Shape};
use crate::nli::{NliError, NliSettings, Result};

/// Longest pair for a DeBERTa, tokens: `model_max_length` of its tokenizer.
const DEBERTA_MAX_TOKENS: usize = 512;
/// Longest pair for HHEM, tokens. Its published code has no bound, but attention over more tokens
/// takes gigabytes.
const HHEM_MAX_TOKENS: usize = 4096;

/// Tokens of a batch on the processor, padding included: larger batches do not fit its caches.
const CPU_BATCH_TOKENS: usize = 1024;
/// Tokens of a batch on a GPU, padding included.
const GPU_BATCH_TOKENS: usize = 16_384;

/// A loaded model with its tokenizer.
pub(crate) struct LoadedNli {
    pub(crate) session: Session,
    pub(crate) encoder: Encoder,
    pub(crate) labels: ClassLabels,
    pub(crate) max_batch_tokens: usize,
}

pub(crate) fn open(
    folder: &Path,
    settings: &NliSettings,
    runtime: &RuntimeLibrary,
) -> Result<LoadedNli> {
    if let Some(problem) = corver_settings::check("backends.nli", settings).into_iter().next() {
        return Err(problem.into());
    }
    let path = folder.join("config.json");
    if !path.exists() {
        return Err(no_model(folder));
    }
    let config = Config::read(&path)?;
    let source = ModelSource::find(folder)?;
    let (encoder, labels) = encoder(folder, &config, settings.max_tokens)?;
    let gpu = crate::onnx::gpu(settings.device, runtime)?;
    let session = match source {
        ModelSource::Graph(graph) => {
            let session = session::open(&graph, gpu, runtime)?;
            check_graph(&session, labels.count, &graph)?;
            session
        }
        ModelSource::Weights => {
            let max_tokens = encoder.max_tokens();
            let (graph, vocab_size) = match &config {
                Config::Hhem => {
                    let shape = shape_of_weights(folder)?;
                    (graph::t5(shape, labels.count, max_tokens), shape.vocab_size)
                }
                Config::Deberta(shape, _) => {
                    check_sizes(folder, shape)?;
                    (graph::deberta(shape, labels.count, max_tokens), shape.vocab_size)
                }
            };
            check_vocabulary(encoder.tokenizer(), vocab_size)?;
            session::build(&graph, folder, gpu, runtime)?
        }
    };
    tracing::info!(device = %gpu.map_or(Device::Cpu, Device::Cuda), "the NLI model is loaded");
    let default = if gpu.is_some() { GPU_BATCH_TOKENS } else { CPU_BATCH_TOKENS };
    Ok(LoadedNli {
        session,
        encoder,
        labels,
        max_batch_tokens: settings.max_batch_tokens.unwrap_or(default),
    })
}

/// The source of the model's graph.
enum ModelSource {
    /// An exported graph, which contains the weights.
    Graph(PathBuf),
    /// Weights alone, for which this crate writes the graph.
    Weights,
}

impl ModelSource {
    /// Finds the source. The user has put a graph next to config.json in order to use it. One in
    /// onnx/ is part of some downloads, and slower than the one that this crate writes.
    fn find(folder: &Path) -> Result<Self> {
        let own_graph = folder.join("model.onnx");
        let downloaded_graph = folder.join("onnx/model.onnx");
        let weights = ["model.safetensors", "model.safetensors.index.json"];
        if own_graph.exists() {
            Ok(Self::Graph(own_graph))
        } else if weights.iter().any(|name| folder.join(name).exists()) {
            Ok(Self::Weights)
        } else if downloaded_graph.exists() {
            Ok(Self::Graph(downloaded_graph))
        } else {
            Err(no_model(folder))
        }
    }
}

fn encoder(
    folder: &Path,
    config: &Config,
    max_tokens: Option<usize>,
) -> Result<(Encoder, ClassLabels)> {
    let path = folder.join("tokenizer.json");
    match config {
        // The published folder of HHEM has no tokenizer.
        Config::Hhem if !path.exists() => Err(invalid_model(format!(
            "{} is missing. HHEM reads with the tokenizer of google/flan-t5-base: put its \
             tokenizer.json there",
            path.display()
        ))),
        Config::Hhem => Ok((
            Encoder::prompt(read_tokenizer(&path)?, max_tokens.unwrap_or(HHEM_MAX_TOKENS))?,
            ClassLabels::HHEM,
        )),
        Config::Deberta(_, labels) => Ok((
            Encoder::pair(read_tokenizer(&path)?, max_tokens.unwrap_or(DEBERTA_MAX_TOKENS))?,
            *labels,
        )),
    }
}

/// Compares the sizes of config.json with the weights, before a graph of these sizes is written.
fn check_sizes(folder: &Path, shape: &Deberta) -> Result<()> {
    let shapes = weight_shapes(folder)?;
    let width = shape.hidden_size;
    let embedding = "deberta.embeddings.word_embeddings.weight";
    check_shape(folder, &shapes, embedding, &[shape.vocab_size, width])?;
    let positions = [2 * shape.position_buckets, width];
    check_shape(folder, &shapes, "deberta.encoder.rel_embeddings.weight", &positions)?;
    for layer in 0..shape.num_hidden_layers {
        let name = format!("deberta.encoder.layer.{layer}.intermediate.dense.weight");
        check_shape(folder, &shapes, &name, &[shape.intermediate_size, width])?;
    }
    Ok(())
}

fn shape_of_weights(folder: &Path) -> Result<T5Shape> {
    let mut shapes = BTreeMap::new();
    read_weights(folder, |_, file| {
        shapes.extend(file.iter().map(|(name, view)| (name.to_owned(), view.shape().to_vec())));
        Ok::<_, PretrainedError>(())
    })?;
    T5Shape::from_weights(&shapes).map_err(|name| {
        let got = shapes
            .get(&name)
            .map_or("no such weight".to_owned(), |shape| format!("shape {shape:?}"));
        malformed(folder, format!("`{name}` as the encoder of flan-t5 has it"), got)
    })
}

/// Checks that a graph is as Optimum exports it: inputs `input_ids` and `attention_mask` `[B, N]`,
/// output `logits` `[B, C]`, or `[B, N, C]` for all tokens.
fn check_graph(session: &Session, classes: usize, path: &Path) -> Result<()> {
    let mut names: Vec<&str> = session.inputs().iter().map(|input| input.name()).collect();
    names.sort_unstable();
    if names != ["attention_mask", "input_ids"] {
        return Err(malformed(path, "inputs input_ids and attention_mask alone", names.join(", ")));
    }
    if let Some(input) =
        session.inputs().iter().find(|i| i.dtype().tensor_type() != Some(TensorElementType::Int64))
    {
        return Err(malformed(path, "64-bit integers as inputs", input.dtype().to_string()));
    }
    let Some(logits) = session.outputs().iter().find(|output| output.name() == "logits") else {
        let outputs: Vec<&str> = session.outputs().iter().map(|output| output.name()).collect();
        return Err(malformed(path, "an output logits", outputs.join(", ")));
    };
    let shape = logits.dtype().tensor_shape().map(|shape| shape.to_vec()).unwrap_or_default();
    match shape.as_slice() {
        [_, last] | [_, _, last] if *last < 0 || *last == classes as i64 => Ok(()),
        _ => Err(malformed(
            path,
            format!("logits of {classes} classes for a pair or for its tokens"),
            format!("{shape:?}"),
        )),
    }
}

fn malformed(path: &Path, expected: impl Into<String>, got: String) -> NliError {
    PretrainedError::malformed(path, expected.into(), got).into()
}

fn no_model(folder: &Path) -> NliError {
    invalid_model(format!(
        "{}: no NLI model here. It is a Hugging Face folder with config.json, tokenizer.json, and \
         model.safetensors or model.onnx",
        folder.display()
    ))
}
