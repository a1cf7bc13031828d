//! Low-rank adapters (Hu et al. 2021) on every projection of a decoder layer, in PEFT's layout.
//!
//! Weights and gradients of the adapters are f32 whatever the base model's precision: with bf16
//! adapters OLMo-2 runs diverged within ten steps. They multiply in the base model's. No dropout,
//! no bias.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corver_core::LoraSettings;
use corver_pretrained::PretrainedError;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::files;
use crate::random::Stream;

/// The projections that get an adapter, as PEFT names them.
pub const TARGETS: [&str; 7] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

/// The adapter of one linear layer.
#[derive(Debug)]
pub(crate) struct Adapter {
    /// `[r, in]`
    pub(crate) a: Tensor,
    /// `[out, r]`
    pub(crate) b: Tensor,
    pub(crate) scaling: f64,
    pub(crate) on: bool,
    /// A and B of the reference, which take part while this adapter is off; `None`: the reference
    /// is the base model.
    reference: Option<(Tensor, Tensor)>,
}

impl Adapter {
    /// A uniform in ±1/√in (PEFT's kaiming-uniform), B zero: the model is unchanged at first.
    pub(crate) fn random(
        name: &str,
        out: i64,
        input: i64,
        lora: &LoraSettings,
        seed: u64,
        device: Device,
    ) -> Result<Self> {
        let mut stream = Stream::new(seed, name, &[]);
        let (r, bound) = (lora.r as i64, 1.0 / (input as f32).sqrt());
        let a: Vec<f32> = (0..r * input).map(|_| bound * (2.0 * stream.uniform() - 1.0)).collect();
        let a = Tensor::f_from_slice(&a)?.f_view([r, input])?.f_to_device(device)?;
        let b = Tensor::f_zeros([out, r], (Kind::Float, device))?;
        Ok(Self::new(a, b, lora))
    }

    pub(crate) fn new(a: Tensor, b: Tensor, lora: &LoraSettings) -> Self {
        let (a, b) = (a.set_requires_grad(true), b.set_requires_grad(true));
        Self { a, b, scaling: lora.alpha / lora.r as f64, on: true, reference: None }
    }

    /// A and B that take part now.
    pub(crate) fn active(&self) -> Option<(&Tensor, &Tensor)> {
        match self.on {
            true => Some((&self.a, &self.b)),
            false => self.reference.as_ref().map(|(a, b)| (a, b)),
        }
    }

    pub(crate) fn keep_as_reference(&mut self) -> Result<()> {
        let kept = |tensor: &Tensor| {
            Ok::<_, tch::TchError>(tensor.f_detach_copy()?.set_requires_grad(false))
        };
        self.reference = Some((kept(&self.a)?, kept(&self.b)?));
        Ok(())
    }
}

/// W + s · B A, in the precision of W.
pub(crate) fn merged_weight(
    weight: &Tensor,
    a: &Tensor,
    b: &Tensor,
    scaling: f64,
) -> Result<Tensor> {
    let delta = b.f_matmul(a)?.f_mul_scalar(scaling)?;
    Ok(weight.f_to_kind(a.f_kind()?)?.f_add(&delta)?.f_to_kind(weight.f_kind()?)?)
}

/// PEFT's name of one adapter matrix (`A` or `B`) of the layer with the given Hugging Face name.
pub(crate) fn peft_name(layer: &str, matrix: &str) -> String {
    format!("base_model.model.{layer}.lora_{matrix}.weight")
}

/// Writes adapter_model.safetensors and adapter_config.json.
pub(crate) fn write(
    folder: &Path,
    adapters: &[(String, &Adapter)],
    lora: &LoraSettings,
    base: Option<&str>,
    kind: Kind,
) -> Result<()> {
    let matrices = adapters
        .iter()
        .flat_map(|(name, x)| [(peft_name(name, "A"), &x.a), (peft_name(name, "B"), &x.b)]);
    let tensors = matrices
        .map(|(name, x)| Ok((name, x.f_detach()?.f_to_kind(kind)?)))
        .collect::<Result<Vec<_>>>()?;
    files::write_tensors(&folder.join("adapter_model.safetensors"), &tensors)?;
    let config = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.r,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": TARGETS,
        "fan_in_fan_out": false,
        "use_rslora": false,
        "use_dora": false,
        "inference_mode": true,
    });
    files::write(&folder.join("adapter_config.json"), format!("{config:#}\n").as_bytes())
}

