//! A decoder-only language model: Llama 3.x, Qwen2/2.5, Qwen3 and OLMo-2 in one.

use std::path::Path;

use corver_core::LoraSettings;
use corver_core::Precision;
use tch::{Device, Kind, Tensor};

use crate::attention::Pass;
use crate::cache::KvCache;
use crate::device::kind;
use crate::error::{LearnError, Result};
use crate::files;
use crate::layer::{Layer, rms_norm};
use crate::linear::{Linear, project};
use crate::lora::{self, Adapter};
use crate::packed::{Packed, check_sequence};
use crate::prompts::PromptKeys;
use crate::rope::Rope;
use crate::weights::{Role, Weights};
use corver_pretrained::{ModelConfig, PretrainedError};

/// The model; weights are frozen unless [`Model::train_all`] says otherwise.
#[derive(Debug)]
pub struct Model {
    config: ModelConfig,
    kind: Kind,
    device: Device,
    /// `[V, D]`
    embedding: Tensor,
    layers: Vec<Layer>,
    /// `[D]`
    norm: Tensor,
    /// `[V, D]`; `None` where the embedding serves.
    head: Option<Tensor>,
    rope: Rope,
    lora: Option<LoraSettings>,
    /// Where it was loaded from: its folder, or `OWNER/NAME` for a download of Hugging Face's
    /// tools.
    base: Option<String>,
}

impl Model {
    /// Loads a Hugging Face folder: config.json and model.safetensors, or its shards.
    ///
    /// # Errors
    /// An unreadable file, an architecture that is not supported, a weight that is missing,
    /// superfluous or misshapen.
    pub fn load(folder: &Path, precision: Precision, device: Device) -> Result<Self> {
        let config = ModelConfig::read(&folder.join("config.json"))?;
        let kind = kind(precision, device);
        let mut weights = Weights::open(folder, kind, device)?;
        let model =
            Self { base: base_name(folder), ..Self::build(config, kind, device, &mut weights)? };
        let tied = model.head.is_none();
        weights.finish(|name| {
            (tied && name == "lm_head.weight") || name.ends_with("rotary_emb.inv_freq")
        })?;
        Ok(model)
    }

    /// A model whose weights are drawn from `seed`, in f32.
    ///
    /// # Errors
    /// Sizes that do not fit together, or no memory on the device.
    pub fn random(config: ModelConfig, seed: u64, device: Device) -> Result<Self> {
        config.check().map_err(wrong_shape)?;
        Self::build(
            config,
            Kind::Float,
            device,
            &mut Weights::Random { seed, kind: Kind::Float, device },
        )
    }

    /// A model of noise, made on the device itself: for measurements, which do not care what it
    /// says.
    ///
    /// # Errors
    /// As [`Model::random`].
    pub fn noise(config: ModelConfig, precision: Precision, device: Device) -> Result<Self> {
        config.check().map_err(wrong_shape)?;
        let kind = kind(precision, device);
        Self::build(config, kind, device, &mut Weights::Noise { kind, device })
    }

    fn build(
        config: ModelConfig,
        kind: Kind,
        device: Device,
        weights: &mut Weights,
    ) -> Result<Self> {
        let (v, d) = (config.vocab_size, config.hidden_size);
        let embedding = weights.take("model.embed_tokens.weight", Role::Matrix, &[v, d])?;
        let layers = (0..config.num_layers)
            .map(|n| Layer::build(&config, n, weights))
            .collect::<Result<_>>()?;
        let norm = weights.take("model.norm.weight", Role::Norm, &[d])?;
        let head = match config.tie_embeddings {
            true => None,
            false => Some(weights.take("lm_head.weight", Role::Matrix, &[v, d])?),
        };
        let rope = Rope::new(&config, kind, device)?;
        Ok(Self {
            config,
            kind,
            device,
            embedding,
            layers,
            norm,
            head,
            rope,
            lora: None,
            base: None,
        })
    }

