//! C++ functions: SwiGLU and RMS norm with their own backward pass, products and attention of a decoding
//! step on the CPU, and functions of libtorch for a GPU that tch does not expose.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

use crate::error::{LearnError, Result};

// SAFETY (of every call): the files in `cpp` have these signatures. No tensor argument is retained, and
// only the tables of `corver_rotate_step` are written. `bias`, `q_starts`, `k_starts` and `slot_of_row`
// may be null. A returned text is from `strdup`.
unsafe extern "C" {
    fn corver_swiglu(
        gate: *const C_tensor,
        up: *const C_tensor,
        out: *mut *mut C_tensor,
    ) -> *mut c_char;
    fn corver_rms_norm(
        x: *const C_tensor,
        weight: *const C_tensor,
        eps: f64,
        out: *mut *mut C_tensor,
    ) -> *mut c_char;
    fn corver_linear(
        x: *const C_tensor,
        weight: *const C_tensor,
        bias: *const C_tensor,
        contiguous: bool,
        out: *mut *mut C_tensor,
    ) -> *mut c_char;
    fn corver_rotate_step(
        q: *const C_tensor,
        k: *const C_tensor,
        v: *const C_tensor,
        cos: *const C_tensor,
        sin: *const C_tensor,
        keys: *const C_tensor,
        values: *const C_tensor,
        column: i64,
        prompts: i64,
        slots_per_prompt: i64,
        slot_of_row: *const C_tensor,
        out: *mut *mut C_tensor,
    ) -> *mut c_char;
    fn corver_attend_step(
        q: *const C_tensor,
        keys: *const C_tensor,
        values: *const C_tensor,
        length: i64,
        prompts: i64,
        slots_per_prompt: i64,
        slot_of_row: *const C_tensor,
        prompt_mixed: *const C_tensor,
        prompt_normaliser: *const C_tensor,
        out: *mut *mut C_tensor,
    ) -> *mut c_char;
    fn corver_flash_attention(
        q: *const C_tensor,
        k: *const C_tensor,
        v: *const C_tensor,
        q_starts: *const C_tensor,
        k_starts: *const C_tensor,
        longest_q: i64,
        longest_k: i64,
        causal: bool,
        out: *mut *mut C_tensor,
        normaliser: *mut *mut C_tensor,
    ) -> *mut c_char;
    fn corver_set_up_cuda(memory_share: f64) -> *mut c_char;
    fn corver_memory(device: i8, free: *mut u64, peak: *mut u64) -> *mut c_char;
    fn corver_reset_peak(device: i8) -> *mut c_char;
    fn free(text: *mut c_char);
}

/// Returns SiLU(`gate`) × `up`, both of one shape. The graph saves only these two tensors.
pub(crate) fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    let mut out = null_mut();
    // SAFETY: see the declarations. Without a message, `out` is a new tensor that we own.
    unsafe {
        checked(corver_swiglu(gate.as_ptr(), up.as_ptr(), &raw mut out))?;
        Ok(Tensor::from_ptr(out))
    }
}

/// Returns `weight` × x / rms(x) over the last dimension of `x`, which has the size of `weight`.
pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let mut out = null_mut();
    // SAFETY: see the declarations. Without a message, `out` is a new tensor that we own.
    unsafe {
        checked(corver_rms_norm(x.as_ptr(), weight.as_ptr(), eps, &raw mut out))?;
        Ok(Tensor::from_ptr(out))
    }
}

/// Returns `x` `[…, in]` times `weight` `[out, in]`, plus `bias` `[out]`: `[…, out]`. Without
/// gradients, few rows on the CPU have a faster product, whose result may be a transposed matrix if it
/// need not be `contiguous`.
pub(crate) fn linear(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    contiguous: bool,
) -> Result<Tensor> {
    let mut out = null_mut();
    let bias = bias.map_or(null(), Tensor::as_ptr);
    // SAFETY: see the declarations. The function checks devices, types and sizes. Without a message,
    // `out` is a new tensor that we own.
    unsafe {
        checked(corver_linear(x.as_ptr(), weight.as_ptr(), bias, contiguous, &raw mut out))?;
        Ok(Tensor::from_ptr(out))
    }
}

/// Softmax attention over a part of the keys: mixed values, and logarithms of the normalisers.
pub(crate) type PartialAttention = (Tensor, Tensor);