/// Far above every adapter that was ever trained; its square is still a number in f32.
const MAX_ALPHA: f64 = 1e6;

/// An adapter folder's content: the settings, and the adapter of each layer that has one.
pub(crate) struct Stored {
    pub(crate) settings: LoraSettings,
    tensors: BTreeMap<String, Tensor>,
    path: PathBuf,
}

impl Stored {
    /// The files of a checkpoint are compared with their checksums first.
    pub(crate) fn read(folder: &Path, device: Device) -> Result<Self> {
        if folder.join(files::CHECKPOINT_STATE).exists() {
            files::verify_checksums(folder)?;
        }
        let config_path = folder.join("adapter_config.json");
        let text = std::fs::read_to_string(&config_path)
            .map_err(PretrainedError::io("read", &config_path))?;
        let malformed = |got: String| {
            let expected = "a plain LoRA configuration (r, lora_alpha)";
            PretrainedError::malformed(&config_path, expected, got)
        };
        let config: Value = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
        refuse_variations(&config, &config_path)?;
        let r = config
            .get("r")
            .and_then(Value::as_u64)
            .filter(|&r| r > 0)
            .ok_or_else(|| malformed("no r".into()))?;
        let alpha = config
            .get("lora_alpha")
            .and_then(Value::as_f64)
            .ok_or_else(|| malformed("no lora_alpha".into()))?;
        if !(0.0..=MAX_ALPHA).contains(&alpha) {
            return Err(malformed(format!(
                "a lora_alpha of {alpha}; from 0 to {MAX_ALPHA} are possible"
            ))
            .into());
        }
        let path = folder.join("adapter_model.safetensors");
        let tensors = files::read_tensors(&path, Some(Kind::Float), device)?;
        Ok(Self { settings: LoraSettings { r: r as usize, alpha }, tensors, path })
    }

    /// The adapter of the layer with this name and shape, if it is there.
    pub(crate) fn take(&mut self, layer: &str, out: i64, input: i64) -> Result<Option<Adapter>> {
        let r = self.settings.r as i64;
        let mut matrix = |which, shape: [i64; 2]| -> Result<Option<Tensor>> {
            let name = peft_name(layer, which);
            match self.tensors.remove(&name) {
                Some(tensor) if tensor.size() != shape => {
                    let expected = format!("shape {shape:?} (from the base model and r = {r})");
                    let got = format!("{:?}", tensor.size());
                    Err(PretrainedError::tensor(&self.path, &name, expected, got).into())
                }
                found => Ok(found),
            }
        };
        let (a, b) = (matrix("A", [r, input])?, matrix("B", [out, r])?);
        match (a, b) {
            (Some(a), Some(b)) => Ok(Some(Adapter::new(a, b, &self.settings))),
            (None, None) => Ok(None),
            (a, _) => {
                let name = peft_name(layer, if a.is_some() { "B" } else { "A" });
                let (expected, got) = ("both matrices of the adapter", "only the other one");
                Err(PretrainedError::tensor(&self.path, &name, expected, got).into())
            }
        }
    }

    /// All tensors, by PEFT name.
    pub(crate) fn into_tensors(self) -> BTreeMap<String, Tensor> {
        self.tensors
    }

    /// Checks that every tensor of the file found its layer.
    pub(crate) fn finish(self) -> Result<()> {
        match self.tensors.into_iter().next() {
            None => Ok(()),
            Some((name, tensor)) => {
                let expected = "an adapter of a layer that the base model has";
                let got = format!("{:?}", tensor.size());
                Err(PretrainedError::tensor(&self.path, &name, expected, got).into())
            }
        }
    }
}

