//! Low-rank adapters (Hu et al. 2021) on every projection of a decoder layer, in PEFT's layout.
//!
//! Weights and gradients of the adapters are f32 whatever the base model's precision: with bf16
//! adapters OLMo-2 runs diverged within ten steps. Products are in the base model's precision. No
//! dropout, no bias.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corver_core::LoraSettings;
use corver_pretrained::{AdapterConfig, PretrainedError};
use serde_json::json;
use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::files;
use crate::random::RandomStream;

/// The projections that get an adapter, as PEFT names them.
pub const TARGETS: [&str; 7] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

/// The adapter of one linear layer.
#[derive(Debug)]
pub(crate) struct Adapter {
    /// A `[r, in]`, f32.
    pub(crate) a: Tensor,
    /// B `[out, r]`, f32.
    pub(crate) b: Tensor,
    pub(crate) scaling: f64,
    /// False: the reference takes the adapter's part.
    pub(crate) on: bool,
    /// A and B of the reference; `None`: the reference is the base model.
    reference: Option<(Tensor, Tensor)>,
}

/// The matrices that a forward pass uses.
pub(crate) struct ActiveAdapter<'a> {
    pub(crate) a: &'a Tensor,
    pub(crate) b: &'a Tensor,
    pub(crate) scaling: f64,
}

impl Adapter {
    /// Draws A uniformly from ±1/√in (PEFT's kaiming-uniform) and sets B to zero: the model's
    /// output does not change.
    pub(crate) fn random(
        name: &str,
        out: i64,
        input: i64,
        lora: &LoraSettings,
        seed: u64,
        device: Device,
    ) -> Result<Self> {
        let mut stream = RandomStream::new(seed, name, &[]);
        let r = lora.r as i64;
        let bound = 1.0 / (input as f32).sqrt();
        let draws: Vec<f32> =
            (0..r * input).map(|_| bound * (2.0 * stream.uniform() - 1.0)).collect();
        let a = Tensor::f_from_slice(&draws)?.f_view([r, input])?.f_to_device(device)?;
        let b = Tensor::f_zeros([out, r], (Kind::Float, device))?;
        Ok(Self::new(a, b, lora))
    }

    pub(crate) fn new(a: Tensor, b: Tensor, lora: &LoraSettings) -> Self {
        Self {
            a: a.set_requires_grad(true),
            b: b.set_requires_grad(true),
            scaling: lora.alpha / lora.r as f64,
            on: true,
            reference: None,
        }
    }

    /// Returns the adapter if it is on, else the reference's; `None` for the base model.
    pub(crate) fn active(&self) -> Option<ActiveAdapter<'_>> {
        let scaling = self.scaling;
        match &self.reference {
            _ if self.on => Some(ActiveAdapter { a: &self.a, b: &self.b, scaling }),
            Some((a, b)) => Some(ActiveAdapter { a, b, scaling }),
            None => None,
        }
    }

    /// Makes a copy of the adapter the reference.
    pub(crate) fn freeze_as_reference(&mut self) -> Result<()> {
        let a = self.a.f_detach_copy()?.set_requires_grad(false);
        let b = self.b.f_detach_copy()?.set_requires_grad(false);
        self.reference = Some((a, b));
        Ok(())
    }
}

/// Returns W + s · B A, in the precision of W.
pub(crate) fn merged_weight(
    weight: &Tensor,
    a: &Tensor,
    b: &Tensor,
    scaling: f64,
) -> Result<Tensor> {
    let delta = b.f_matmul(a)?.f_mul_scalar(scaling)?;
    Ok(weight.f_to_kind(a.f_kind()?)?.f_add(&delta)?.f_to_kind(weight.f_kind()?)?)
}

/// Returns PEFT's name of an adapter matrix (`A` or `B`) of the layer with this Hugging Face name.
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
    let mut tensors = Vec::with_capacity(2 * adapters.len());
    for (name, adapter) in adapters {
        for (matrix, tensor) in [("A", &adapter.a), ("B", &adapter.b)] {
            tensors.push((peft_name(name, matrix), tensor.f_detach()?.f_to_kind(kind)?));
        }
    }
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

/// Content of an adapter folder: the settings, and the adapters of the layers that have one.
pub(crate) struct AdapterCheckpoint {
    pub(crate) config: AdapterConfig,
    /// Tensors that no layer has taken yet, by PEFT name.
    tensors: BTreeMap<String, Tensor>,
    path: PathBuf,
}

