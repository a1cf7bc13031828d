//! The few operations on tensors of any floating-point type that decoding needs outside the graph.

use half::{bf16, f16};
use ort::value::{DynValue, PrimitiveTensorElementType, Tensor, TensorElementType};

/// Runs `$body` with `$T` as the Rust type of an element type that the layout has admitted.
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

/// Rows `rows` of `value` `[B, …]`, in that order; a row may be taken several times.
pub(crate) fn select_rows(value: &DynValue, ty: TensorElementType, rows: &[usize]) -> ort::Result<DynValue> {
    with_float!(ty, T => select::<T>(value, rows))
}

fn select<T: PrimitiveTensorElementType + Copy + std::fmt::Debug + 'static>(
    value: &DynValue,
    rows: &[usize],
) -> ort::Result<DynValue> {
    let (shape, data) = value.try_extract_tensor::<T>()?;
    let stride: usize = shape.iter().skip(1).map(|&size| usize::try_from(size).unwrap_or(0)).product();
    let mut selected = Vec::with_capacity(rows.len() * stride);
    for &row in rows {
        selected.extend_from_slice(&data[row * stride..(row + 1) * stride]);
    }
    let mut shape = shape.to_vec();
    shape[0] = rows.len() as i64;
    Ok(Tensor::from_array((shape, selected))?.into_dyn())
}

/// A tensor without elements.
pub(crate) fn empty(ty: TensorElementType, shape: [usize; 4]) -> ort::Result<DynValue> {
    let allocator = ort::memory::Allocator::default();
    with_float!(ty, T => Tensor::<T>::new(&allocator, shape).map(|tensor| tensor.into_dyn()))
}

/// The most likely token of each row after its last column; `None` where a score is not a number.
/// `logits` `[B, T, V]`; of equals the first.
pub(crate) fn argmax_of_last(logits: &DynValue) -> ort::Result<Option<Vec<u32>>> {
    let ty = logits.dtype().tensor_type().unwrap_or(TensorElementType::Float32);
    with_float!(ty, T => argmax::<T>(logits))
}

fn argmax<T: PrimitiveTensorElementType + Copy + Into<f32>>(logits: &DynValue) -> ort::Result<Option<Vec<u32>>> {
    let (shape, data) = logits.try_extract_tensor::<T>()?;
    let [width, vocab] = [shape[1], shape[2]].map(|size| usize::try_from(size).unwrap_or(0).max(1));
    let best = |row: &[T]| {
        let mut best = (None, f32::NEG_INFINITY);
        for (id, &score) in row[(width - 1) * vocab..].iter().enumerate() {
            let score: f32 = score.into();
            if score.is_nan() {
                return None;
            }
            if score > best.1 {
                best = (u32::try_from(id).ok(), score);
            }
        }
        best.0
    };
    Ok(data.chunks_exact(width * vocab).map(best).collect())
}
