//! Tensors on disk (safetensors), and files that are either whole or absent.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use corver_files::NewFolder;
use corver_pretrained::PretrainedError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tch::{Device, Kind, Tensor};

use crate::error::{LearnError, Result};

/// State of the optimiser. A folder with this file is a checkpoint.
pub(crate) const CHECKPOINT_STATE: &str = "state.json";

/// Replaces a file as a whole.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    Ok(corver_files::replace(path, bytes).map_err(PretrainedError::io("write", path))?)
}

/// Creates a folder that appears as a whole: see [`finish_folder`].
///
/// # Errors
/// If the folder cannot be created.
pub(crate) fn create_folder(target: &Path) -> Result<NewFolder> {
    Ok(NewFolder::create(target).map_err(PretrainedError::io("create", target))?)
}

/// Gives a new folder its name.
///
/// # Errors
/// If a folder cannot be renamed or removed.
pub(crate) fn finish_folder(folder: NewFolder, target: &Path) -> Result<()> {
    Ok(folder.finish().map_err(PretrainedError::io("rename to", target))?)
}

/// Writes tensors in the layout that `transformers` and `peft` read.
pub(crate) fn write_tensors(path: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    let mut stored = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let tensor = tensor.f_detach()?.f_to_device(Device::Cpu)?.f_contiguous()?;
        let dtype = match tensor.f_kind()? {
            Kind::Float => Dtype::F32,
            Kind::BFloat16 => Dtype::BF16,
            Kind::Half => Dtype::F16,
            Kind::Double => Dtype::F64,
            Kind::Uint8 => Dtype::U8,
            other => {
                let (expected, got) = ("f32, bf16, f16, f64 or u8", format!("{other:?}"));
                return Err(PretrainedError::tensor(path, name, expected, got).into());
            }
        };
        let mut bytes = vec![0; tensor.numel() * dtype.bitsize() / 8];
        tensor.f_copy_data_u8(&mut bytes, tensor.numel())?;
        stored.push((
            name,
            dtype,
            tensor.size().iter().map(|&n| n as usize).collect::<Vec<_>>(),
            bytes,
        ));
    }
    let refused = |error: safetensors::SafeTensorError| {
        PretrainedError::malformed(path, "tensors that safetensors can hold", error)
    };
    let mut views = Vec::with_capacity(stored.len());
    for (name, dtype, shape, bytes) in &stored {
        views
            .push((name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).map_err(refused)?));
    }
    let header = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(views, Some(header)).map_err(refused)?;
    write(path, &bytes)
}

/// Reads every tensor of one file. `kind` converts them, and takes floating-point ones only; `None`
/// leaves all as they are stored.
pub(crate) fn read_tensors(
    path: &Path,
    kind: Option<Kind>,
    device: Device,
) -> Result<BTreeMap<String, Tensor>> {
    let bytes = std::fs::read(path).map_err(PretrainedError::io("read", path))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| PretrainedError::malformed(path, "a safetensors file", error))?;
    tensors_of(path, &file, kind, device)
}

fn tensors_of(
    path: &Path,
    file: &SafeTensors<'_>,
    kind: Option<Kind>,
    device: Device,
) -> Result<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let stored = match view.dtype() {
            Dtype::F32 => Kind::Float,
            Dtype::BF16 => Kind::BFloat16,
            Dtype::F16 => Kind::Half,
            Dtype::F64 => Kind::Double,
            Dtype::U8 if kind.is_none() => Kind::Uint8,
            other => {
                let (expected, got) = ("a floating-point tensor", format!("{other:?}"));
                return Err(PretrainedError::tensor(path, name, expected, got).into());
            }
        };
        let shape: Option<Vec<i64>> = view.shape().iter().map(|&n| i64::try_from(n).ok()).collect();
        let tensor =
            shape.and_then(|shape| Tensor::f_from_data_size(view.data(), &shape, stored).ok());
        let tensor = tensor.ok_or_else(|| {
            let got = format!("{:?}", view.shape());
            PretrainedError::tensor(path, name, "a shape that libtorch can hold", got)
        })?;
        let tensor = tensor.f_to_device(device)?.f_to_kind(kind.unwrap_or(stored))?;
        if !is_finite(&tensor)? {
            let (expected, got) = ("finite numbers", "NaN or infinite ones");
            return Err(PretrainedError::tensor(path, name, expected, got).into());
        }
        tensors.insert(name.to_owned(), tensor);
    }
    Ok(tensors)
}

/// Whether every number is finite.
pub(crate) fn is_finite(tensor: &Tensor) -> Result<bool> {
    Ok(tensor.f_isfinite()?.f_all()?.f_int64_value(&[])? != 0)
}

/// Holds the checksum of every other file of its folder, as `b3sum` writes and checks them.
const CHECKSUMS: &str = "checksums.b3";

/// Writes [`CHECKSUMS`]; nothing in the folder may change any more.
pub(crate) fn write_checksums(folder: &Path) -> Result<()> {
    let lines: Vec<String> = checksums(folder)?
        .into_iter()
        .map(|(name, checksum)| format!("{checksum}  {name}\n"))
        .collect();
    write(&folder.join(CHECKSUMS), lines.concat().as_bytes())
}

/// Compares every file with its checksum, and the list with the folder.
pub(crate) fn verify_checksums(folder: &Path) -> Result<()> {
    let list = folder.join(CHECKSUMS);
    let text = std::fs::read_to_string(&list).map_err(PretrainedError::io("read", &list))?;
    let mut files = checksums(folder)?;
    for line in text.lines() {
        let (expected, name) = line.split_once("  ").ok_or_else(|| {
            PretrainedError::malformed(&list, "lines of a checksum and a file name", line)
        })?;
        if files.remove(name).as_deref() != Some(expected) {
            return Err(LearnError::Damaged { path: folder.join(name), list });
        }
    }
    match files.into_keys().next() {
        None => Ok(()),
        Some(name) => Err(LearnError::Damaged { path: folder.join(name), list }),
    }
}

/// The checksum of every file of a folder but [`CHECKSUMS`], by name.
fn checksums(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut checksums = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(PretrainedError::io("list", folder))? {
        let path = entry.map_err(PretrainedError::io("list", folder))?.path();
        let name = path.file_name().expect("it was listed").to_string_lossy().into_owned();
        if name != CHECKSUMS {
            let bytes = std::fs::read(&path).map_err(PretrainedError::io("read", &path))?;
            checksums.insert(name, blake3::hash(&bytes).to_hex().to_string());
        }
    }
    Ok(checksums)
}

/// Reads a model folder's weights.
pub(crate) fn read_model(
    folder: &Path,
    kind: Kind,
    device: Device,
) -> Result<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    corver_pretrained::read_weights(folder, |path, file| -> Result<()> {
        tensors.extend(tensors_of(path, file, Some(kind), device)?);
        Ok(())
    })?;
    Ok(tensors)
}
