//! Where a model's weights come from: a folder, or a seed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corver_pretrained::PretrainedError;
use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::files;
use crate::random::Stream;

/// What a weight is for, which decides how a random one is drawn.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    /// Drawn from N(0, 0.02²), `transformers`' default.
    Matrix,
    /// Ones.
    Norm,
    /// Zeros.
    Bias,
}

/// Hands out weights by their Hugging Face name.
pub(crate) enum Weights {
    /// What is left of the tensors of a folder.
    Folder { path: PathBuf, tensors: BTreeMap<String, Tensor> },
    /// Drawn on demand; each name has its own stream, so that the order does not matter.
    Random { seed: u64, kind: Kind, device: Device },
    /// Drawn by libtorch on the device itself.
    Noise { kind: Kind, device: Device },
}

impl Weights {
    pub(crate) fn open(folder: &Path, kind: Kind, device: Device) -> Result<Self> {
        Ok(Self::Folder { path: folder.into(), tensors: files::read_model(folder, kind, device)? })
    }

    pub(crate) fn take(&mut self, name: &str, role: Role, shape: &[usize]) -> Result<Tensor> {
        let size: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
        match self {
            Self::Folder { path, tensors } => {
                let wrong = |got: String| {
                    let expected = format!("shape {size:?} (from config.json)");
                    PretrainedError::tensor(path, name, expected, got)
                };
                let tensor = tensors.remove(name).ok_or_else(|| wrong("no such tensor".into()))?;
                if tensor.size() != size {
                    return Err(wrong(format!("{:?}", tensor.size())).into());
                }
                Ok(tensor)
            }
            Self::Noise { kind, device } => {
                let options = (*kind, *device);
                Ok(match role {
                    Role::Norm => Tensor::f_ones(&size, options)?,
                    Role::Bias => Tensor::f_zeros(&size, options)?,
                    Role::Matrix => Tensor::f_empty(&size, options)?.f_normal_(0.0, 0.02)?,
                })
            }
            Self::Random { seed, kind, device } => {
                let options = (Kind::Float, *device);
                let tensor = match role {
                    Role::Norm => Tensor::f_ones(&size, options)?,
                    Role::Bias => Tensor::f_zeros(&size, options)?,
                    Role::Matrix => {
                        let mut stream = Stream::new(*seed, name, &[]);
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

    /// Checks that nothing was left over: a weight that is not used is a model that is not
    /// understood.
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