    /// Writes config.json and model.safetensors, as `transformers` reads them; the folder is made
    /// if need be.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(PretrainedError::io("create", folder))?;
        let tensors: Vec<_> = self
            .parameters()
            .into_iter()
            .map(|(name, tensor)| (name, tensor.shallow_clone()))
            .collect();
        files::write_tensors(&folder.join("model.safetensors"), &tensors)?;
        let dtype = if self.kind == Kind::BFloat16 { "bfloat16" } else { "float32" };
        let config = format!("{:#}\n", self.config.to_json(dtype));
        files::write(&folder.join("config.json"), config.as_bytes())
    }

    /// The shape.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Where the weights are.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Dtype of the weights.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Base weights with their Hugging Face names.
    #[must_use]
    pub fn parameters(&self) -> Vec<(String, &Tensor)> {
        let mut all = vec![("model.embed_tokens.weight".to_owned(), &self.embedding)];
        for (n, layer) in self.layers.iter().enumerate() {
            layer.parameters(n, &mut all);
        }
        all.push(("model.norm.weight".into(), &self.norm));
        all.extend(self.head.as_ref().map(|head| ("lm_head.weight".to_owned(), head)));
        all
    }

    /// Whether gradients reach the base weights.
    pub fn train_all(&mut self, on: bool) {
        for (_, tensor) in self.parameters() {
            // The flag is set on the tensor itself; the returned handle is the same one.
            let _ = tensor.set_requires_grad(on);
        }
    }

    /// Adds fresh adapters to every projection; they change nothing until they are trained.
    ///
    /// # Errors
    /// A rank of 0, or no memory on the device.
    pub fn add_lora(&mut self, lora: &LoraSettings, seed: u64) -> Result<()> {
        if let Some(problem) = corver_settings::check("update.lora", lora).into_iter().next() {
            return Err(problem.into());
        }
        let device = self.device;
        for linear in self.linears_mut() {
            let (out, input) = linear.weight.size2()?;
            linear.adapter = Some(Adapter::random(&linear.name, out, input, lora, seed, device)?);
        }
        self.lora = Some(*lora);
        Ok(())
    }

    /// Takes the adapters of a folder in PEFT's layout; the model's own are dropped.
    ///
    /// # Errors
    /// Files that cannot be read, another kind of adapter, or adapters that do not fit this model.
    pub fn load_adapter(&mut self, folder: &Path) -> Result<()> {
        let mut stored = lora::Stored::read(folder, self.device)?;
        let settings = stored.settings;
        let mut loaded = Vec::new();
        for linear in self.linears_mut() {
            let (out, input) = linear.weight.size2()?;
            loaded.push(stored.take(&linear.name, out, input)?);
        }
        stored.finish()?;
        for (linear, adapter) in self.linears_mut().zip(loaded) {
            linear.adapter = adapter;
        }
        self.lora = Some(settings);
        Ok(())
    }

    /// Writes the adapters in PEFT's layout; the folder is made if need be.
    ///
    /// # Errors
    /// A model without adapters, or a file that cannot be written.
    pub fn save_adapter(&self, folder: &Path) -> Result<()> {
        self.save_adapter_in(folder, Precision::F32)
    }

    /// As [`Self::save_adapter`], in bf16 where that is the precision, else in f32.
    pub(crate) fn save_adapter_in(&self, folder: &Path, precision: Precision) -> Result<()> {
        let Some(settings) = &self.lora else {
            return Err(LearnError::Input {
                what: "model",
                expected: "adapters".into(),
                got: "none".into(),
            });
        };
        std::fs::create_dir_all(folder).map_err(PretrainedError::io("create", folder))?;
        let adapters: Vec<_> = self
            .linears()
            .filter_map(|linear| Some((linear.name.clone(), linear.adapter.as_ref()?)))
            .collect();
        let kind = if precision == Precision::Bf16 { Kind::BFloat16 } else { Kind::Float };
        lora::write(folder, &adapters, settings, self.base.as_deref(), kind)
    }

    /// Folds the adapters into the weights and drops them.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn merge_lora(&mut self) -> Result<()> {
        let _guard = tch::no_grad_guard();
        for linear in self.linears_mut() {
            if let Some(adapter) = linear.adapter.take() {
                linear.weight =
                    lora::merged_weight(&linear.weight, &adapter.a, &adapter.b, adapter.scaling)?;
            }
        }
        self.lora = None;
        Ok(())
    }

    /// From now on the model without its adapters is what it is now, in place of the base model.
    ///
    /// # Errors
    /// Where the device has no room for another adapter.
    pub fn keep_as_reference(&mut self) -> Result<()> {
        self.linears_mut()
            .filter_map(|linear| linear.adapter.as_mut())
            .try_for_each(Adapter::keep_as_reference)
    }

    /// Whether the adapters take part; without them the model is the base model, or what
    /// [`Self::keep_as_reference`] kept. Returns whether they did before.
    pub fn set_adapters(&mut self, on: bool) -> bool {
        let mut were = false;
        for adapter in self.linears_mut().filter_map(|linear| linear.adapter.as_mut()) {
            were |= adapter.on;
            adapter.on = on;
        }
        were
    }

    /// The adapters' settings, where there are adapters.
    #[must_use]
    pub fn lora(&self) -> Option<&LoraSettings> {
        self.lora.as_ref()
    }

    /// Adapter weights with their PEFT names.
    #[must_use]
    pub fn lora_parameters(&self) -> Vec<(String, &Tensor)> {
        self.linears()
            .filter_map(|linear| Some((linear.name.as_str(), linear.adapter.as_ref()?)))
            .flat_map(|(name, x)| {
                [(lora::peft_name(name, "A"), &x.a), (lora::peft_name(name, "B"), &x.b)]
            })
            .collect()
    }

    fn linears(&self) -> impl Iterator<Item = &Linear> {
        self.layers.iter().flat_map(Layer::linears)
    }

    fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear> {
        self.layers.iter_mut().flat_map(Layer::linears_mut)
    }

    /// `tokens` `[B, T]` i64 → the final hidden states `[B, T, D]`, causal. Shorter rows are padded
    /// **at the right** with any valid id: no real token looks at a later one, so that padding
    /// needs no mask and changes nothing.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn hidden(&self, tokens: &Tensor) -> Result<Tensor> {
        self.forward(tokens, &mut Pass::Whole)
    }

    /// `hidden` `[…, D]` → logits `[…, V]` f32, those of one place next to each other.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        Ok(project(hidden, self.head_weight(), None)?.f_to_kind(Kind::Float)?.f_contiguous()?)
    }

    /// `[V, D]`
    pub(crate) fn head_weight(&self) -> &Tensor {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// Runs the prompts once; returns their keys and values, and the logits `[Q, V]` of each one's
    /// next token.
    pub(crate) fn prefill(&self, prompts: &[&[u32]]) -> Result<(PromptKeys, Tensor)> {
        let groups: Vec<_> = prompts.iter().map(|&prompt| (prompt, Vec::new())).collect();
        let packed = Packed::new(&self.config, self.device, &groups)?;
        let mut keys = PromptKeys::with_capacity(self.layers.len());
        let hidden = self.forward(&packed.tokens, &mut Pass::Prefill(&packed, &mut keys))?; // [1, ΣP, D]
        let last: Vec<i64> =
            packed.groups.iter().map(|group| group.start + group.prompt - 1).collect();
        let last = Tensor::f_from_slice(&last)?.f_to_device(self.device)?;
        let logits = self.logits(&hidden.f_squeeze_dim(0)?.f_index_select(0, &last)?)?;
        Ok((keys, logits))
    }

    /// A cache for `rows[p]` completions of prompt p.
    pub(crate) fn cache(
        &self,
        keys: PromptKeys,
        prompts: &[&[u32]],
        rows: &[usize],
        room: usize,
    ) -> Result<KvCache> {
        let lengths: Vec<usize> = prompts.iter().map(|prompt| prompt.len()).collect();
        let group = self.config.num_heads / self.config.num_kv_heads;
        KvCache::new(keys, &lengths, rows, group as i64, room)
    }

    /// Takes the adapters as they are now until what comes back is dropped; no gradient reaches
    /// them until then.
    pub(crate) fn freeze(&self) -> Result<Frozen<'_>> {
        let frozen = Frozen(self);
        self.layers.iter().try_for_each(Layer::freeze)?;
        Ok(frozen)
    }

    /// `tokens` `[N]` i64, one per row of the cache → logits `[N, V]` of the next ones.
    pub(crate) fn step(&self, tokens: &Tensor, cache: &mut KvCache) -> Result<Tensor> {
        let hidden = self.forward(&tokens.f_unsqueeze(1)?, &mut Pass::Step(cache))?;
        cache.advance()?;
        self.logits(&hidden.f_squeeze_dim(1)?)
    }

    /// Rows of ids → `[B, T]` i64 on the device, padded at the right with 0.
    pub(crate) fn batch(&self, rows: &[&[u32]]) -> Result<Tensor> {
        let longest = rows.iter().map(|r| r.len()).max().unwrap_or(0);
        let mut flat = Vec::with_capacity(rows.len() * longest);
        for row in rows {
            check_sequence(&self.config, row)?;
            flat.extend(row.iter().map(|&id| i64::from(id)));
            flat.resize(flat.len() + longest - row.len(), 0);
        }
        Ok(Tensor::f_from_slice(&flat)?
            .f_view([rows.len() as i64, longest as i64])?
            .f_to_device(self.device)?)
    }

    /// Prompts with their completions → the final hidden states `[N, D]`, in the order of the flat
    /// list.
    pub(crate) fn hidden_packed(&self, packed: &Packed) -> Result<Tensor> {
        Ok(self.forward(&packed.tokens, &mut Pass::Packed(packed))?.f_squeeze_dim(0)?)
    }

    fn forward(&self, tokens: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let angles = match pass {
            Pass::Step(cache) => self.rope.angles(cache.next_position())?,
            Pass::Packed(packed) | Pass::Prefill(packed, _) => {
                self.rope.angles(&packed.positions)?
            }
            _ => self
                .rope
                .angles(&Tensor::f_arange(tokens.size()[1], (Kind::Int64, self.device))?)?,
        };
        let mut x = Tensor::f_embedding(&self.embedding, tokens, -1, false, false)?; // [B, T, D]
        for (n, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&x, |x| layer.attention.forward(x, &angles, pass, n))?;
        }
        rms_norm(&x, &self.norm, self.config.norm_eps)
    }
}