/// Slots for the rows of the prompts. Every prompt has `per_prompt` slots, the most rows of any prompt.
pub(crate) struct Slots<'a> {
    pub(crate) prompts: i64,
    pub(crate) per_prompt: i64,
    /// `[N]` i64, slot of each row; `None`: slot n has row n.
    pub(crate) of_row: Option<&'a Tensor>,
}

/// Keys and values of the rows that are decoded, on the CPU.
pub(crate) struct StepTables<'a> {
    /// `[N · Hkv, capacity, Dh]`, contiguous.
    pub(crate) keys: &'a Tensor,
    /// `[N · Hkv, capacity, Dh]`, contiguous.
    pub(crate) values: &'a Tensor,
    /// Column of the token that is decoded.
    pub(crate) column: i64,
    pub(crate) slots: Slots<'a>,
}

/// Rotates the queries `q` `[N, 1, H, Dh]` and keys `k` `[N, 1, Hkv, Dh]` of one token per row by the
/// angles `cos` and `sin` `[N, 1, 1, Dh]`. Stores the keys and the values `v` `[N, 1, Hkv, Dh]` in the
/// tables. Returns the queries in the rows' slots, `[P · Hkv, R · H / Hkv, Dh]`.
pub(crate) fn rotate_step(
    [q, k, v]: [&Tensor; 3],
    [cos, sin]: [&Tensor; 2],
    tables: &StepTables<'_>,
) -> Result<Tensor> {
    let mut out = null_mut();
    // SAFETY: see the declarations. The function checks devices, types, sizes and strides before it
    // writes into the tables, which no other thread uses. Without a message, `out` is a new tensor
    // that we own.
    unsafe {
        checked(corver_rotate_step(
            q.as_ptr(),
            k.as_ptr(),
            v.as_ptr(),
            cos.as_ptr(),
            sin.as_ptr(),
            tables.keys.as_ptr(),
            tables.values.as_ptr(),
            tables.column,
            tables.slots.prompts,
            tables.slots.per_prompt,
            tables.slots.of_row.map_or(null(), Tensor::as_ptr),
            &raw mut out,
        ))?;
        Ok(Tensor::from_ptr(out))
    }
}

/// Attends with the queries `q` of [`rotate_step`] to the tables up to the column, and merges the result
/// with the attention over the prompts, which has the layout of `q`. Returns `[N, 1, H · Dh]`.
pub(crate) fn attend_step(
    q: &Tensor,
    tables: &StepTables<'_>,
    (prompt_mixed, prompt_normaliser): &PartialAttention,
) -> Result<Tensor> {
    let mut out = null_mut();
    // SAFETY: see the declarations. The function checks devices, types, sizes and strides. Without a
    // message, `out` is a new tensor that we own.
    unsafe {
        checked(corver_attend_step(
            q.as_ptr(),
            tables.keys.as_ptr(),
            tables.values.as_ptr(),
            tables.column + 1,
            tables.slots.prompts,
            tables.slots.per_prompt,
            tables.slots.of_row.map_or(null(), Tensor::as_ptr),
            prompt_mixed.as_ptr(),
            prompt_normaliser.as_ptr(),
            &raw mut out,
        ))?;
        Ok(Tensor::from_ptr(out))
    }
}

/// Boundaries of concatenated sequences in a flat list.
#[derive(Debug)]
pub(crate) struct SequenceStarts {
    /// `[S + 1]` i32 on the device: start of each sequence, and end of the last one.
    pub(crate) offsets: Tensor,
    /// Tokens of the longest sequence.
    pub(crate) longest: i64,
}

impl SequenceStarts {
    pub(crate) fn new(lengths: &[i64], device: Device) -> Result<Self> {
        let mut end = 0;
        let mut offsets = vec![end];
        for &length in lengths {
            end += length as i32;
            offsets.push(end);
        }
        let longest = lengths.iter().copied().max().unwrap_or(0);
        Ok(Self { offsets: Tensor::f_from_slice(&offsets)?.f_to_device(device)?, longest })
    }
}

/// Returns true if [`flash`] supports tensors of this kind on the device.
pub(crate) fn has_flash(kind: Kind, device: Device) -> bool {
    device.is_cuda() && matches!(kind, Kind::BFloat16 | Kind::Half)
}

