//! Operations on tensors outside a graph, for all floating-point types.

use half::{bf16, f16};
use ort::memory::Allocator;
use ort::value::{DynTensor, DynValue, PrimitiveTensorElementType, TensorElementType};

/// Runs `$body` with `$T` as the Rust type of a floating-point element type.
macro_rules! with_float {
    ($ty:expr, $T:ident => $body:expr) => {
        match $ty {
            TensorElementType::Float16 => {
                type $T = f16;
                $body
            }
            TensorElementType::Bfloat16 => {
                type $T = bf16;
                $body
            }
            _ => {
                type $T = f32;
                $body
            }
        }
    };
}

/// Returns a tensor without elements.
///
/// # Errors
/// Fails if ONNX Runtime cannot create the tensor.
pub fn empty(ty: TensorElementType, shape: &[usize]) -> ort::Result<DynValue> {
    Ok(DynTensor::new(&Allocator::default(), ty, shape)?.into_dyn())
}

/// Returns the most probable token of each row of `logits` `[B, …, V]`, at its last position. Of
/// equal ones it is the first. `None`: a logit is NaN.
///
/// # Errors
/// Fails if ONNX Runtime cannot read or create the tensor.
pub fn argmax(logits: &DynValue) -> ort::Result<Vec<Option<u32>>> {
    let ty = logits.dtype().tensor_type().unwrap_or(TensorElementType::Float32);
    with_float!(ty, T => argmax_of::<T>(logits))
}

fn argmax_of<T: PrimitiveTensorElementType + Copy + Into<f32>>(
    logits: &DynValue,
) -> ort::Result<Vec<Option<u32>>> {
    let (shape, data) = logits.try_extract_tensor::<T>()?;
    let rows = size_or_one(shape.first());
    let vocabulary = size_or_one(shape.last());
    let mut best = Vec::with_capacity(rows);
    for row in data.chunks_exact(data.len() / rows) {
        best.push(argmax_of_row(&row[row.len() - vocabulary..]));
    }
    Ok(best)
}

fn argmax_of_row<T: Copy + Into<f32>>(logits: &[T]) -> Option<u32> {
    let mut best = None;
    let mut largest = f32::NEG_INFINITY;
    for (id, &logit) in logits.iter().enumerate() {
        let logit: f32 = logit.into();
        if logit.is_nan() {
            return None;
        }
        if logit > largest {
            best = u32::try_from(id).ok();
            largest = logit;
        }
    }
    best
}

/// Returns the size of an axis; 1 if it is absent or empty.
fn size_or_one(size: Option<&i64>) -> usize {
    size.and_then(|&size| usize::try_from(size).ok()).unwrap_or(0).max(1)
}

/// Returns the first C numbers of each row of `value` `[B, C]` or `[B, N, C]`, as f32: `[B · C]`.
///
/// # Errors
/// Fails if ONNX Runtime cannot read or create the tensor.
pub fn first_of_rows(value: &DynValue) -> ort::Result<Vec<f32>> {
    let ty = value.dtype().tensor_type().unwrap_or(TensorElementType::Float32);
    with_float!(ty, T => first_of_rows_of::<T>(value))
}

fn first_of_rows_of<T: PrimitiveTensorElementType + Copy + Into<f32>>(
    value: &DynValue,
) -> ort::Result<Vec<f32>> {
    let (shape, data) = value.try_extract_tensor::<T>()?;
    let rows = size_or_one(shape.first());
    let width = size_or_one(shape.last());
    let length = data.len() / rows;
    let mut numbers = Vec::with_capacity(rows * width);
    for row in data.chunks_exact(length.max(1)) {
        numbers.extend(row[..width.min(row.len())].iter().map(|&x| x.into()));
    }
    Ok(numbers)
}