fn refuse_variations(config: &Value, path: &Path) -> Result<()> {
    let plain = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text == "none",
        _ => false,
    };
    for key in [
        "use_rslora",
        "use_dora",
        "bias",
        "rank_pattern",
        "alpha_pattern",
        "modules_to_save",
        "fan_in_fan_out",
    ] {
        if let Some(value) = config.get(key).filter(|value| !plain(value)) {
            let expected = "plain LoRA without it";
            return Err(PretrainedError::unsupported(path, key, value, expected).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{stirred, tiny};

    const LORA: LoraSettings = LoraSettings { r: 3, alpha: 6.0 };

    fn hidden(model: &crate::Model) -> Tensor {
        model.hidden(&model.batch(&[&[1, 5, 2, 7]]).unwrap()).unwrap()
    }

    fn differ(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).abs().max().double_value(&[])
    }

    #[test]
    fn fresh_adapters_preserve_output_and_cover_projections() {
        let mut model = tiny("qwen3", 1);
        let before = hidden(&model);
        model.add_lora(&LORA, 7).unwrap();
        assert_eq!(differ(&before, &hidden(&model)), 0.0);
        assert_eq!(model.lora_parameters().len(), 2 * 7 * 2);
        let names: Vec<String> =
            model.lora_parameters().into_iter().map(|(name, _)| name).collect();
        assert!(
            names.contains(
                &"base_model.model.model.layers.1.mlp.down_proj.lora_A.weight".to_owned()
            )
        );
    }

    #[test]
    fn disabled_adapters_give_base_model() {
        let mut model = stirred("llama", &LORA);
        let base = hidden(&tiny("llama", 1));
        assert!(differ(&base, &hidden(&model)) > 1e-3);
        model.set_adapters(false);
        assert_eq!(differ(&base, &hidden(&model)), 0.0);
    }

    #[test]
    fn merged_adapters_preserve_output() {
        let mut model = stirred("qwen2", &LORA);
        let before = hidden(&model);
        model.merge_lora().unwrap();
        assert!(model.lora_parameters().is_empty());
        assert!(differ(&before, &hidden(&model)) < 1e-5);
    }

    #[test]
    fn saved_adapters_round_trip() {
        let model = stirred("olmo2", &LORA);
        let dir = tempfile::tempdir().unwrap();
        model.save_adapter(dir.path()).unwrap();
        let mut again = tiny("olmo2", 1);
        again.load_adapter(dir.path()).unwrap();
        assert_eq!(differ(&hidden(&model), &hidden(&again)), 0.0);
        let config = std::fs::read_to_string(dir.path().join("adapter_config.json")).unwrap();
        assert!(
            config.contains("\"peft_type\": \"LORA\"") && config.contains("\"lora_alpha\": 6"),
            "{config}"
        );
    }

    #[test]
    fn adapter_of_other_shape_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        stirred("llama", &LORA).save_adapter(dir.path()).unwrap();
        let mut config = crate::testing::tiny_config("llama");
        config.num_layers = 1;
        let mut smaller = crate::Model::random(config.clone(), 1, Device::Cpu).unwrap();
        assert!(smaller.load_adapter(dir.path()).unwrap_err().to_string().contains("layers.1"));
        config.intermediate_size = 32;
        let mut wider = crate::Model::random(config, 1, Device::Cpu).unwrap();
        assert!(wider.load_adapter(dir.path()).unwrap_err().to_string().contains("mlp"));
    }

    #[test]
    fn dora_adapter_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        stirred("llama", &LORA).save_adapter(dir.path()).unwrap();
        let path = dir.path().join("adapter_config.json");
        let config = std::fs::read_to_string(&path)
            .unwrap()
            .replace("\"use_dora\": false", "\"use_dora\": true");
        std::fs::write(&path, config).unwrap();
        let error = tiny("llama", 1).load_adapter(dir.path()).unwrap_err();
        assert!(error.to_string().contains("`use_dora` is true; only plain LoRA "), "{error}");
    }
}