/// Attends with `q` `[B, T, H, Dh]` over `k` and `v` `[B, S, Hkv, Dh]` → `[B, T, H, Dh]`, and the
/// logarithms of the normalisers `[B, H, T]` f32.
///
/// If `causal`, the last query attends to every key, the query before it to all but the last key, and
/// so on.
pub(crate) fn flash(q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<(Tensor, Tensor)> {
    let longest = (q.size4()?.1, k.size4()?.1);
    call_flash(q, k, v, None, longest, causal)
}

/// Attends within concatenated sequences: `q` `[ΣT, H, Dh]` over `k` and `v` `[ΣS, Hkv, Dh]` → `[ΣT,
/// H, Dh]`, and `[H, ΣT]` f32. Every query attends to all keys of its sequence or, if `causal`, as in
/// [`flash`].
pub(crate) fn flash_packed(
    q: &Tensor,
    q_starts: &SequenceStarts,
    k: &Tensor,
    v: &Tensor,
    k_starts: &SequenceStarts,
    causal: bool,
) -> Result<(Tensor, Tensor)> {
    let longest = (q_starts.longest, k_starts.longest);
    call_flash(q, k, v, Some((q_starts, k_starts)), longest, causal)
}

/// Checks that flash attention runs on a GPU and agrees with plain attention: the causal one of two
/// sequences with more keys than queries, and of one in a batch.
///
/// # Errors
/// Fails with libtorch's message, or with the difference.
pub(crate) fn check_flash(device: Device) -> Result<()> {
    let numbers =
        Tensor::f_arange(24 * 2 * 64, (Kind::Float, device))?.f_sin()?.f_view([24, 2, 64])?;
    let x = numbers.f_to_kind(Kind::BFloat16)?;
    let (queries, keys) = ([5, 7], [9, 15]);
    let all_queries = x.f_narrow(0, 0, 12)?;
    let [q_starts, k_starts] =
        [&queries, &keys].map(|lengths| SequenceStarts::new(lengths, device));
    let (packed, _) = flash_packed(&all_queries, &q_starts?, &x, &x, &k_starts?, true)?;
    let mut first_query = 0;
    let mut first_key = 0;
    for (num_queries, num_keys) in queries.into_iter().zip(keys) {
        let q = x.f_narrow(0, first_query, num_queries)?;
        let k = x.f_narrow(0, first_key, num_keys)?;
        let expected = plain_attention(&q, &k)?;
        let [batch_q, batch_k] = [q.f_unsqueeze(0)?, k.f_unsqueeze(0)?];
        let (single, _) = flash(&batch_q, &batch_k, &batch_k, true)?;
        let part = packed.f_narrow(0, first_query, num_queries)?;
        for mixed in [part, single.f_squeeze_dim(0)?] {
            let gap = mixed.f_to_kind(Kind::Float)?.f_sub(&expected)?;
            let difference = gap.f_abs()?.f_max()?.f_double_value(&[])?;
            if difference.is_nan() || difference >= 0.02 {
                return Err(LearnError::Input {
                    what: "flash attention",
                    expected: "the result of plain attention".into(),
                    got: format!("a difference of {difference}"),
                });
            }
        }
        first_query += num_queries;
        first_key += num_keys;
    }
    Ok(())
}

/// Attends with `q` `[T, H, Dh]` over `k` `[S, H, Dh]`, which are the values too, in f32. The last
/// query attends to every key.
fn plain_attention(q: &Tensor, k: &Tensor) -> Result<Tensor> {
    let (num_queries, _, width) = q.size3()?;
    let num_keys = k.size()[0];
    let [q, k] = [q, k].map(|x| x.f_to_kind(Kind::Float)?.f_transpose(0, 1));
    let (q, k) = (q?, k?);
    let scores = q.f_matmul(&k.f_transpose(1, 2)?)?.f_div_scalar((width as f64).sqrt())?;
    let later = Tensor::f_ones([num_queries, num_keys], (Kind::Bool, q.device()))?
        .f_triu(num_keys - num_queries + 1)?;
    let weights = scores.f_masked_fill(&later, f64::NEG_INFINITY)?.f_softmax(-1, Kind::Float)?;
    Ok(weights.f_matmul(&k)?.f_transpose(0, 1)?)
}

fn call_flash(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    starts: Option<(&SequenceStarts, &SequenceStarts)>,
    longest: (i64, i64),
    causal: bool,
) -> Result<(Tensor, Tensor)> {
    let q_starts = starts.map_or(null(), |(q_starts, _)| q_starts.offsets.as_ptr());
    let k_starts = starts.map_or(null(), |(_, k_starts)| k_starts.offsets.as_ptr());
    let mut out = null_mut();
    let mut normaliser = null_mut();
    // SAFETY: see the declarations. Without a message, both results are new tensors that we own.
    unsafe {
        checked(corver_flash_attention(
            q.as_ptr(),
            k.as_ptr(),
            v.as_ptr(),
            q_starts,
            k_starts,
            longest.0,
            longest.1,
            causal,
            &raw mut out,
            &raw mut normaliser,
        ))?;
        Ok((Tensor::from_ptr(out), Tensor::from_ptr(normaliser)))
    }
}

/// Share of a GPU's memory that libtorch reserves at most. The rest is for the extractor's growth and
/// for libraries.
const MEMORY_SHARE: f64 = 0.95;

/// Limits the memory of libtorch, switches off cuDNN attention, which makes a new plan for every
/// length, and allows TF32 for the products in f32. This is for the whole process.
///
/// # Errors
/// Fails if libtorch has no CUDA.
pub(crate) fn set_up_cuda() -> Result<()> {
    // SAFETY: see the declarations.
    unsafe { checked(corver_set_up_cuda(MEMORY_SHARE)) }
}

/// Memory of a GPU, bytes.
pub(crate) struct GpuMemory {
    /// Free memory, including unused memory of libtorch's allocator.
    pub(crate) free: u64,
    /// Peak of the tensors of this process since [`reset_peak`].
    pub(crate) peak: u64,
}

/// Returns the memory of GPU `device`.
///
/// # Errors
/// Fails if libtorch has no CUDA, or the device does not exist.
pub(crate) fn memory(device: usize) -> Result<GpuMemory> {
    let mut memory = GpuMemory { free: 0, peak: 0 };
    // SAFETY: see the declarations.
    unsafe {
        checked(corver_memory(device as i8, &raw mut memory.free, &raw mut memory.peak))?;
    }
    Ok(memory)
}

/// Starts a new measurement of the peak.
///
/// # Errors
/// Fails as [`memory`].
pub(crate) fn reset_peak(device: usize) -> Result<()> {
    // SAFETY: see the declarations.
    unsafe { checked(corver_reset_peak(device as i8)) }
}

/// Turns a message of a function in `cpp` into an error.
///
/// # Safety
/// `message` is null, or a text from `strdup` that the caller owns.
unsafe fn checked(message: *mut c_char) -> Result<()> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: the caller ensures it.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        free(message);
        text
    };
    // The lines after the first are a trace of libtorch's own functions.
    Err(LearnError::Torch(tch::TchError::Torch(text.lines().next().unwrap_or_default().to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_functions_fail_without_gpu() {
        if tch::Cuda::is_available() {
            return; // `make bench-gpu` compares results there
        }
        let x = Tensor::zeros([1, 2, 1, 8], (Kind::Float, Device::Cpu));
        let error = flash(&x, &x, &x, true).unwrap_err().to_string();
        assert!(error.contains("_flash_attention_forward"), "{error}");
        assert!(memory(0).is_err() && reset_peak(0).is_err() && set_up_cuda().is_err());
    }

    #[test]
    fn fused_swiglu_matches_plain_gradients() {
        let noise = |n: f64| {
            (Tensor::arange(24, (Kind::Double, Device::Cpu)) * n).sin().view([2, 3, 4]) * 3.0
        };
        let gradients_by = |product: fn(&Tensor, &Tensor) -> Tensor| {
            let inputs = [noise(0.7), noise(1.3)].map(|x| x.set_requires_grad(true));
            let out = product(&inputs[0], &inputs[1]);
            let loss = (&out * noise(0.3)).sum(Kind::Double);
            let mut results = Tensor::run_backward(&[loss], &inputs, false, false);
            results.push(out.detach());
            results
        };
        let fused = gradients_by(|gate, up| swiglu(gate, up).unwrap());
        let plain = gradients_by(|gate, up| gate.silu() * up);
        for (fused, plain) in fused.iter().zip(&plain) {
            assert!((fused - plain).abs().max().double_value(&[]) < 1e-14);
        }
        assert!(swiglu(&noise(1.0), &Tensor::zeros([5], (Kind::Double, Device::Cpu))).is_err());
    }

    /// Compares with libtorch's own operation, also for rows that are not contiguous.
    #[test]
    fn fused_rms_norm_matches_plain_gradients() {
        let noise = |n: f64, kind| {
            (Tensor::arange(120, (Kind::Float, Device::Cpu)) * n).sin().to_kind(kind)
        };
        for (kind, tolerance) in [(Kind::Float, 1e-6), (Kind::BFloat16, 0.02)] {
            let weight = noise(0.9, kind).narrow(0, 7, 20) + 1.0;
            let gradients_by = |norm: fn(&Tensor, &Tensor) -> Tensor| {
                let x = (noise(0.7, kind).view([20, 6]) * 3.0).set_requires_grad(true);
                let out = norm(&x.transpose(0, 1), &weight);
                let loss = (&out * noise(0.3, kind).view([6, 20])).sum(Kind::Float);
                let gradient = Tensor::run_backward(&[loss], &[&x], false, false).remove(0);
                [out.detach(), gradient]
            };
            let fused = gradients_by(|x, weight| rms_norm(x, weight, 1e-5).unwrap());
            let plain = gradients_by(|x, weight| x.rms_norm(weight.size(), Some(weight), 1e-5));
            for (fused, plain) in fused.iter().zip(&plain) {
                let difference = (fused - plain).abs().max().double_value(&[]);
                assert!(difference < tolerance, "{kind:?}: {difference}");
            }
        }
        let weight = Tensor::ones([20], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let out = rms_norm(&noise(0.7, Kind::Float).view([6, 20]), &weight, 1e-5).unwrap();
        let loss = out.square().sum(Kind::Float);
        assert!(Tensor::run_backward(&[loss], &[weight], false, false)[0].numel() == 20);
    }

    #[test]
    fn step_outside_its_tables_is_refused() {
        let zeros = |shape: &[i64]| Tensor::zeros(shape, (Kind::Float, Device::Cpu));
        let heads = zeros(&[2, 1, 1, 4]);
        let table = zeros(&[2, 3, 4]);
        let rotate = |column, prompts, of_row: Option<&Tensor>| {
            let slots = Slots { prompts, per_prompt: 2, of_row };
            let tables = StepTables { keys: &table, values: &table, column, slots };
            rotate_step([&heads; 3], [&heads; 2], &tables).map(|q| q.size())
        };
        assert_eq!(rotate(2, 1, None).unwrap(), [1, 2, 4]);
        assert!(rotate(3, 1, None).unwrap_err().to_string().contains("column 3 of tables"));
        assert!(rotate(-1, 1, None).is_err());
        assert!(rotate(0, 2, None).unwrap_err().to_string().contains("4 slots for 2 rows"));
        for (slots, problem) in [([0i64, 2], "slot 2 of 2"), ([1, 1], "slot 1 has two rows")] {
            let of_row = Tensor::from_slice(&slots);
            assert!(rotate(0, 1, Some(&of_row)).unwrap_err().to_string().contains(problem));
        }
        let attend = |q: &[i64], prompts, normalisers: &[i64]| {
            let q = zeros(q);
            let slots = Slots { prompts, per_prompt: 2, of_row: None };
            let tables = StepTables { keys: &table, values: &table, column: 2, slots };
            attend_step(&q, &tables, &(q.shallow_clone(), zeros(normalisers))).map(|out| out.size())
        };
        assert_eq!(attend(&[1, 2, 4], 1, &[1, 2]).unwrap(), [2, 1, 4]);
        assert!(attend(&[1, 2, 4], 1, &[1, 3]).is_err());
        assert!(attend(&[1, 2, 4], 0, &[1, 2]).is_err());
        assert!(attend(&[1, 2, 8], 1, &[1, 2]).is_err());
        let angles = zeros(&[1, 2, 1, 4]);
        let slots = Slots { prompts: 1, per_prompt: 2, of_row: None };
        let tables = StepTables { keys: &table, values: &table, column: 0, slots };
        assert!(rotate_step([&heads; 3], [&angles; 2], &tables).is_err());
        let bf16 = heads.to_kind(Kind::BFloat16);
        assert!(rotate_step([&heads, &heads, &bf16], [&heads; 2], &tables).is_err());
    }

    #[test]
    fn plain_attention_of_last_query_sees_every_key() {
        let x = Tensor::arange(12, (Kind::Float, Device::Cpu)).sin().view([6, 1, 2]);
        let got = plain_attention(&x.narrow(0, 4, 2), &x).unwrap();
        let full = plain_attention(&x, &x).unwrap().narrow(0, 4, 2);
        assert!((got - full).abs().max().double_value(&[]) < 1e-6);
    }

    #[test]
    fn starts_are_running_sums() {
        let starts = SequenceStarts::new(&[3, 0, 5], Device::Cpu).unwrap();
        assert_eq!(Vec::<i32>::try_from(starts.offsets).unwrap(), [0, 3, 3, 8]);
        assert_eq!(starts.longest, 5);
    }
}
