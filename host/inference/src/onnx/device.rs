//! The device of a graph.

use corver_settings::Device;

use crate::onnx::{OnnxError, Result, RuntimeLibrary, session};

/// Returns the number of the GPU that computes; `None` for the processor.
///
/// # Errors
/// If a GPU is named that ONNX Runtime cannot use.
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
