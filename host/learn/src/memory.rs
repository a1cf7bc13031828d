//! Free memory of a device, and the peak of a training phase.

use corver_pretrained::PretrainedError;
use sysinfo::{MemoryRefreshKind, RefreshKind, System};
use tch::Device;

use crate::error::Result;
use crate::libtorch;

/// Returns the free memory of a GPU, or of this machine or container, bytes.
///
/// # Errors
/// Fails if the GPU does not respond, or the machine's memory cannot be read.
pub fn free(device: Device) -> Result<u64> {
    if let Device::Cuda(index) = device {
        return Ok(libtorch::memory(index)?.free);
    }
    let system = System::new_with_specifics(
        RefreshKind::nothing().with_memory(MemoryRefreshKind::everything()),
    )
    .map_err(|error| {
        PretrainedError::io("read", "/proc/meminfo".as_ref())(std::io::Error::other(error))
    })?;
    let container_free = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    Ok(system.available_memory().min(container_free))
}

/// A measurement of the peak memory of this process: the tensors on a GPU, or the resident set on
/// the CPU.
#[derive(Debug)]
pub struct Peak(Device);

const STATUS: &str = "/proc/self/status";
/// Writing 5 to this file resets `VmHWM` in [`STATUS`]; see proc(5).
const CLEAR: &str = "/proc/self/clear_refs";

impl Peak {
    /// Starts a measurement. It ends an earlier one on the same device.
    ///
    /// # Errors
    /// Fails if the GPU does not respond, or `/proc` cannot be written.
    pub fn begin(device: Device) -> Result<Self> {
        match device {
            Device::Cuda(index) => libtorch::reset_peak(index)?,
            _ => {
                std::fs::write(CLEAR, "5").map_err(PretrainedError::io("write", CLEAR.as_ref()))?
            }
        }
        Ok(Self(device))
    }

    /// Returns the peak since [`Peak::begin`], bytes.
    ///
    /// # Errors
    /// Fails as [`Peak::begin`].
    pub fn bytes(&self) -> Result<u64> {
        if let Device::Cuda(index) = self.0 {
            return Ok(libtorch::memory(index)?.peak);
        }
        let status = std::fs::read_to_string(STATUS)
            .map_err(PretrainedError::io("read", STATUS.as_ref()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let kib = line
            .trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .map_err(|_| PretrainedError::malformed(STATUS.as_ref(), "VmHWM in kB", line))?;
        Ok(kib << 10)
    }
}

/// Logs the peak memory of a phase, if the system reports it.
pub(crate) fn log_peak(phase: &str, peak: Result<Peak>) {
    if let Ok(bytes) = peak.and_then(|peak| peak.bytes()) {
        tracing::info!(phase, mib = bytes >> 20, "peak memory");
    }
}
