//! Devices, threads and precisions.

use std::time::{Duration, Instant};

use corver_core::{Device as Wanted, Precision};
use tch::kind::Element;
use tch::{Cuda, Device, Kind, Tensor};

use crate::error::{LearnError, Result};
use crate::libtorch;

/// Finds a device of this machine. `auto` is the first GPU, or the CPU if there is none.
///
/// # Errors
/// Fails if the requested GPU is not available, and names what is missing. There is no fallback to
/// the CPU.
pub fn find_device(wanted: Wanted) -> Result<Device> {
    let index = match wanted {
        Wanted::Cpu => return Ok(Device::Cpu),
        Wanted::Auto if !Cuda::is_available() => return Ok(Device::Cpu),
        Wanted::Auto => 0,
        Wanted::Cuda(index) => index,
    };
    if !tch::utils::has_cuda() {
        let missing = if has_nvidia_driver() {
            "a GPU driver is installed, but the loaded libtorch has no CUDA (CPU-only build)"
        } else {
            "no NVIDIA driver on this machine, and the loaded libtorch has no CUDA (CPU-only build)"
        };
        let remedy = "use --device cpu, or on a GPU machine run `make setup` again, which installs \
                      a CUDA libtorch";
        return Err(unavailable(wanted, missing, remedy));
    }
    let count = Cuda::device_count();
    if count == 0 {
        let remedy = "check `nvidia-smi`, or use --device cpu";
        return Err(unavailable(wanted, "libtorch has CUDA but finds no GPU", remedy));
    }
    if i64::from(index) >= count {
        let missing = format!("this machine has {count} GPU(s), numbered from 0");
        return Err(unavailable(wanted, &missing, "use a smaller number"));
    }
    libtorch::set_up_cuda()?;
    let device = Device::Cuda(usize::from(index));
    if let Err(reason) = libtorch::check_flash(device) {
        let missing = format!("flash attention fails ({reason})");
        let remedy = "use a GPU of compute capability 8.0 or newer";
        return Err(unavailable(wanted, &missing, remedy));
    }
    Ok(device)
}

/// Returns the name of a device as settings write it: `cpu` or `cuda:N`.
#[must_use]
pub fn device_name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn unavailable(wanted: Wanted, missing: &str, remedy: &str) -> LearnError {
    LearnError::Device(format!("device `{wanted}` is not available: {missing}; {remedy}"))
}

fn has_nvidia_driver() -> bool {
    std::path::Path::new("/proc/driver/nvidia/version").exists()
}

/// Caps the threads of a CPU operation in libtorch, for the whole process.
///
/// With more threads than free cores, every operation waits for the slowest: on two fully loaded
/// cores, two threads decoded 8 times slower than one.
pub fn set_num_threads(threads: usize) {
    tch::set_num_threads(i32::try_from(threads.max(1)).unwrap_or(i32::MAX));
}

/// Measures which number of threads is fastest, of 1, 2, 4 … up to libtorch's own choice, and sets
/// it. The measurement is a product of the size of a decoding step.
///
/// # Errors
/// Fails if libtorch fails.
pub fn measure_threads() -> Result<usize> {
    let max_threads = usize::try_from(tch::get_num_threads()).unwrap_or(1).max(1);
    let weight = Tensor::f_ones([2048, 512], (Kind::Float, Device::Cpu))?;
    let columns = Tensor::f_ones([512, 32], (Kind::Float, Device::Cpu))?;
    let mut fastest = (Duration::MAX, 1);
    let mut threads = 1;
    loop {
        set_num_threads(threads);
        for _ in 0..PRODUCTS {
            let _ = weight.f_mm(&columns)?; // starts the threads
        }
        let start = Instant::now();
        for _ in 0..PRODUCTS {
            let _ = weight.f_mm(&columns)?;
        }
        fastest = fastest.min((start.elapsed(), threads));
        if threads == max_threads {
            break;
        }
        threads = (2 * threads).min(max_threads);
    }
    set_num_threads(fastest.1);
    Ok(fastest.1)
}

/// Products per measurement. Each takes some tenths of a millisecond; together they take longer than
/// a time slice of the scheduler.
const PRODUCTS: usize = 100;

/// Copies numbers to a tensor `[n]` on the device.
pub(crate) fn upload<T: Element>(values: &[T], device: Device) -> Result<Tensor> {
    Ok(Tensor::f_from_slice(values)?.f_to_device(device)?)
}

/// Returns the dtype of base weights in this precision on `device`.
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
