//! Where tensors live, and in which precision.

use std::time::{Duration, Instant};

use corver_core::{Device as Wanted, Precision};
use tch::{Cuda, Device, Kind, Tensor};

use crate::error::{LearnError, Result};
use crate::libtorch;

/// The device on this machine; `auto` takes the first GPU where there is one.
///
/// # Errors
/// A GPU that is not available, with what is missing. There is no fall-back to the CPU.
pub fn find_device(wanted: Wanted) -> Result<Device> {
    let index = match wanted {
        Wanted::Cpu => return Ok(Device::Cpu),
        Wanted::Auto if !Cuda::is_available() => return Ok(Device::Cpu),
        Wanted::Auto => 0,
        Wanted::Cuda(index) => index,
    };
    let no_cuda = |missing: &str, remedy: &str| {
        LearnError::Device(format!("device `{wanted}` is not available: {missing}; {remedy}"))
    };
    if !tch::utils::has_cuda() {
        let missing = match nvidia_driver() {
            true => "a GPU driver is there, but the loaded libtorch has no CUDA (CPU-only build)",
            false => {
                "no NVIDIA driver on this machine, and the loaded libtorch has no CUDA (CPU-only build)"
            }
        };
        let remedy = "use --device cpu, or on a GPU machine run `make setup` again, which installs a CUDA libtorch there";
        return Err(no_cuda(missing, remedy));
    }
    let count = Cuda::device_count();
    if count == 0 {
        return Err(no_cuda(
            "libtorch has CUDA but finds no GPU",
            "check `nvidia-smi`, or use --device cpu",
        ));
    }
    if i64::from(index) >= count {
        return Err(no_cuda(
            &format!("this machine has {count} GPU(s), numbered from 0"),
            "use a smaller number",
        ));
    }
    libtorch::set_up()?;
    let device = Device::Cuda(usize::from(index));
    if let Err(reason) = libtorch::check_flash(device) {
        return Err(no_cuda(
            &format!("no flash attention there ({reason})"),
            "use a GPU of compute capability 8.0 or newer",
        ));
    }
    Ok(device)
}

fn nvidia_driver() -> bool {
    std::path::Path::new("/proc/driver/nvidia/version").exists()
}

/// Caps the threads that libtorch uses within one operation (CPU); process-wide. More threads than
/// free cores make every operation wait for the slowest: on two fully loaded cores, two threads
/// decoded 8 times slower than one.
pub fn set_num_threads(threads: usize) {
    tch::set_num_threads(i32::try_from(threads.max(1)).unwrap_or(i32::MAX));
}

/// How many threads compute fastest here and now, of 1, 2, 4 … up to libtorch's own choice. They
/// are timed with a product of the size that a step of decoding has; libtorch keeps the number that
/// came out.
///
/// # Errors
/// Where libtorch fails.
pub fn measure_threads() -> Result<usize> {
    let most = usize::try_from(tch::get_num_threads()).unwrap_or(1).max(1);
    let weight = Tensor::f_ones([2048, 512], (Kind::Float, Device::Cpu))?;
    let columns = Tensor::f_ones([512, 32], (Kind::Float, Device::Cpu))?;
    let mut fastest = (Duration::MAX, 1);
    for threads in (0..).map(|n| 1 << n).take_while(|&n| n < most).chain([most]) {
        set_num_threads(threads);
        for _ in 0..PRODUCTS {
            let _ = weight.f_mm(&columns)?; // the threads start
        }
        let start = Instant::now();
        for _ in 0..PRODUCTS {
            let _ = weight.f_mm(&columns)?;
        }
        fastest = fastest.min((start.elapsed(), threads));
    }
    set_num_threads(fastest.1);
    Ok(fastest.1)
}

/// Each some tenths of a millisecond: together longer than the system lets one process run before
/// another.
const PRODUCTS: usize = 100;

/// The dtype of base weights in this precision on `device`.
pub(crate) fn kind(precision: Precision, device: Device) -> Kind {
    match precision {
        Precision::F32 => Kind::Float,
        Precision::Bf16 => Kind::BFloat16,
        Precision::Auto if device.is_cuda() => Kind::BFloat16,
        Precision::Auto => Kind::Float,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_device_is_always_found() {
        assert_eq!(find_device(Wanted::Cpu).unwrap(), Device::Cpu);
        assert!(find_device(Wanted::Auto).is_ok());
    }

    #[test]
    fn measured_threads_are_within_limit_and_applied() {
        let before = tch::get_num_threads();
        let threads = measure_threads().unwrap();
        assert!((1..=before as usize).contains(&threads), "{threads}");
        assert_eq!(tch::get_num_threads(), threads as i32);
        set_num_threads(before as usize);
    }

    #[test]
    fn missing_gpu_error_names_remedy() {
        let error = find_device(Wanted::Cuda(99)).unwrap_err().to_string();
        assert!(error.contains("cuda:99") && error.contains("use"), "{error}");
    }
}
