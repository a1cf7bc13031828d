//! The device that computes a graph.

use corver_settings::Device;

use crate::onnx::{OnnxError, Result, RuntimeLibrary, session};

/// Returns the number of the GPU that computes. `None`: the processor.
///
/// # Errors
/// Fails if ONNX Runtime cannot be loaded. A named GPU is checked when a session is opened.
pub fn gpu(device: Device, runtime: &RuntimeLibrary) -> Result<Option<u16>> {
    match device {
        Device::Cpu => Ok(None),
        Device::Cuda(number) => Ok(Some(number)),
        Device::Auto if runtime.has_cuda()? => match session::builder(Some(0), runtime) {
            Err(error @ OnnxError::NoCuda { .. }) => {
                tracing::warn!(%error, "ONNX Runtime computes on the CPU");
                Ok(None)
            }
            built => built.map(|_| Some(0)),
        },
        Device::Auto => Ok(None),
    }
}
