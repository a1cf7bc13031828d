//! The weights of a Hugging Face folder as tensors of ONNX Runtime.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use corver_pretrained::{PretrainedError, read_weights};
use half::{bf16, f16};
use ort::value::{DynValue, PrimitiveTensorElementType, Tensor, Value};
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
            let value = tensor(&view, float)
                .ok_or_else(|| mismatch(name, format!("numbers of type {:?}", view.dtype())))?
                .map_err(|error| mismatch(name, error.to_string()))?;
            found.insert(name.to_owned(), value);
        }
        Ok(())
    })?;
    match shapes.keys().find(|name| !found.contains_key(**name)) {
        Some(name) => Err(mismatch(name, "no such weight".to_owned())),
        None => Ok(found),
    }
}

/// Returns a weight as a tensor of the type `float`. `None`: the type of the weight is not
/// supported.
fn tensor(view: &TensorView<'_>, float: Float) -> Option<ort::Result<DynValue>> {
    match float {
        Float::F32 => converted(view, |x| x),
        Float::Bf16 => converted(view, bf16::from_f32),
        Float::F16 => converted(view, f16::from_f32),
    }
}

fn converted<T: PrimitiveTensorElementType + Clone + Debug + 'static>(
    view: &TensorView<'_>,
    convert: impl Fn(f32) -> T,
) -> Option<ort::Result<DynValue>> {
    let words = view.data().chunks_exact(4);
    let halves = view.data().chunks_exact(2);
    let values: Vec<T> = match view.dtype() {
        Dtype::F32 => {
            words.map(|b| convert(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
        }
        Dtype::BF16 => {
            halves.map(|b| convert(bf16::from_le_bytes([b[0], b[1]]).to_f32())).collect()
        }
        Dtype::F16 => halves.map(|b| convert(f16::from_le_bytes([b[0], b[1]]).to_f32())).collect(),
        _ => return None,
    };
    Some(Tensor::from_array((view.shape(), values)).map(Value::into_dyn))
}
