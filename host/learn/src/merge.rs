//! Merging an adapter into a model's weights, for programs that serve models. Training never merges:
//! rounding to bf16 would remove the small changes of its first steps.

use std::path::Path;

use corver_core::Precision;
use corver_pretrained::PretrainedError;
use serde_json::Value as Json;
use tch::{Device, Kind};

use crate::error::{LearnError, Result};
use crate::files;
use crate::model::Model;

/// Extensions of files with weights. All other files of the folder are copied.
const WEIGHT_EXTENSIONS: [&str; 6] = ["safetensors", "bin", "pt", "pth", "gguf", "onnx"];

/// Adds the adapter in `adapter` to the weights of the model in `base`, and writes the result as the
/// Hugging Face folder `out`.
///
/// The sum is in f32 and then rounded to the dtype of `base`. `out` appears only when it is complete.
///
/// # Errors
/// Fails if `base` or `adapter` cannot be read, `out` exists, or it cannot be written.
pub fn merge(base: &Path, adapter: &Path, out: &Path, device: Device) -> Result<()> {
    if out.exists() {
        return Err(LearnError::Input {
            what: "the merged model's folder",
            expected: "a folder that does not exist yet".into(),
            got: out.display().to_string(),
        });
    }
    let mut model = Model::load(base, Precision::F32, device)?;
    model.load_adapter(adapter)?;
    model.merge_lora()?;
    let kind = stored_kind(&base.join("config.json"))?;
    let folder = files::create_folder(out)?;
    let mut weights = Vec::new();
    for (name, tensor) in model.parameters() {
        weights.push((name, tensor.f_to_kind(kind)?));
    }
    files::write_tensors(&folder.path().join("model.safetensors"), &weights)?;
    for entry in std::fs::read_dir(base).map_err(PretrainedError::io("list", base))? {
        let path = entry.map_err(PretrainedError::io("list", base))?.path();
        let name = path.file_name().unwrap_or_default();
        let holds_weights = path
            .extension()
            .is_some_and(|extension| WEIGHT_EXTENSIONS.iter().any(|known| extension == *known));
        let lists_weights = name.to_string_lossy().ends_with(".index.json");
        if path.is_file() && !holds_weights && !lists_weights {
            std::fs::copy(&path, folder.path().join(name))
                .map_err(PretrainedError::io("copy", &path))?;
        }
    }
    files::finish_folder(folder, out)
}

/// Returns the dtype of the weights according to config.json; f32 if it has none.
fn stored_kind(path: &Path) -> Result<Kind> {
    let text = corver_files::read_text(path).map_err(PretrainedError::io("read", path))?;
    let malformed =
        |got: String| PretrainedError::malformed(path, "`dtype` float32, bfloat16 or float16", got);
    let config: Json = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    match config.get("dtype").or_else(|| config.get("torch_dtype")).and_then(Json::as_str) {
        None | Some("float32") => Ok(Kind::Float),
        Some("bfloat16") => Ok(Kind::BFloat16),
        Some("float16") => Ok(Kind::Half),
        Some(other) => Err(malformed(other.to_owned()).into()),
    }
}
