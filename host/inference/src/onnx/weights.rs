//! The weights of a Hugging Face folder as tensors of ONNX Runtime.

use std::collections::BTreeMap;
use std::path::Path;

use corver_pretrained::{PretrainedError, read_weights};
use half::{bf16, f16};
use ort::value::{DynValue, Tensor};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::onnx::graph::{ExternalWeight, Float};
use crate::onnx::{OnnxError, Result};

/// Reads the weights `wanted` by name, and converts them to `float`.
pub(crate) fn read(
    folder: &Path,
    wanted: &[ExternalWeight],
    float: Float,
) -> Result<BTreeMap<String, DynValue>> {
    let shapes: BTreeMap<&str, &[usize]> =
        wanted.iter().map(|weight| (weight.name.as_str(), weight.shape.as_slice())).collect();
    let mismatch = |name: &str, got: String| -> OnnxError {
        let expected = format!("shape {:?}", shapes.get(name).copied().unwrap_or_default());
        PretrainedError::tensor(folder, name, expected, got).into()
    };
    let mut found = BTreeMap::new();
    read_weights(folder, |_, file| {
        for (&name, &shape) in &shapes {
            let Ok(view) = file.tensor(name) else { continue }; // it may be in another shard
            if view.shape() != shape {
                return Err(mismatch(name, format!("{:?}", view.shape())));
            }
            let values = values(&view)
                .ok_or_else(|| mismatch(name, format!("numbers of type {:?}", view.dtype())))?;
            let value =
                tensor(shape, values, float).map_err(|error| mismatch(name, error.to_string()))?;
            found.insert(name.to_owned(), value);
        }
        Ok(())
    })?;
    match shapes.keys().find(|name| !found.contains_key(**name)) {
        Some(name) => Err(mismatch(name, "no such weight".to_owned())),
        None => Ok(found),
    }
}

/// Returns the values of a weight. `None`: the type is not supported.
fn values(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let words = view.data().chunks_exact(4);
    let halves = view.data().chunks_exact(2);
    match view.dtype() {
        Dtype::F32 => Some(words.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()),
        Dtype::BF16 => Some(halves.map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()),
        Dtype::F16 => Some(halves.map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()),
        _ => None,
    }
}

fn tensor(shape: &[usize], values: Vec<f32>, float: Float) -> ort::Result<DynValue> {
    Ok(match float {
        Float::F32 => Tensor::from_array((shape, values))?.into_dyn(),
        Float::Bf16 => {
            Tensor::from_array((shape, values.into_iter().map(bf16::from_f32).collect::<Vec<_>>()))?
                .into_dyn()
        }
    })
}