impl AdapterCheckpoint {
    /// Reads an adapter folder. If it is a checkpoint, its checksums are verified first.
    pub(crate) fn read(folder: &Path, device: Device) -> Result<Self> {
        if folder.join(files::CHECKPOINT_STATE).exists() {
            files::verify_checksums(folder)?;
        }
        let config = AdapterConfig::read(folder)?;
        let path = folder.join("adapter_model.safetensors");
        let pickle = folder.join("adapter_model.bin");
        if !path.exists() && pickle.exists() {
            return Err(PretrainedError::InvalidModel(format!(
                "{}: an adapter in pickle's format is not read; load it with PEFT and save it again \
                 (save_pretrained), which writes adapter_model.safetensors",
                pickle.display()
            ))
            .into());
        }
        let tensors = files::read_tensors(&path, Some(Kind::Float), device)?;
        Ok(Self { config, tensors, path })
    }

    /// Takes the adapter of a layer `[out, input]`; `None` if the layer has none.
    pub(crate) fn take(&mut self, layer: &str, out: i64, input: i64) -> Result<Option<Adapter>> {
        let r = self.config.settings.r as i64;
        let a = self.take_matrix(&peft_name(layer, "A"), [r, input])?;
        let b = self.take_matrix(&peft_name(layer, "B"), [out, r])?;
        let missing = match (a, b) {
            (Some(a), Some(b)) => {
                self.config.check_target(layer)?;
                return Ok(Some(Adapter::new(a, b, &self.config.settings)));
            }
            (None, None) => return Ok(None),
            (Some(_), None) => "B",
            (None, Some(_)) => "A",
        };
        let name = peft_name(layer, missing);
        let expected = "both matrices of the adapter";
        Err(PretrainedError::tensor(&self.path, &name, expected, "only the other one").into())
    }

    fn take_matrix(&mut self, name: &str, shape: [i64; 2]) -> Result<Option<Tensor>> {
        match self.tensors.remove(name) {
            Some(tensor) if tensor.size() != shape => {
                let r = self.config.settings.r;
                let expected = format!("shape {shape:?} (from the model and r = {r})");
                let got = format!("{:?}; {}", tensor.size(), self.other_model());
                Err(PretrainedError::tensor(&self.path, name, expected, got).into())
            }
            matrix => Ok(matrix),
        }
    }

    /// Returns a remark for a tensor that does not fit: which model the adapter is for.
    fn other_model(&self) -> String {
        match &self.config.base_model {
            Some(name) => format!(
                "the adapter was trained on {name:?} (base_model_name_or_path); load it with that \
                 model"
            ),
            None => "load the adapter with the model that it was trained on".to_owned(),
        }
    }

    /// Returns the remaining tensors by PEFT name.
    pub(crate) fn into_tensors(self) -> BTreeMap<String, Tensor> {
        self.tensors
    }

    /// Checks that layers have taken all tensors.
    pub(crate) fn finish(self) -> Result<()> {
        let Some((name, tensor)) = self.tensors.first_key_value() else { return Ok(()) };
        let expected = "an adapter of a projection that the model has";
        let is_embedding = ["embed_tokens", "lm_head"].iter().any(|part| name.contains(part));
        let remark = if has_adapter_name(name) {
            "the name of the adapter is part of the tensor's name: it is a state dict. Save the \
             adapter with PEFT's save_pretrained"
                .to_owned()
        } else if is_embedding {
            "the adapter also has weights of the embedding or the output layer, which are not \
             supported. Save it with save_embedding_layers=False if they were not trained, or merge \
             it with PEFT (merge_and_unload) and use the merged model"
                .to_owned()
        } else {
            self.other_model()
        };
        let got = format!("{:?}; {remark}", tensor.size());
        Err(PretrainedError::tensor(&self.path, name, expected, got).into())
    }
}

