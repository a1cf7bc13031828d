//! What is done with tensors outside a graph, for every floating-point type.

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

/// Rows `rows` of `value` `[B, …]`, in that order; a row may be taken several times.
///
/// # Errors
/// ONNX Runtime's own.
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

/// Zeros in ONNX Runtime's own memory, so that an output can be bound to them.
///
/// # Errors
/// ONNX Runtime's own.
pub fn zeros(ty: TensorElementType, shape: &[usize]) -> ort::Result<DynValue> {
    with_float!(ty, T => {
        let mut tensor = Tensor::<T>::new(&Allocator::default(), shape)?;
        tensor.try_extract_tensor_mut::<T>()?.1.fill(T::default());
        Ok(tensor.into_dyn())
    })
}

/// The keys or values of one row, `[1, Hkv, P, Dh]`, without the row: `shape`, or turned to `[Hkv,
/// Dh, P]`.
///
/// # Errors
/// ONNX Runtime's own.
pub fn shared_rows(
    value: &DynValue,
    ty: TensorElementType,
    [heads, tokens, dim]: [usize; 3],
    turned: bool,
) -> ort::Result<DynValue> {
    with_float!(ty, T => {
        let data = value.try_extract_tensor::<T>()?.1;
        if !turned {
            return Ok(Tensor::from_array(([heads, tokens, dim], data.to_vec()))?.into_dyn());
        }
        let head = |head: &[T]| (0..dim).flat_map(|d| head[d..].iter().step_by(dim).copied()).collect::<Vec<_>>();
        let data: Vec<T> = data.chunks(tokens * dim).flat_map(head).collect();
        Ok(Tensor::from_array(([heads, dim, tokens], data))?.into_dyn())
    })
}

/// A copy on a device.
///
/// # Errors
/// ONNX Runtime's own.
pub fn copied(value: &DynValue, device: AllocationDevice, number: u16) -> ort::Result<DynValue> {
    Ok(value.view().downcast::<DynTensorValueType>()?.to(device, i32::from(number))?.into_dyn())
}

/// The most likely token of each row of `logits` `[B, …, V]`, after its last column; `None` where a
/// score is not a number. Of equals the first.
///
/// # Errors
/// ONNX Runtime's own.
pub fn argmax(logits: &DynValue) -> ort::Result<Vec<Option<u32>>> {
    let ty = logits.dtype().tensor_type().unwrap_or(TensorElementType::Float32);
    with_float!(ty, T => argmax_of::<T>(logits))
}

fn argmax_of<T: PrimitiveTensorElementType + Copy + Into<f32>>(
    logits: &DynValue,
) -> ort::Result<Vec<Option<u32>>> {
    let (shape, data) = logits.try_extract_tensor::<T>()?;
    let size =
        |size: Option<&i64>| size.and_then(|&size| usize::try_from(size).ok()).unwrap_or(0).max(1);
    let (rows, vocabulary) = (size(shape.first()), size(shape.last()));
    let best = |row: &[T]| {
        let mut best = (None, f32::NEG_INFINITY);
        for (id, &score) in row[row.len() - vocabulary..].iter().enumerate() {
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
    Ok(data.chunks_exact(data.len() / rows).map(best).collect())
}

/// Of each row of `value` `[B, C]` or `[B, N, C]` the first C numbers, as f32: `[B · C]`.
///
/// # Errors
/// ONNX Runtime's own.
pub fn first_of_rows(value: &DynValue) -> ort::Result<Vec<f32>> {
    let ty = value.dtype().tensor_type().unwrap_or(TensorElementType::Float32);
    with_float!(ty, T => first_of_rows_of::<T>(value))
}

fn first_of_rows_of<T: PrimitiveTensorElementType + Copy + Into<f32>>(
    value: &DynValue,
) -> ort::Result<Vec<f32>> {
    let (shape, data) = value.try_extract_tensor::<T>()?;
    let size =
        |size: Option<&i64>| size.and_then(|&size| usize::try_from(size).ok()).unwrap_or(0).max(1);
    let (rows, width) = (size(shape.first()), size(shape.last()));
    let row = data.len() / rows;
    Ok(data
        .chunks_exact(row.max(1))
        .flat_map(|row| row[..width.min(row.len())].iter().map(|&x| x.into()))
        .collect())
}
