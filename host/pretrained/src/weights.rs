//! The weights of a folder: model.safetensors, or the shards that model.safetensors.index.json
//! lists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use safetensors::SafeTensors;

use crate::error::{PretrainedError, Result};

#[derive(serde::Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Shows `visit` every file of a folder's weights, one after the other: only one is in memory at a
/// time.
///
/// # Errors
/// A file that is missing or no safetensors file, an index that leads out of the folder, and what
/// `visit` returns.
pub fn read_weights<E: From<PretrainedError>>(
    folder: &Path,
    mut visit: impl FnMut(&Path, &SafeTensors<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    for name in files(folder)? {
        let path = folder.join(name);
        let bytes = std::fs::read(&path).map_err(PretrainedError::io("read", &path))?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|error| PretrainedError::malformed(&path, "a safetensors file", error))?;
        visit(&path, &file)?;
    }
    Ok(())
}

fn files(folder: &Path) -> Result<BTreeSet<String>> {
    let path = folder.join("model.safetensors.index.json");
    if !path.exists() {
        return Ok(BTreeSet::from(["model.safetensors".to_owned()]));
    }
    let text = std::fs::read_to_string(&path).map_err(PretrainedError::io("read", &path))?;
    let index: Index = serde_json::from_str(&text)
        .map_err(|error| PretrainedError::malformed(&path, "a weight_map", error))?;
    let shards: BTreeSet<String> = index.weight_map.into_values().collect();
    // A shard is a sibling of its index: a path in there would be a way out of the folder.
    match shards.iter().find(|shard| Path::new(shard).file_name() != Some(shard.as_ref())) {
        Some(shard) => Err(PretrainedError::malformed(&path, "shard names without folders", shard)),
        None => Ok(shards),
    }
}
