//! How much memory a device has left, and how much a phase of the training took.

use corver_pretrained::PretrainedError;
use sysinfo::{MemoryRefreshKind, RefreshKind, System};
use tch::Device;

use crate::error::Result;
use crate::libtorch;

/// Bytes that a process may still take: of a GPU, or of this machine or container.
///
/// # Errors
/// A GPU that does not answer.
pub fn free(device: Device) -> Result<u64> {
    if let Device::Cuda(index) = device {
        return Ok(libtorch::memory(index)?.0);
    }
    let system = System::new_with_specifics(
        RefreshKind::nothing().with_memory(MemoryRefreshKind::everything()),
    )
    .map_err(|error| {
        PretrainedError::io("read", "/proc/meminfo".as_ref())(std::io::Error::other(error))
    })?;
    let of_container = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    Ok(system.available_memory().min(of_container))
}

/// The most bytes that this process took since `begin`: of a GPU's memory, its tensors; of the
/// machine's, everything.
#[derive(Debug)]
pub struct Peak(Device);

const STATUS: &str = "/proc/self/status";
/// Whoever writes 5 here begins a new measurement of the status's `VmHWM` (proc(5)).
const CLEAR: &str = "/proc/self/clear_refs";

impl Peak {
    /// Begins a measurement; one at a time is possible per device.
    ///
    /// # Errors
    /// A GPU that does not answer, or a `/proc` that cannot be written.
    pub fn begin(device: Device) -> Result<Self> {
        match device {
            Device::Cuda(index) => libtorch::reset_peak(index)?,
            _ => {
                std::fs::write(CLEAR, "5").map_err(PretrainedError::io("write", CLEAR.as_ref()))?
            }
        }
        Ok(Self(device))
    }

    /// Bytes.
    ///
    /// # Errors
    /// As [`Peak::begin`].
    pub fn bytes(&self) -> Result<u64> {
        if let Device::Cuda(index) = self.0 {
            return Ok(libtorch::memory(index)?.1);
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
