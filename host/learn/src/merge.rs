//! A model with an adapter folded into its weights, for programs that serve models. Training never
//! uses one: a weight in bf16 would swallow the small changes that training begins with.

use std::path::Path;

use corver_core::Precision;
use corver_pretrained::PretrainedError;
use serde_json::Value as Json;
use tch::{Device, Kind, Tensor};

use crate::error::{LearnError, Result};
use crate::files;
use crate::model::Model;

/// What holds a model's weights in its folder. Everything else is copied.
const WEIGHTS: [&str; 6] = ["safetensors", "bin", "pt", "pth", "gguf", "onnx"];

/// Writes the Hugging Face folder `out`, which appears only when it is complete: the model in
/// `base` with the adapter in `adapter` added to its weights in f32, rounded to the dtype that
/// `base` names, in one file.
///
/// # Errors
/// Where `base` or `adapter` cannot be read, `out` exists, or it cannot be written.
pub fn merge(base: &Path, adapter: &Path, out: &Path, device: Device) -> Result<()> {
    if out.exists() {
        let expected = "a folder that does not exist yet".into();
        return Err(LearnError::Input {
            what: "the merged model's folder",
            expected,
            got: out.display().to_string(),
        });
    }
    let mut model = Model::load(base, Precision::F32, device)?;
    model.load_adapter(adapter)?;
    model.merge_lora()?;
    let kind = stored_kind(&base.join("config.json"))?;
    let folder = files::create_folder(out)?;
    let rounded = |(name, tensor): (String, &Tensor)| Ok((name, tensor.f_to_kind(kind)?));
    let weights = model.parameters().into_iter().map(rounded).collect::<Result<Vec<_>>>()?;
    files::write_tensors(&folder.path().join("model.safetensors"), &weights)?;
    for entry in std::fs::read_dir(base).map_err(PretrainedError::io("list", base))? {
        let path = entry.map_err(PretrainedError::io("list", base))?.path();
        let name = path.file_name().unwrap_or_default();
        let holds_weights = path
            .extension()
            .is_some_and(|extension| WEIGHTS.iter().any(|known| extension == *known));
        let lists_weights = name.to_string_lossy().ends_with(".index.json");
        if path.is_file() && !holds_weights && !lists_weights {
            std::fs::copy(&path, folder.path().join(name))
                .map_err(PretrainedError::io("copy", &path))?;
        }
    }
    files::finish_folder(folder, out)
}

/// What config.json says of the weights' dtype; f32 where it says nothing.
fn stored_kind(path: &Path) -> Result<Kind> {
    let text = std::fs::read_to_string(path).map_err(PretrainedError::io("read", path))?;
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
