//! What libtorch has and tch does not pass on: an operation with a backward pass of its own; and
//! for a GPU, flash attention with its normalisers, memory figures, and switches.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

use crate::error::{LearnError, Result};

// SAFETY (of every call): `libtorch.cpp` has these signatures. A tensor argument is read, never
// kept; null stands for none where it says so. A text that comes back was made by `strdup`.
unsafe extern "C" {
    fn corver_swiglu(
        gate: *const C_tensor,
        up: *const C_tensor,
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
    fn corver_set_up_cuda() -> *mut c_char;
    fn corver_memory(device: i8, free: *mut u64, peak: *mut u64) -> *mut c_char;
    fn corver_reset_peak(device: i8) -> *mut c_char;
    fn free(text: *mut c_char);
}

/// SiLU(`gate`) × `up`, both of one shape. The backward pass keeps these two alone.
pub(crate) fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    let mut out = null_mut();
    // SAFETY: see the declarations. Where no message comes back, the result is a new tensor that is
    // ours.
    unsafe {
        checked(corver_swiglu(gate.as_ptr(), up.as_ptr(), &raw mut out))?;
        Ok(Tensor::from_ptr(out))
    }
}

/// Sequences that lie one behind the other in a flat list.
#[derive(Debug)]
pub(crate) struct Starts {
    /// `[S + 1]` i32 on the device: where each sequence begins, and where the last one ends.
    pub(crate) places: Tensor,
    /// Tokens of the longest.
    pub(crate) longest: i64,
}

impl Starts {
    pub(crate) fn new(lengths: &[i64], device: Device) -> Result<Self> {
        let mut place = 0;
        let places: Vec<i32> = std::iter::once(0)
            .chain(lengths.iter().map(|length| {
                place += *length as i32;
                place
            }))
            .collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        Ok(Self { places: Tensor::f_from_slice(&places)?.f_to_device(device)?, longest })
    }
}

/// Whether [`flash`] takes tensors of this kind there.
pub(crate) fn has_flash(kind: Kind, device: Device) -> bool {
    device.is_cuda() && matches!(kind, Kind::BFloat16 | Kind::Half)
}