/// See [`Model::freeze`].
pub(crate) struct Frozen<'m>(&'m Model);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.layers.iter().for_each(Layer::thaw);
    }
}

fn wrong_shape((expected, got): (&'static str, String)) -> LearnError {
    LearnError::Input { what: "model config", expected: expected.into(), got }
}

/// What `peft` finds the model by.
fn base_name(folder: &Path) -> Option<String> {
    let folder = std::path::absolute(folder).ok()?;
    let repository = || {
        let repository = folder
            .parent()
            .filter(|parent| parent.ends_with("snapshots"))?
            .parent()?
            .file_name()?
            .to_str()?;
        Some(repository.strip_prefix("models--")?.replacen("--", "/", 1))
    };
    repository().or_else(|| Some(folder.to_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{tiny, tiny_config};

    const FAMILIES: [&str; 4] = ["llama", "qwen2", "qwen3", "olmo2"];

    fn differ(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).abs().max().double_value(&[])
    }

    #[test]
    fn right_padding_does_not_change_hidden_states() {
        for family in FAMILIES {
            let model = tiny(family, 1);
            let (short, long): (&[u32], &[u32]) = (&[4, 5, 6], &[1, 2, 3, 4, 5, 6, 7, 8]);
            let alone = model.hidden(&model.batch(&[short]).unwrap()).unwrap();
            let padded = model.hidden(&model.batch(&[short, long]).unwrap()).unwrap();
            assert!(
                differ(&alone.select(0, 0), &padded.select(0, 0).narrow(0, 0, 3)) < 1e-5,
                "{family}"
            );
        }
    }

    #[test]
    fn hidden_states_ignore_later_tokens() {
        let model = tiny("qwen3", 2);
        let a = model.hidden(&model.batch(&[&[1, 2, 3, 4]]).unwrap()).unwrap();
        let b = model.hidden(&model.batch(&[&[1, 2, 3, 9]]).unwrap()).unwrap();
        assert!(differ(&a.narrow(1, 0, 3), &b.narrow(1, 0, 3)) < 1e-6);
        assert!(differ(&a.select(1, 3), &b.select(1, 3)) > 1e-4);
    }

    #[test]
    fn saved_model_round_trips() {
        for family in FAMILIES {
            let model = tiny(family, 3);
            let dir = tempfile::tempdir().unwrap();
            model.save(dir.path()).unwrap();
            let again = Model::load(dir.path(), Precision::F32, Device::Cpu).unwrap();
            let tokens = model.batch(&[&[1, 5, 2]]).unwrap();
            assert_eq!(
                differ(&model.hidden(&tokens).unwrap(), &again.hidden(&tokens).unwrap()),
                0.0,
                "{family}"
            );
        }
    }

    #[test]
    fn sharded_weights_load_like_single_file() {
        let model = tiny("llama", 4);
        let dir = tempfile::tempdir().unwrap();
        model.save(dir.path()).unwrap();
        let all =
            files::read_tensors(&dir.path().join("model.safetensors"), None, Device::Cpu).unwrap();
        std::fs::remove_file(dir.path().join("model.safetensors")).unwrap();
        let mut weight_map = serde_json::Map::new();
        let all: Vec<_> = all.into_iter().collect();
        for (n, part) in all.chunks(all.len() / 2 + 1).enumerate() {
            let name = format!("model-{n}.safetensors");
            let part: Vec<_> = part.iter().map(|(k, t)| (k.clone(), t.shallow_clone())).collect();
            files::write_tensors(&dir.path().join(&name), &part).unwrap();
            weight_map.extend(part.into_iter().map(|(k, _)| (k, name.clone().into())));
        }
        let index = serde_json::json!({ "weight_map": weight_map }).to_string();
        std::fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
        let again = Model::load(dir.path(), Precision::F32, Device::Cpu).unwrap();
        let tokens = model.batch(&[&[1, 5, 2]]).unwrap();
        assert_eq!(differ(&model.hidden(&tokens).unwrap(), &again.hidden(&tokens).unwrap()), 0.0);
    }

    #[test]
    fn mismatching_weights_are_named_in_error() {
        let model = tiny("llama", 5);
        let dir = tempfile::tempdir().unwrap();
        model.save(dir.path()).unwrap();
        let path = dir.path().join("model.safetensors");
        let tensors: Vec<_> =
            files::read_tensors(&path, None, Device::Cpu).unwrap().into_iter().collect();

        let missing: Vec<_> =
            tensors.iter().filter(|(n, _)| n != "lm_head.weight").map(clone).collect();
        files::write_tensors(&path, &missing).unwrap();
        let error = Model::load(dir.path(), Precision::F32, Device::Cpu).unwrap_err().to_string();
        assert!(error.contains("lm_head.weight") && error.contains("no such tensor"), "{error}");

        let mut surplus: Vec<_> = tensors.iter().map(clone).collect();
        surplus.push(("model.layers.0.self_attn.q_proj.bias".into(), Tensor::from_slice(&[0f32])));
        files::write_tensors(&path, &surplus).unwrap();
        let error = Model::load(dir.path(), Precision::F32, Device::Cpu).unwrap_err().to_string();
        assert!(error.contains("q_proj.bias"), "{error}");

        let wrong = tensors.iter().map(|(n, t)| {
            (n.clone(), if n == "model.norm.weight" { t.narrow(0, 0, 3) } else { t.copy() })
        });
        files::write_tensors(&path, &wrong.collect::<Vec<_>>()).unwrap();
        let error = Model::load(dir.path(), Precision::F32, Device::Cpu).unwrap_err().to_string();
        assert!(
            error.contains("model.norm.weight") && error.contains("[16]") && error.contains("[3]"),
            "{error}"
        );
    }

    #[test]
    fn oversized_tensor_shape_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        tiny("llama", 5).save(dir.path()).unwrap();
        let header =
            br#"{"x":{"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header].concat();
        std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
        let error = Model::load(dir.path(), Precision::F32, Device::Cpu).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("model.safetensors")
                && said.contains("`x`")
                && said.contains("9223372036854775808"),
            "{said}"
        );
    }

    fn clone((name, tensor): &(String, Tensor)) -> (String, Tensor) {
        (name.clone(), tensor.shallow_clone())
    }

    #[test]
    fn base_model_name_is_resolvable_by_peft() {
        let name = |folder: &str| base_name(Path::new(folder));
        assert_eq!(name("/models/Qwen3-8B").unwrap(), "/models/Qwen3-8B");
        assert_eq!(name("/hub/models--Qwen--Qwen3-8B/snapshots/1a2b").unwrap(), "Qwen/Qwen3-8B");
        let dir = tempfile::tempdir().unwrap();
        tiny("llama", 1).save(dir.path()).unwrap();
        let mut model = Model::load(dir.path(), Precision::F32, Device::Cpu).unwrap();
        model.add_lora(&LoraSettings { r: 2, alpha: 4.0 }, 1).unwrap();
        model.save_adapter(&dir.path().join("adapter")).unwrap();
        let config =
            std::fs::read_to_string(dir.path().join("adapter/adapter_config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!(config["base_model_name_or_path"], dir.path().to_str().unwrap());
    }

    #[test]
    fn random_model_is_determined_by_seed() {
        let weights = |seed| {
            let model = Model::random(tiny_config("qwen2"), seed, Device::Cpu).unwrap();
            Vec::<f32>::try_from(model.embedding.flatten(0, -1)).unwrap()
        };
        assert_eq!(weights(1), weights(1));
        assert_ne!(weights(1), weights(2));
    }
}
