//! The inputs and outputs of a decoder graph, checked before the first run.
//!
//! The layout is the one that `optimum` exports: `input_ids`, `attention_mask` and `position_ids`
//! (i64, `[B, T]`, the mask `[B, past + T]`), `past_key_values.N.key` and `.value` `[B, heads,
//! past, dim]`; `logits` `[B, T, V]`, `present.N.key` and `.value`. Graphs without `position_ids`
//! fuse the rotation and are wrong if rows are padded at the left.

use std::path::Path;

use crate::onnx::graph::Float;
use crate::onnx::{Outlet, Session, TensorElementType};
use corver_pretrained::PretrainedError;

use crate::extract::settings::ExtractorSettings;
use crate::extract::{ExtractError, Result};

/// Names, sizes and types of a decoder graph.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// Names of each layer: past key, past value, present key, present value.
    pub(crate) layers: Vec<[String; 4]>,
    pub(crate) num_kv_heads: usize,
    pub(crate) head_dim: usize,
    /// Floating-point type of keys and values.
    pub(crate) kv_type: Float,
    /// Number of logits per token. `None`: the graph does not fix it.
    pub(crate) vocab_size: Option<usize>,
}

const IDS: [&str; 3] = ["input_ids", "attention_mask", "position_ids"];
const FLOATS: [TensorElementType; 3] =
    [TensorElementType::Float32, TensorElementType::Float16, TensorElementType::Bfloat16];

impl Layout {
    pub(crate) fn read(
        session: &Session,
        settings: &ExtractorSettings,
        path: &Path,
    ) -> Result<Self> {
        let check = LayoutCheck { path, inputs: session.inputs(), outputs: session.outputs() };
        for name in IDS {
            check.input(name, &[TensorElementType::Int64], 2)?;
        }
        let logits = check.output("logits", &FLOATS, 3)?;
        let num_layers = check.inputs.iter().filter(|outlet| is_past_key(outlet.name())).count();
        if num_layers == 0 {
            return Err(check.mismatch(
                "inputs past_key_values.N.key (export with a KV cache)",
                "none".to_owned(),
            ));
        }
        let layers: Vec<[String; 4]> = (0..num_layers).map(names_of_layer).collect();
        let mut first = None;
        for [past_key, past_value, present_key, present_value] in &layers {
            for (past, present) in [(past_key, present_key), (past_value, present_value)] {
                let input = check.input(past, &FLOATS, 4)?;
                let output = check.output(present, &[input.ty], 4)?;
                let expected = first.get_or_insert_with(|| input.clone());
                for found in [&input, &output] {
                    if found.ty != expected.ty
                        || found.shape[1] != expected.shape[1]
                        || found.shape[3] != expected.shape[3]
                    {
                        let got = format!("{past} and {present} differ from {}", layers[0][0]);
                        return Err(check
                            .mismatch("keys and values of one type and shape in all layers", got));
                    }
                }
            }
        }
        check.no_further_inputs(&layers)?;
        let kv = first.expect("there is at least one layer");
        Ok(Self {
            num_kv_heads: check.dimension("num_kv_heads", kv.shape[1], settings.num_kv_heads)?,
            head_dim: check.dimension("head_dim", kv.shape[3], settings.head_dim)?,
            kv_type: Float::of_tensors(kv.ty).expect("the type was checked above"),
            vocab_size: usize::try_from(logits.shape[2]).ok(),
            layers,
        })
    }
}

fn is_past_key(name: &str) -> bool {
    name.starts_with("past_key_values.") && name.ends_with(".key")
}

fn names_of_layer(n: usize) -> [String; 4] {
    [
        format!("past_key_values.{n}.key"),
        format!("past_key_values.{n}.value"),
        format!("present.{n}.key"),
        format!("present.{n}.value"),
    ]
}

#[derive(Clone)]
struct TensorKind {
    ty: TensorElementType,
    /// Sizes; −1 if the graph does not fix a dimension.
    shape: Vec<i64>,
}

struct LayoutCheck<'a> {
    path: &'a Path,
    inputs: &'a [Outlet],
    outputs: &'a [Outlet],
}

impl LayoutCheck<'_> {
    fn mismatch(&self, expected: impl Into<String>, got: String) -> ExtractError {
        PretrainedError::malformed(self.path, expected.into(), got).into()
    }

    fn input(&self, name: &str, types: &[TensorElementType], rank: usize) -> Result<TensorKind> {
        self.tensor("input", self.inputs, name, types, rank)
    }

    fn output(&self, name: &str, types: &[TensorElementType], rank: usize) -> Result<TensorKind> {
        self.tensor("output", self.outputs, name, types, rank)
    }

    fn tensor(
        &self,
        role: &str,
        outlets: &[Outlet],
        name: &str,
        types: &[TensorElementType],
        rank: usize,
    ) -> Result<TensorKind> {
        let expected = || {
            let types: Vec<String> = types.iter().map(ToString::to_string).collect();
            format!("an {role} `{name}` of {rank} dimensions, {}", types.join(" or "))
        };
        let Some(outlet) = outlets.iter().find(|outlet| outlet.name() == name) else {
            let names: Vec<&str> = outlets.iter().map(Outlet::name).collect();
            return Err(self.mismatch(expected(), format!("{role}s {}", names.join(", "))));
        };
        let dtype = outlet.dtype();
        match (dtype.tensor_type(), dtype.tensor_shape()) {
            (Some(ty), Some(shape)) if types.contains(&ty) && shape.len() == rank => {
                Ok(TensorKind { ty, shape: shape.to_vec() })
            }
            _ => Err(self.mismatch(expected(), dtype.to_string())),
        }
    }

    /// Rejects an input that no run would bind, and that would only fail then.
    fn no_further_inputs(&self, layers: &[[String; 4]]) -> Result<()> {
        for outlet in self.inputs {
            let name = outlet.name();
            let is_past = layers.iter().any(|[key, value, ..]| key == name || value == name);
            if !IDS.contains(&name) && !is_past {
                let expected = format!(
                    "inputs {} and past_key_values.0 to .{} alone",
                    IDS.join(", "),
                    layers.len() - 1
                );
                return Err(self.mismatch(expected, format!("`{name}` as well")));
            }
        }
        Ok(())
    }

    fn dimension(&self, key: &str, in_graph: i64, in_settings: Option<usize>) -> Result<usize> {
        match (usize::try_from(in_graph).ok().filter(|size| *size > 0), in_settings) {
            (Some(size), None) => Ok(size),
            (None, Some(size)) => Ok(size),
            (Some(size), Some(set)) if size == set => Ok(size),
            (Some(size), Some(set)) => {
                Err(self.mismatch(format!("{key} = {set} as in extractor.toml"), size.to_string()))
            }
            (None, None) => Err(self.mismatch(
                format!("a graph that fixes {key}, or {key} in extractor.toml"),
                "neither".to_owned(),
            )),
        }
    }
}
