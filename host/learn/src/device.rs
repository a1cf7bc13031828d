//! Where tensors live, and in which precision.

use serde::{Deserialize, Serialize};
use tch::{Cuda, Device, Kind};

use crate::error::{LearnError, Result};

/// Reads `auto`, `cpu`, `cuda` or `cuda:N`; `auto` takes the first GPU where there is one.
///
/// # Errors
/// A form that is none of these, or a GPU that cannot be had, with what is missing. There is no fall-back to the CPU.
pub fn parse_device(text: &str) -> Result<Device> {
    if text == "cpu" {
        return Ok(Device::Cpu);
    }
    if text == "auto" {
        return Ok(Device::cuda_if_available());
    }
    let index = match text.strip_prefix("cuda") {
        Some("") => 0,
        Some(rest) => rest
            .strip_prefix(':')
            .and_then(|n| n.parse::<usize>().ok())
            .ok_or_else(|| LearnError::UnknownDevice { got: text.into() })?,
        None => return Err(LearnError::UnknownDevice { got: text.into() }),
    };
    let no_cuda = |missing: String, remedy| LearnError::NoCuda { device: text.into(), missing, remedy };
    if !tch::utils::has_cuda() {
        let missing = match nvidia_driver() {
            true => "a GPU driver is there, but the loaded libtorch has no CUDA (CPU-only build)",
            false => "no NVIDIA driver on this machine, and the loaded libtorch has no CUDA (CPU-only build)",
        };
        let remedy =
            "use --device cpu, or on a GPU machine run `make setup` again, which installs a CUDA libtorch there";
        return Err(no_cuda(missing.into(), remedy));
    }
    let count = Cuda::device_count();
    if count == 0 {
        return Err(no_cuda("libtorch has CUDA but finds no GPU".into(), "check `nvidia-smi`, or use --device cpu"));
    }
    if index as i64 >= count {
        return Err(no_cuda(format!("this machine has {count} GPU(s), numbered from 0"), "use a smaller number"));
    }
    Ok(Device::Cuda(index))
}

fn nvidia_driver() -> bool {
    std::path::Path::new("/proc/driver/nvidia/version").exists()
}

/// Caps the threads that libtorch uses within one operation (CPU); process-wide. More threads than free cores make every
/// operation wait for the slowest: on two fully loaded cores, two threads decoded 8 times slower than one.
pub fn set_num_threads(threads: usize) {
    tch::set_num_threads(i32::try_from(threads.max(1)).unwrap_or(i32::MAX));
}

/// Precision of the base model's weights; adapters and optimiser state are always f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// bf16 on a GPU, f32 on the CPU, where bf16 is slower.
    #[default]
    Auto,
    /// 32-bit floats.
    F32,
    /// bfloat16.
    Bf16,
}

impl Precision {
    /// The dtype on `device`.
    #[must_use]
    pub fn kind(self, device: Device) -> Kind {
        match self {
            Self::F32 => Kind::Float,
            Self::Bf16 => Kind::BFloat16,
            Self::Auto if device.is_cuda() => Kind::BFloat16,
            Self::Auto => Kind::Float,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_always_work() {
        assert_eq!(parse_device("cpu").unwrap(), Device::Cpu);
        assert!(parse_device("auto").is_ok());
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["gpu", "cuda:", "cuda:x", "cuda0", ""] {
            assert!(matches!(parse_device(text), Err(LearnError::UnknownDevice { got }) if got == text));
        }
    }

    #[test]
    fn a_missing_gpu_is_an_error_that_says_what_to_do() {
        let error = parse_device("cuda:99").unwrap_err().to_string();
        assert!(error.contains("cuda:99") && error.contains("use"), "{error}");
    }
}
