//! config.json of an NLI model: its architecture, sizes and classes.

use std::collections::BTreeMap;
use std::path::Path;

use corver_pretrained::PretrainedError;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::nli::error::invalid_model;
use crate::nli::{NliError, Result};

/// The architecture of an NLI model.
#[derive(Debug)]
pub(crate) enum Config {
    /// HHEM-2.1, whose sizes follow from its weights.
    Hhem,
    /// DeBERTa-v2 or v3 with a head for sequence classification.
    Deberta(Deberta, ClassLabels),
}

/// The sizes of a DeBERTa.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Deberta {
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) layer_norm_eps: f32,
    /// Half the number of rows of the table of relative positions.
    pub(crate) position_buckets: usize,
    /// Distance from which on all positions share a row.
    #[serde(rename = "max_position_embeddings")]
    pub(crate) max_distance: usize,
}

/// Largest accepted size. Products of two sizes fit every index type.
const MAX_SIZE: usize = 1 << 24;
/// Most accepted layers.
const MAX_LAYERS: usize = 1 << 12;

/// The indices of the classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassLabels {
    pub(crate) count: usize,
    pub(crate) entail: usize,
    pub(crate) neutral: Option<usize>,
    pub(crate) contradict: Option<usize>,
}

impl ClassLabels {
    /// Classes of HHEM, the second of which is “consistent”.
    pub(crate) const HHEM: Self = Self { count: 2, entail: 1, neutral: None, contradict: None };
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = corver_files::read_text(path).map_err(PretrainedError::io("read", path))?;
        let json: Json = serde_json::from_str(&text)
            .map_err(|error| PretrainedError::malformed(path, "JSON", error))?;
        let named: Vec<&str> = json["architectures"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        match named.as_slice() {
            ["HHEMv2ForSequenceClassification"] => Ok(Self::Hhem),
            ["DebertaV2ForSequenceClassification"] => {
                Ok(Self::Deberta(deberta(&json, path)?, labels(&json, path)?))
            }
            [] => Err(unknown(path, &format!("`{}`", json["model_type"]))),
            others => Err(unknown(path, &others.join(", "))),
        }
    }
}

fn unknown(path: &Path, got: &str) -> NliError {
    invalid_model(format!(
        "{}: an NLI model of the architecture {got} is not supported; \
         HHEMv2ForSequenceClassification (vectara/hallucination_evaluation_model) and \
         DebertaV2ForSequenceClassification (such as MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli) \
         are",
        path.display()
    ))
}

/// Checks that the model is of the variant that DeBERTa-v3 uses. An absent key has the default of
/// `transformers`.
fn deberta(json: &Json, path: &Path) -> Result<Deberta> {
    let check = ConfigCheck { json, path };
    check.is("relative_attention", &[&Json::from(true)], "true")?;
    check.is("share_att_key", &[&Json::from(true)], "true")?;
    check.is("position_biased_input", &[&Json::from(false)], "false")?;
    check.is("norm_rel_ebd", &[&Json::from("layer_norm")], "layer_norm")?;
    check.is("hidden_act", &[&Json::from("gelu")], "gelu")?;
    check.is("pooler_hidden_act", &[&Json::Null, &Json::from("gelu")], "gelu")?;
    check.is("type_vocab_size", &[&Json::Null, &Json::from(0)], "0")?;
    check.is("conv_kernel_size", &[&Json::Null, &Json::from(0)], "0")?;
    check.is("embedding_size", &[&Json::Null, &json["hidden_size"]], "hidden_size")?;
    let farthest = [&Json::Null, &Json::from(-1), &json["max_position_embeddings"]];
    check.is("max_relative_positions", &farthest, "-1 or max_position_embeddings")?;
    let attention: Vec<&str> = match &json["pos_att_type"] {
        Json::String(joined) => joined.split('|').map(str::trim).collect(),
        Json::Array(parts) => parts.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    };
    if attention.len() != 2 || !["c2p", "p2c"].iter().all(|part| attention.contains(part)) {
        return Err(check.unsupported("pos_att_type", "c2p and p2c").into());
    }
    let shape: Deberta = Deberta::deserialize(json).map_err(|error| {
        PretrainedError::malformed(path, "the configuration of a DeBERTa", error)
    })?;
    for (key, size, most) in [
        ("vocab_size", shape.vocab_size, MAX_SIZE),
        ("hidden_size", shape.hidden_size, MAX_SIZE),
        ("intermediate_size", shape.intermediate_size, MAX_SIZE),
        ("max_position_embeddings", shape.max_distance, MAX_SIZE),
        ("position_buckets", shape.position_buckets, MAX_SIZE),
        ("num_hidden_layers", shape.num_hidden_layers, MAX_LAYERS),
    ] {
        if !(1..=most).contains(&size) {
            let expected = format!("`{key}` from 1 to {most}");
            return Err(PretrainedError::malformed(path, expected, size).into());
        }
    }
    if shape.num_attention_heads == 0
        || !shape.hidden_size.is_multiple_of(shape.num_attention_heads)
    {
        return Err(check.unsupported("num_attention_heads", "a divisor of hidden_size").into());
    }
    if shape.position_buckets < 2 || shape.max_distance <= shape.position_buckets / 2 + 1 {
        return Err(check
            .unsupported("position_buckets", "2 to twice max_position_embeddings")
            .into());
    }
    Ok(shape)
}

struct ConfigCheck<'a> {
    json: &'a Json,
    path: &'a Path,
}

impl ConfigCheck<'_> {
    fn is(&self, key: &'static str, known: &[&Json], expected: &'static str) -> Result<()> {
        if known.contains(&&self.json[key]) {
            Ok(())
        } else {
            Err(self.unsupported(key, expected).into())
        }
    }

    fn unsupported(&self, key: &'static str, expected: &'static str) -> PretrainedError {
        PretrainedError::unsupported(self.path, key, &self.json[key], expected)
    }
}

fn labels(json: &Json, path: &Path) -> Result<ClassLabels> {
    let named: BTreeMap<String, String> = match &json["id2label"] {
        Json::Null => BTreeMap::new(),
        table => BTreeMap::deserialize(table).map_err(|error| {
            PretrainedError::malformed(path, "id2label from numbers to names", error)
        })?,
    };
    let count = named.len();
    match class(&named, "entailment") {
        Some(entail) => Ok(ClassLabels {
            count,
            entail,
            neutral: class(&named, "neutral"),
            contradict: class(&named, "contradiction"),
        }),
        None => {
            let names: Vec<String> = named.into_values().collect();
            let got = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            Err(invalid_model(format!(
                "{}: id2label names {got}; it has to name `entailment`, and may name `neutral` and \
                 `contradiction`",
                path.display()
            )))
        }
    }
}

/// Returns the index of the class of this name.
fn class(named: &BTreeMap<String, String>, name: &str) -> Option<usize> {
    let (id, _) = named.iter().find(|(_, label)| label.eq_ignore_ascii_case(name))?;
    id.parse().ok().filter(|id| *id < named.len())
}
