//! Operations on tensors outside a graph, for all floating-point types.

use half::{bf16, f16};
use ort::memory::{AllocationDevice, Allocator};
use ort::value::{
    DynTensorValueType, DynValue, PrimitiveTensorElementType, Tensor, TensorElementType,
};

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

/// Returns the rows of `value` `[B, …]` with the indices `rows`, in that order. An index may
/// repeat.
///
/// # Errors
/// Fails if ONNX Runtime cannot read or create the tensor.
pub fn select_rows(
    value: &DynValue,
    ty: TensorElementType,
    rows: &[usize],
) -> ort::Result<DynValue> {
    with_float!(ty, T => select::<T>(value, rows))
}

fn select<T: PrimitiveTensorElementType + Copy + std::fmt::Debug + 'static>(
    value: &DynValue,
    rows: &[usize],
) -> ort::Result<DynValue> {
    let (shape, data) = value.try_extract_tensor::<T>()?;
    let stride: usize =
        shape.iter().skip(1).map(|&size| usize::try_from(size).unwrap_or(0)).product();
    let mut selected = Vec::with_capacity(rows.len() * stride);
    for &row in rows {
        selected.extend_from_slice(&data[row * stride..(row + 1) * stride]);
    }
    let mut shape = shape.to_vec();
    shape[0] = rows.len() as i64;
    Ok(Tensor::from_array((shape, selected))?.into_dyn())
}

/// Returns zeros in memory that ONNX Runtime has allocated, so that an output can be bound to it.
///
/// # Errors
/// Fails if ONNX Runtime cannot read or create the tensor.
pub fn zeros(ty: TensorElementType, shape: &[usize]) -> ort::Result<DynValue> {
    with_float!(ty, T => {
        let mut tensor = Tensor::<T>::new(&Allocator::default(), shape)?;
        tensor.try_extract_tensor_mut::<T>()?.1.fill(T::default());
        Ok(tensor.into_dyn())
    })
}

/// Returns the keys or values of one row `[1, Hkv, P, Dh]` without the first axis, as `[Hkv, P, Dh]`
/// or transposed to `[Hkv, Dh, P]`.
///
/// # Errors
/// Fails if ONNX Runtime cannot read or create the tensor.
pub fn shared_rows(
    value: &DynValue,
    ty: TensorElementType,
    [heads, tokens, dim]: [usize; 3],
    transposed: bool,
) -> ort::Result<DynValue> {
    with_float!(ty, T => {
        let data = value.try_extract_tensor::<T>()?.1;
        if !transposed {
            return Ok(Tensor::from_array(([heads, tokens, dim], data.to_vec()))?.into_dyn());
        }
        let mut columns: Vec<T> = Vec::with_capacity(data.len());
        for head in data.chunks(tokens * dim) {
            for column in 0..dim {
                columns.extend(head[column..].iter().step_by(dim));
            }
        }
        Ok(Tensor::from_array(([heads, dim, tokens], columns))?.into_dyn())
    })
}

/// Returns a copy on another device.
///
/// # Errors
/// Fails if ONNX Runtime cannot read or create the tensor.
pub fn copied(value: &DynValue, device: AllocationDevice, number: u16) -> ort::Result<DynValue> {
    Ok(value.view().downcast::<DynTensorValueType>()?.to(device, i32::from(number))?.into_dyn())
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
