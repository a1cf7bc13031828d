//! Tensors on disk (safetensors), checksums, and atomic writes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use corver_files::NewFolder;
use corver_pretrained::PretrainedError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tch::{Device, Kind, Tensor};

use crate::error::{LearnError, Result};

/// Name of the file with the optimiser's state. A folder with this file is a checkpoint.
pub(crate) const CHECKPOINT_STATE: &str = "state.json";

/// Replaces a file atomically.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    Ok(corver_files::replace(path, bytes).map_err(PretrainedError::io("write", path))?)
}

/// Creates a folder under a temporary name, until [`finish_folder`].
///
/// # Errors
/// Fails if the folder cannot be created.
pub(crate) fn create_folder(target: &Path) -> Result<NewFolder> {
    Ok(NewFolder::create(target).map_err(PretrainedError::io("create", target))?)
}

/// Renames a complete folder to its final name.
///
/// # Errors
/// Fails if a folder cannot be renamed or removed.
pub(crate) fn finish_folder(folder: NewFolder, target: &Path) -> Result<()> {
    Ok(folder.finish().map_err(PretrainedError::io("rename to", target))?)
}

/// Writes tensors in the layout that `transformers` and `peft` read.
pub(crate) fn write_tensors(path: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    let mut stored = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let host_tensor = tensor.f_detach()?.f_to_device(Device::Cpu)?.f_contiguous()?;
        let dtype = match host_tensor.f_kind()? {
            Kind::Float => Dtype::F32,
            Kind::BFloat16 => Dtype::BF16,
            Kind::Half => Dtype::F16,
            Kind::Double => Dtype::F64,
            Kind::Uint8 => Dtype::U8,
            other => {
                let got = format!("{other:?}");
                let expected = "f32, bf16, f16, f64 or u8";
                return Err(PretrainedError::tensor(path, name, expected, got).into());
            }
        };
        let mut bytes = vec![0; host_tensor.numel() * dtype.bitsize() / 8];
        host_tensor.f_copy_data_u8(&mut bytes, host_tensor.numel())?;
        let shape: Vec<usize> = host_tensor.size().iter().map(|&n| n as usize).collect();
        stored.push((name, dtype, shape, bytes));
    }
    let malformed = |error: safetensors::SafeTensorError| {
        PretrainedError::malformed(path, "tensors that safetensors can hold", error)
    };
    let mut views = Vec::with_capacity(stored.len());
    for (name, dtype, shape, bytes) in &stored {
        let view = TensorView::new(*dtype, shape.clone(), bytes).map_err(malformed)?;
        views.push((name.as_str(), view));
    }
    let header = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(views, Some(header)).map_err(malformed)?;
    write(path, &bytes)
}

/// Reads the tensors of one file, which must be finite. With a `kind`, they are converted to it and
/// must be floating-point; `None` leaves them as stored.
pub(crate) fn read_tensors(
    path: &Path,
    kind: Option<Kind>,
    device: Device,
) -> Result<BTreeMap<String, Tensor>> {
    let bytes = std::fs::read(path).map_err(PretrainedError::io("read", path))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| PretrainedError::malformed(path, "a safetensors file", error))?;
    convert_tensors(path, &file, kind, device)
}

fn convert_tensors(
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
                let got = format!("{other:?}");
                return Err(
                    PretrainedError::tensor(path, name, "a floating-point tensor", got).into()
                );
            }
        };
        let shape: Option<Vec<i64>> = view.shape().iter().map(|&n| i64::try_from(n).ok()).collect();
        let host_tensor = shape
            .and_then(|shape| Tensor::f_from_data_size(view.data(), &shape, stored).ok())
            .ok_or_else(|| {
                let got = format!("{:?}", view.shape());
                PretrainedError::tensor(path, name, "a shape that libtorch can hold", got)
            })?;
        let tensor = host_tensor.f_to_device(device)?.f_to_kind(kind.unwrap_or(stored))?;
        if !is_finite(&tensor)? {
            let got = "NaN or infinite ones";
            return Err(PretrainedError::tensor(path, name, "finite numbers", got).into());
        }
        tensors.insert(name.to_owned(), tensor);
    }
    Ok(tensors)
}

/// Returns true if every number is finite.
pub(crate) fn is_finite(tensor: &Tensor) -> Result<bool> {
    Ok(tensor.f_isfinite()?.f_all()?.f_int64_value(&[])? != 0)
}

/// Name of the list with the checksum of every other file of its folder, in the format of `b3sum`.
const CHECKSUMS: &str = "checksums.b3";

/// Writes [`CHECKSUMS`]. No file of the folder may change afterwards.
pub(crate) fn write_checksums(folder: &Path) -> Result<()> {
    let mut list = String::new();
    for (name, checksum) in checksums(folder)? {
        list += &format!("{checksum}  {name}\n");
    }
    write(&folder.join(CHECKSUMS), list.as_bytes())
}

/// Compares the files of a folder with its list of checksums.
///
/// # Errors
/// Fails with [`LearnError::Damaged`] if a file was changed, removed or added.
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

/// Returns the checksum of every file of a folder except [`CHECKSUMS`], by name.
fn checksums(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut checksums = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(PretrainedError::io("list", folder))? {
        let path = entry.map_err(PretrainedError::io("list", folder))?.path();
        let name =
            path.file_name().expect("a listed file has a name").to_string_lossy().into_owned();
        if name != CHECKSUMS {
            let bytes = std::fs::read(&path).map_err(PretrainedError::io("read", &path))?;
            checksums.insert(name, blake3::hash(&bytes).to_hex().to_string());
        }
    }
    Ok(checksums)
}

/// Reads the weights of a model's folder, by Hugging Face name.
pub(crate) fn read_model(
    folder: &Path,
    kind: Kind,
    device: Device,
) -> Result<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    corver_pretrained::read_weights(folder, |path, file| -> Result<()> {
        tensors.extend(convert_tensors(path, file, Some(kind), device)?);
        Ok(())
    })?;
    Ok(tensors)
}