/// Attention of `q` `[B, T, H, Dh]` over `k` and `v` `[B, S, Hkv, Dh]` → `[B, T, H, Dh]`, and the
/// logarithms of its normalisers `[B, H, T]` f32. `causal`: the last query sees every key, the one
/// before it all but the last, and so on.
pub(crate) fn flash(q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<(Tensor, Tensor)> {
    call(q, k, v, None, (q.size4()?.1, k.size4()?.1), causal)
}

/// The same for sequences one behind the other: `q` `[ΣT, H, Dh]` over `k` and `v` `[ΣS, Hkv, Dh]`
/// → `[ΣT, H, Dh]`, and `[H, ΣT]` f32. Every query sees all keys of its sequence.
pub(crate) fn flash_packed(
    q: &Tensor,
    q_starts: &Starts,
    k: &Tensor,
    v: &Tensor,
    k_starts: &Starts,
) -> Result<(Tensor, Tensor)> {
    call(q, k, v, Some((q_starts, k_starts)), (q_starts.longest, k_starts.longest), false)
}

/// That flash attention runs on a GPU, and computes attention.
///
/// # Errors
/// What libtorch says, or by how much the two differ.
pub(crate) fn check_flash(device: Device) -> Result<()> {
    let numbers =
        Tensor::f_arange(12 * 2 * 64, (Kind::Float, device))?.f_sin()?.f_view([1, 12, 2, 64])?;
    let x = numbers.f_to_kind(Kind::BFloat16)?;
    let (mixed, _) = flash(&x, &x, &x, true)?;
    let y = x.f_to_kind(Kind::Float)?.f_transpose(1, 2)?;
    let scores = y.f_matmul(&y.f_transpose(-2, -1)?)?.f_div_scalar(8.0)?; // √64
    let later = Tensor::f_ones([12, 12], (Kind::Bool, device))?.f_triu(1)?;
    let expected = scores
        .f_masked_fill(&later, f64::NEG_INFINITY)?
        .f_softmax(-1, Kind::Float)?
        .f_matmul(&y)?;
    let apart =
        mixed.f_transpose(1, 2)?.f_to_kind(Kind::Float)?.f_sub(&expected)?.f_abs()?.f_max()?;
    let apart = apart.f_double_value(&[])?;
    if apart < 0.02 {
        return Ok(());
    }
    Err(LearnError::Input {
        what: "flash attention",
        expected: "attention".into(),
        got: format!("{apart} beside it"),
    })
}

fn call(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    starts: Option<(&Starts, &Starts)>,
    longest: (i64, i64),
    causal: bool,
) -> Result<(Tensor, Tensor)> {
    let (q_starts, k_starts) = starts
        .map_or((null(), null()), |(of_q, of_k)| (of_q.places.as_ptr(), of_k.places.as_ptr()));
    let (mut out, mut normaliser) = (null_mut(), null_mut());
    // SAFETY: see the declarations. Where no message comes back, both results are new tensors that
    // are ours.
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

/// No cuDNN attention, which plans anew for every length, and TF32 for what products remain in f32;
/// process-wide.
///
/// # Errors
/// A libtorch without CUDA.
pub(crate) fn set_up() -> Result<()> {
    // SAFETY: see the declarations.
    unsafe { checked(corver_set_up_cuda()) }
}

/// Of GPU `device`: bytes that nobody uses, and the most that tensors of this process took since
/// [`reset_peak`].
///
/// # Errors
/// A libtorch without CUDA, or no such device.
pub(crate) fn memory(device: usize) -> Result<(u64, u64)> {
    let (mut free, mut peak) = (0, 0);
    // SAFETY: see the declarations.
    unsafe { checked(corver_memory(device as i8, &raw mut free, &raw mut peak))? };
    Ok((free, peak))
}

/// Begins a new measurement of the peak.
///
/// # Errors
/// As [`memory`].
pub(crate) fn reset_peak(device: usize) -> Result<()> {
    // SAFETY: see the declarations.
    unsafe { checked(corver_reset_peak(device as i8)) }
}

/// # Safety
/// `message` is null, or a text made by `strdup` that nobody else holds.
unsafe fn checked(message: *mut c_char) -> Result<()> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        free(message);
        text
    };
    // libtorch adds a trace of its own functions.
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
        assert!(memory(0).is_err() && reset_peak(0).is_err() && set_up().is_err());
    }

    #[test]
    fn fused_swiglu_matches_plain_gradients() {
        let noise = |n: f64| {
            (Tensor::arange(24, (Kind::Double, Device::Cpu)) * n).sin().view([2, 3, 4]) * 3.0
        };
        let slopes_by = |product: fn(&Tensor, &Tensor) -> Tensor| {
            let inputs = [noise(0.7), noise(1.3)].map(|x| x.set_requires_grad(true));
            let out = product(&inputs[0], &inputs[1]);
            let mut all = Tensor::run_backward(
                &[(&out * noise(0.3)).sum(Kind::Double)],
                &inputs,
                false,
                false,
            );
            all.push(out.detach());
            all
        };
        let ours = slopes_by(|gate, up| swiglu(gate, up).unwrap());
        let parts = slopes_by(|gate, up| gate.silu() * up);
        for (ours, parts) in ours.iter().zip(&parts) {
            assert!((ours - parts).abs().max().double_value(&[]) < 1e-14);
        }
        assert!(swiglu(&noise(1.0), &Tensor::zeros([5], (Kind::Double, Device::Cpu))).is_err());
    }

    #[test]
    fn starts_are_running_sums() {
        let starts = Starts::new(&[3, 0, 5], Device::Cpu).unwrap();
        assert_eq!(Vec::<i32>::try_from(starts.places).unwrap(), [0, 3, 3, 8]);
        assert_eq!(starts.longest, 5);
    }
}
