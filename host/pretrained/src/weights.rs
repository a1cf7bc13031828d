//! The weights of a folder: model.safetensors, else the shards that model.safetensors.index.json
//! lists. `transformers` has the same order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::Metadata;

use crate::error::{PretrainedError, Result};
use crate::json::read_json;

/// Content of model.safetensors.index.json.
#[derive(serde::Deserialize)]
struct ShardIndex {
    weight_map: BTreeMap<String, String>,
}

/// Calls `visit` with every file of a folder's weights. Only one file is in memory at a time.
///
/// # Errors
/// Fails if a file is missing or not a safetensors file, the index names a file outside the folder,
/// or `visit` fails.
pub fn read_weights<E: From<PretrainedError>>(
    folder: &Path,
    mut visit: impl FnMut(&Path, &SafeTensors<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    for name in file_names(folder)? {
        let path = folder.join(name);
        let bytes = std::fs::read(&path).map_err(PretrainedError::io("read", &path))?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|error| PretrainedError::malformed(&path, "a safetensors file", error))?;
        visit(&path, &file)?;
    }
    Ok(())
}

/// Returns the shape of every weight of a folder, by name. Only the headers of the files are read.
///
/// # Errors
/// Fails as [`read_weights`].
pub fn weight_shapes(folder: &Path) -> Result<BTreeMap<String, Vec<usize>>> {
    let mut shapes = BTreeMap::new();
    for name in file_names(folder)? {
        let path = folder.join(name);
        let header = read_header(&path).map_err(PretrainedError::io("read", &path))?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| PretrainedError::malformed(&path, "a safetensors file", error))?;
        for (tensor, info) in metadata.tensors() {
            shapes.insert(tensor, info.shape.clone());
        }
    }
    Ok(shapes)
}

/// Checks that a folder has a weight of this shape. `shapes` are those of [`weight_shapes`].
///
/// # Errors
/// Fails if it has none, or one of another shape.
pub fn check_shape(
    folder: &Path,
    shapes: &BTreeMap<String, Vec<usize>>,
    name: &str,
    expected: &[usize],
) -> Result<()> {
    let got = match shapes.get(name) {
        Some(shape) if shape == expected => return Ok(()),
        Some(shape) => format!("{shape:?}"),
        None => "no such tensor".to_owned(),
    };
    let expected = format!("shape {expected:?} (from config.json)");
    Err(PretrainedError::tensor(folder, name, expected, got))
}

/// Longest header that is read, bytes; the limit of the `safetensors` library.
const MAX_HEADER: u64 = 100_000_000;

/// Returns the header of a safetensors file: JSON after its length, which is in 8 bytes. It is cut
/// short if the file is.
fn read_header(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut length = Vec::new();
    file.by_ref().take(8).read_to_end(&mut length)?;
    let mut header = Vec::new();
    if let Ok(length) = <[u8; 8]>::try_from(length.as_slice()) {
        file.take(u64::from_le_bytes(length).min(MAX_HEADER)).read_to_end(&mut header)?;
    }
    Ok(header)
}

fn file_names(folder: &Path) -> Result<BTreeSet<String>> {
    let single = "model.safetensors".to_owned();
    let path = folder.join("model.safetensors.index.json");
    if folder.join(&single).exists() {
        return Ok(BTreeSet::from([single]));
    }
    if !path.exists() {
        let other = ["pytorch_model.bin", "pytorch_model.bin.index.json"];
        return match other.into_iter().find(|name| folder.join(name).exists()) {
            Some(name) => Err(PretrainedError::InvalidModel(format!(
                "{}: weights in pickle's format are not read; load the model with `transformers` \
                 and save it again (save_pretrained), which writes model.safetensors",
                folder.join(name).display()
            ))),
            None => Ok(BTreeSet::from([single])), // reading it reports what is missing
        };
    }
    let index: ShardIndex = serde_json::from_value(read_json(&path)?)
        .map_err(|error| PretrainedError::malformed(&path, "a weight_map", error))?;
    let shards: BTreeSet<String> = index.weight_map.into_values().collect();
    // A shard is in the folder of its index; a path in the index could lead out of the folder.
    match shards.iter().find(|shard| Path::new(shard).file_name() != Some(shard.as_ref())) {
        Some(shard) => Err(PretrainedError::malformed(&path, "shard names without folders", shard)),
        None => Ok(shards),
    }
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::*;

    fn write(folder: &Path, file: &str, name: &str, length: usize) {
        let bytes = vec![0; length];
        let view = TensorView::new(Dtype::U8, vec![length], &bytes).unwrap();
        let bytes = safetensors::serialize([(name, view)], None).unwrap();
        std::fs::write(folder.join(file), bytes).unwrap();
    }

    #[test]
    fn single_file_takes_precedence_over_shards() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(folder, "model-00001-of-00001.safetensors", "old", 3);
        let index = r#"{"weight_map": {"old": "model-00001-of-00001.safetensors"}}"#;
        std::fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
        assert_eq!(weight_shapes(folder).unwrap(), BTreeMap::from([("old".to_owned(), vec![3])]));
        write(folder, "model.safetensors", "new", 2);
        assert_eq!(weight_shapes(folder).unwrap(), BTreeMap::from([("new".to_owned(), vec![2])]));
        let mut names = Vec::new();
        read_weights(folder, |_, file| {
            names.extend(file.names().into_iter().map(str::to_owned));
            Ok::<_, PretrainedError>(())
        })
        .unwrap();
        assert_eq!(names, ["new"]);
    }

    #[test]
    fn missing_or_damaged_weights_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let error = weight_shapes(folder).unwrap_err().to_string();
        assert!(error.contains("model.safetensors"), "{error}");
        std::fs::write(folder.join("pytorch_model.bin"), "").unwrap();
        let error = weight_shapes(folder).unwrap_err().to_string();
        assert!(
            error.contains("pytorch_model.bin") && error.contains("save_pretrained"),
            "{error}"
        );
        for bytes in [&b""[..], &[1, 2], &[255; 9], &[9, 0, 0, 0, 0, 0, 0, 0, b'{']] {
            std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
            let error = weight_shapes(folder).unwrap_err().to_string();
            assert!(error.contains("expected a safetensors file"), "{error}");
        }
    }
}
