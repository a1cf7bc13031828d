//! Devices, threads and precisions.

use std::time::{Duration, Instant};

use corver_core::{Device as Wanted, Precision};
use corver_gpu::Gpu;
use tch::kind::Element;
use tch::{Cuda, Device, Kind, Tensor};

use crate::error::{LearnError, Result};
use crate::libtorch;

/// Finds a device of this machine. `auto` is the first GPU, or the CPU if the machine has none.
///
/// # Errors
/// Fails if the requested GPU is not available, or `auto` finds a GPU that libtorch cannot use, and
/// names what is missing. There is no fallback to the CPU.
pub fn find_device(wanted: Wanted) -> Result<Device> {
    if wanted == Wanted::Cpu {
        return Ok(Device::Cpu);
    }
    let count = Cuda::device_count();
    if count == 0 {
        let gpu = corver_gpu::find();
        if wanted == Wanted::Auto && gpu.is_none() {
            return Ok(Device::Cpu);
        }
        let cuda = tch::utils::has_cudart().then(tch::utils::version_cudart);
        let (missing, remedy) = explain_no_device(cuda, gpu.as_ref());
        return Err(unavailable(wanted, &missing, &remedy));
    }
    let index = match wanted {
        Wanted::Cuda(index) => index,
        Wanted::Auto | Wanted::Cpu => 0,
    };
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

/// Returns why CUDA has no device, and the remedy. `cuda` is the version of libtorch's CUDA, 13000
/// for 13.0; `None`: libtorch is built for the CPU alone.
fn explain_no_device(cuda: Option<i64>, gpu: Option<&Gpu>) -> (String, String) {
    match (cuda, gpu) {
        (None, None) => (
            "no NVIDIA GPU on this machine, and the loaded libtorch has no CUDA (CPU-only build)"
                .to_owned(),
            "use --device cpu, or on a GPU machine run `make setup` again, which installs a CUDA \
             libtorch"
                .to_owned(),
        ),
        (None, Some(gpu)) => (
            format!("{gpu} is there, but the loaded libtorch has no CUDA (CPU-only build)"),
            "run `make setup` again, which installs a CUDA libtorch, or use --device cpu"
                .to_owned(),
        ),
        (Some(_), None) => (
            "libtorch has CUDA, but there is no NVIDIA GPU on this machine".to_owned(),
            "check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use --device cpu".to_owned(),
        ),
        (Some(cuda), Some(gpu)) => {
            let version = format!("{}.{}", cuda / 1000, cuda % 1000 / 10);
            let needed = needed_driver(cuda);
            match (gpu.driver_branch(), needed) {
                (Some(branch), Some(needed)) if branch < needed => (
                    format!("the driver of {gpu} is too old for libtorch's CUDA {version}"),
                    format!("install driver {needed} or newer, or use --device cpu"),
                ),
                _ => (
                    format!("libtorch's CUDA {version} finds no GPU, although {gpu} is there"),
                    "check that `nvidia-smi` works, that CUDA_VISIBLE_DEVICES names a GPU, and \
                     that this user may open /dev/nvidia*; or use --device cpu"
                        .to_owned(),
                ),
            }
        }
    }
}

/// Returns the oldest driver branch for a version of CUDA. `None`: it is unknown.
///
/// From "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version Compatibility" in
/// NVIDIA's release notes.
fn needed_driver(cuda: i64) -> Option<u32> {
    match cuda / 1000 {
        12 => Some(525),
        13 => Some(580),
        _ => None,
    }
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
        if corver_gpu::find().is_none() {
            assert_eq!(find_device(Wanted::Auto).unwrap(), Device::Cpu);
        }
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

    #[test]
    fn driver_build_and_device_are_told_apart() {
        let gpu = |driver: &str| Gpu { name: "H100".to_owned(), driver: Some(driver.to_owned()) };
        let [old, new] = [gpu("550.54.15"), gpu("580.95.05")];
        let unknown = Gpu { driver: None, ..gpu("") };
        let cases = [
            (None, None, "no NVIDIA GPU on this machine, and", "--device cpu"),
            (None, Some(&old), "H100 (driver 550.54.15) is there, but", "`make setup`"),
            (Some(13000), None, "has CUDA, but there is no NVIDIA GPU", "`nvidia-smi`"),
            (Some(13000), Some(&old), "is too old for libtorch's CUDA 13.0", "driver 580 or newer"),
            (Some(12080), Some(&old), "CUDA 12.8 finds no GPU", "/dev/nvidia*"),
            (Some(13000), Some(&new), "CUDA 13.0 finds no GPU", "/dev/nvidia*"),
            (Some(13000), Some(&unknown), "CUDA 13.0 finds no GPU", "/dev/nvidia*"),
        ];
        for (cuda, gpu, missing, remedy) in cases {
            let explained = explain_no_device(cuda, gpu);
            assert!(explained.0.contains(missing), "{explained:?}");
            assert!(explained.1.contains(remedy), "{explained:?}");
        }
    }
}