/// Returns true for `….lora_A.NAME.weight`, which PEFT's model has and its files do not.
fn has_adapter_name(name: &str) -> bool {
    ["A", "B"].iter().any(|matrix| {
        let stem = format!(".lora_{matrix}.");
        name.split_once(&stem).is_some_and(|(_, rest)| rest.ends_with(".weight"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{tiny, with_random_adapter};

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
        let mut model = with_random_adapter("llama", &LORA);
        let base = hidden(&tiny("llama", 1));
        assert!(differ(&base, &hidden(&model)) > 1e-3);
        model.set_adapters(false);
        assert_eq!(differ(&base, &hidden(&model)), 0.0);
    }

    #[test]
    fn merged_adapters_preserve_output() {
        let mut model = with_random_adapter("qwen2", &LORA);
        let before = hidden(&model);
        model.merge_lora().unwrap();
        assert!(model.lora_parameters().is_empty());
        assert!(differ(&before, &hidden(&model)) < 1e-5);
    }

    #[test]
    fn saved_adapters_round_trip() {
        let model = with_random_adapter("olmo2", &LORA);
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
        with_random_adapter("llama", &LORA).save_adapter(dir.path()).unwrap();
        let mut config = crate::testing::tiny_config("llama");
        config.num_layers = 1;
        let mut smaller = crate::Model::random(config.clone(), 1, Device::Cpu).unwrap();
        assert!(smaller.load_adapter(dir.path()).unwrap_err().to_string().contains("layers.1"));
        config.intermediate_size = 32;
        let mut wider = crate::Model::random(config, 1, Device::Cpu).unwrap();
        assert!(wider.load_adapter(dir.path()).unwrap_err().to_string().contains("mlp"));
    }

    /// Renames or adds tensors of an adapter's file, loads it, and returns the error.
    fn error_after(change: impl Fn(&mut BTreeMap<String, Tensor>)) -> String {
        let dir = tempfile::tempdir().unwrap();
        with_random_adapter("llama", &LORA).save_adapter(dir.path()).unwrap();
        let path = dir.path().join("adapter_model.safetensors");
        let mut tensors = files::read_tensors(&path, None, Device::Cpu).unwrap();
        change(&mut tensors);
        files::write_tensors(&path, &tensors.into_iter().collect::<Vec<_>>()).unwrap();
        tiny("llama", 1).load_adapter(dir.path()).unwrap_err().to_string()
    }

    #[test]
    fn foreign_tensors_are_refused_with_a_remedy() {
        let error = error_after(|tensors| {
            *tensors = std::mem::take(tensors)
                .into_iter()
                .map(|(name, tensor)| (name.replace(".weight", ".default.weight"), tensor))
                .collect();
        });
        assert!(error.contains("state dict") && error.contains("save_pretrained"), "{error}");
        let embedding = "base_model.model.model.embed_tokens.weight";
        let error = error_after(|tensors| {
            tensors.insert(embedding.to_owned(), Tensor::from_slice(&[0f32]));
        });
        assert!(error.contains(embedding) && error.contains("merge_and_unload"), "{error}");
    }

    #[test]
    fn pickled_adapter_is_refused_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        with_random_adapter("llama", &LORA).save_adapter(dir.path()).unwrap();
        let path = dir.path().join("adapter_model.safetensors");
        std::fs::rename(path, dir.path().join("adapter_model.bin")).unwrap();
        let error = tiny("llama", 1).load_adapter(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("adapter_model.bin") && error.contains("save_pretrained"),
            "{error}"
        );
    }

    #[test]
    fn adapter_of_another_model_names_it() {
        let dir = tempfile::tempdir().unwrap();
        with_random_adapter("llama", &LORA).save_adapter(dir.path()).unwrap();
        let path = dir.path().join("adapter_config.json");
        let config = std::fs::read_to_string(&path).unwrap();
        let named = config.replace(
            "\"base_model_name_or_path\": null",
            "\"base_model_name_or_path\": \"org/other\"",
        );
        std::fs::write(&path, named).unwrap();
        let mut config = crate::testing::tiny_config("llama");
        config.intermediate_size = 32;
        let mut wider = crate::Model::random(config, 1, Device::Cpu).unwrap();
        let error = wider.load_adapter(dir.path()).unwrap_err().to_string();
        assert!(error.contains("trained on \"org/other\""), "{error}");
    }

    #[test]
    fn dora_adapter_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        with_random_adapter("llama", &LORA).save_adapter(dir.path()).unwrap();
        let path = dir.path().join("adapter_config.json");
        let config = std::fs::read_to_string(&path)
            .unwrap()
            .replace("\"use_dora\": false", "\"use_dora\": true");
        std::fs::write(&path, config).unwrap();
        let error = tiny("llama", 1).load_adapter(dir.path()).unwrap_err();
        assert!(error.to_string().contains("`use_dora` is true; only plain LoRA "), "{error}");
    }
}
