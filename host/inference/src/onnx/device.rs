//! The device that computes a graph.

use corver_settings::Device;

use crate::onnx::{Result, RuntimeLibrary, session};

/// Returns the number of the GPU that computes. `None`: the processor.
///
/// # Errors
/// Fails if ONNX Runtime cannot be loaded, or if it is built for CUDA and cannot use the GPU of this
/// machine.
pub fn gpu(device: Device, runtime: &RuntimeLibrary) -> Result<Option<u16>> {
    let number = match device {
        Device::Cpu => return Ok(None),
        Device::Cuda(number) => number,
        // A build for the CPU is a choice, as in the Python package.
        Device::Auto if !runtime.has_cuda()? || corver_gpu::find().is_none() => return Ok(None),
        Device::Auto => 0,
    };
    session::builder(Some(number), runtime)?;
    Ok(Some(number))
}
