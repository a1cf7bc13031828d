//! Section `run`: length, seed and device of a run.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Length, seed and device of a run.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunSection {
    /// Seed of every random draw.
    #[default = 42]
    #[schemars(range(min = 0, max = 9_223_372_036_854_775_807_i64))]
    pub seed: u64,
    /// Number of training steps.
    #[default = 100]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub steps: usize,
    /// Device of the policy: `auto`, `cpu`, `cuda` or `cuda:N`.
    #[schemars(with = "String")]
    pub device: Device,
    /// CPU threads of one libtorch operation. Not set: the fastest number, measured at the start of
    /// the run.
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<usize>,
    /// Memory of the device that the policy may use, in GiB. Not set: the memory that is free at the
    /// start of the run.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub memory_gib: Option<f64>,
}

/// Device that a model runs on, written `auto`, `cpu`, `cuda` or `cuda:N`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// The first NVIDIA GPU if there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU, with all of its cores.
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(u16),
}

impl FromStr for Device {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        let device = match text.split_once(':') {
            None if text == "auto" => Some(Self::Auto),
            None if text == "cpu" => Some(Self::Cpu),
            None if text == "cuda" => Some(Self::Cuda(0)),
            // `parse` would also accept a sign.
            Some(("cuda", number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                number.parse().ok().map(Self::Cuda)
            }
            _ => None,
        };
        device.ok_or_else(|| UnknownDevice { got: text.to_owned() })
    }
}

impl TryFrom<String> for Device {
    type Error = UnknownDevice;

    fn try_from(text: String) -> Result<Self, UnknownDevice> {
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

/// Error of a text that is no name of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the device {got:?} is not auto, cpu, cuda or cuda:N")]
pub struct UnknownDevice {
    /// Text that was given.
    pub got: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_round_trip() {
        for device in [Device::Auto, Device::Cpu, Device::Cuda(0), Device::Cuda(3)] {
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "cuda0", "cuda:-1", "cuda:+1", "cpu:0"] {
            assert_eq!(wrong.parse::<Device>().unwrap_err().got, wrong);
        }
    }
}
