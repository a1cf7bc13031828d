//! Where the graph runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{OnnxError, Result, RuntimeLibrary, session};

/// An execution provider of ONNX Runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// The first NVIDIA GPU where ONNX Runtime can use it, else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(u16),
}

impl Device {
    /// The number of the GPU that is computed on; `None` for the processor.
    ///
    /// # Errors
    /// A GPU that was asked for by name and is not there.
    pub fn gpu(self, runtime: &RuntimeLibrary) -> Result<Option<u16>> {
        match self {
            Self::Cpu => Ok(None),
            Self::Cuda(number) => Ok(Some(number)),
            Self::Auto if runtime.has_cuda()? => match session::builder(Some(0), runtime) {
                Err(error @ OnnxError::NoCuda { .. }) => {
                    tracing::warn!(%error, "ONNX Runtime computes on the CPU");
                    Ok(None)
                }
                built => built.map(|_| Some(0)),
            },
            Self::Auto => Ok(None),
        }
    }
}

impl FromStr for Device {
    type Err = OnnxError;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || OnnxError::UnknownDevice { got: text.to_owned() };
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "cuda" => Ok(Self::Cuda(0)),
            Some(("cuda", number)) => number.parse().map(Self::Cuda).map_err(|_| unknown()),
            _ => Err(unknown()),
        }
    }
}

impl TryFrom<String> for Device {
    type Error = OnnxError;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_read_as_they_are_written() {
        for device in [Device::Auto, Device::Cpu, Device::Cuda(0), Device::Cuda(3)] {
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cpu:0"] {
            assert!(matches!(wrong.parse::<Device>(), Err(OnnxError::UnknownDevice { .. })), "{wrong}");
        }
    }
}
