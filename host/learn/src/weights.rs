//! Sources of a model's weights: a folder, or random numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corver_pretrained::PretrainedError;
use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::files;
use crate::random::RandomStream;

/// Purpose of a weight, which decides the distribution of random values.
#[derive(Clone, Copy)]
pub(crate) enum WeightRole {
    /// A projection or embedding: N(0, 0.02²), `transformers`' default.
    Matrix,
    /// Weight of a norm: ones.
    Norm,
    /// Bias of a projection: zeros.
    Bias,
}

/// A source of weights by Hugging Face name.
pub(crate) enum Weights {
    /// The tensors of a folder that no layer has taken yet.
    Folder { path: PathBuf, tensors: BTreeMap<String, Tensor> },
    /// Reproducible draws. Each name has its own stream, so the order of layers does not matter.
    Random { seed: u64, kind: Kind, device: Device },
    /// Draws of libtorch's generator on the device: fast, not reproducible.
    Noise { kind: Kind, device: Device },
}

impl Weights {
    pub(crate) fn open(folder: &Path, kind: Kind, device: Device) -> Result<Self> {
        Ok(Self::Folder { path: folder.into(), tensors: files::read_model(folder, kind, device)? })
    }

    /// Returns true if the folder has a tensor that no layer has taken; false for random weights.
    pub(crate) fn has(&self, name: &str) -> bool {
        matches!(self, Self::Folder { tensors, .. } if tensors.contains_key(name))
    }

    pub(crate) fn take(&mut self, name: &str, role: WeightRole, shape: &[usize]) -> Result<Tensor> {
        let size: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
        match self {
            Self::Folder { path, tensors } => {
                let got = match tensors.remove(name) {
                    Some(tensor) if tensor.size() == size => return Ok(tensor),
                    Some(tensor) => format!("{:?}", tensor.size()),
                    None => "no such tensor".into(),
                };
                let expected = format!("shape {size:?} (from config.json)");
                Err(PretrainedError::tensor(path, name, expected, got).into())
            }
            Self::Noise { kind, device } => {
                let options = (*kind, *device);
                Ok(match role {
                    WeightRole::Norm => Tensor::f_ones(&size, options)?,
                    WeightRole::Bias => Tensor::f_zeros(&size, options)?,
                    WeightRole::Matrix => Tensor::f_empty(&size, options)?.f_normal_(0.0, 0.02)?,
                })
            }
            Self::Random { seed, kind, device } => {
                let options = (Kind::Float, *device);
                let tensor = match role {
                    WeightRole::Norm => Tensor::f_ones(&size, options)?,
                    WeightRole::Bias => Tensor::f_zeros(&size, options)?,
                    WeightRole::Matrix => {
                        let mut stream = RandomStream::new(*seed, name, &[]);
                        let draws: Vec<f32> =
                            (0..shape.iter().product()).map(|_| 0.02 * stream.normal()).collect();
                        Tensor::f_from_slice(&draws)?
                            .f_view(size.as_slice())?
                            .f_to_device(*device)?
                    }
                };
                Ok(tensor.f_to_kind(*kind)?)
            }
        }
    }

    /// Checks that layers have taken all tensors except those that `ignore` accepts. An unused tensor
    /// means that the architecture is another one.
    pub(crate) fn finish(self, ignore: impl Fn(&str) -> bool) -> Result<()> {
        let Self::Folder { path, tensors } = self else { return Ok(()) };
        match tensors.iter().find(|(name, _)| !ignore(name)) {
            None => Ok(()),
            Some((name, tensor)) => {
                let expected = "no such tensor in this architecture";
                let got = format!("{:?}", tensor.size());
                Err(PretrainedError::tensor(&path, name, expected, got).into())
            }
        }
    }
}
