//! The weights of a folder: model.safetensors, or the shards that model.safetensors.index.json
//! lists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use safetensors::SafeTensors;

use crate::error::{PretrainedError, Result};

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

fn file_names(folder: &Path) -> Result<BTreeSet<String>> {
    let path = folder.join("model.safetensors.index.json");
    if !path.exists() {
        return Ok(BTreeSet::from(["model.safetensors".to_owned()]));
    }
    let text = corver_files::read_text(&path).map_err(PretrainedError::io("read", &path))?;
    let index: ShardIndex = serde_json::from_str(&text)
        .map_err(|error| PretrainedError::malformed(&path, "a weight_map", error))?;
    let shards: BTreeSet<String> = index.weight_map.into_values().collect();
    // A shard is in the folder of its index; a path in the index could lead out of the folder.
    match shards.iter().find(|shard| Path::new(shard).file_name() != Some(shard.as_ref())) {
        Some(shard) => Err(PretrainedError::malformed(&path, "shard names without folders", shard)),
        None => Ok(shards),
    }
}
