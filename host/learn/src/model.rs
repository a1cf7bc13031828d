//! A decoder-only language model: Llama 3.x, Qwen2/2.5, Qwen3 and OLMo-2 in one.

mod adapters;

use std::path::Path;

use corver_core::{LoraSettings, Precision};
use tch::{Device, Kind, Tensor};

use crate::attention::Pass;
use crate::cache::KvCache;
use crate::device::{kind, upload};
use crate::error::{LearnError, Result};
use crate::files;
use crate::layer::Layer;
use crate::libtorch::{linear, rms_norm};
use crate::packed::{Packed, check_sequence};
use crate::prompts::PromptKeys;
use crate::rope::RotaryEmbedding;
use crate::weights::{WeightRole, Weights};
use corver_pretrained::{ModelConfig, PretrainedError};

/// Hugging Face name of the embedding.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
/// Hugging Face name of the output layer.
pub(crate) const HEAD: &str = "lm_head.weight";

/// A language model with frozen weights, unless [`Model::train_all`] unfreezes them.
#[derive(Debug)]
pub struct Model {
    config: ModelConfig,
    kind: Kind,
    device: Device,
    /// `[V, D]`, one row per token id.
    embedding: Tensor,
    layers: Vec<Layer>,
    /// `[D]`, weight of the last norm.
    norm: Tensor,
    /// `[V, D]`; `None` if the output layer shares the embedding.
    head: Option<Tensor>,
    rope: RotaryEmbedding,
    lora: Option<LoraSettings>,
    /// Name by which PEFT finds the model: its folder, or `OWNER/NAME` for a download by Hugging
    /// Face's tools. `None` if the model is not from a folder.
    base_name: Option<String>,
}

impl Model {
    /// Loads a Hugging Face folder: config.json and model.safetensors, or its shards.
    ///
    /// # Errors
    /// Fails if a file cannot be read, the architecture is not supported, or a weight is missing,
    /// superfluous or of another shape.
    pub fn load(folder: &Path, precision: Precision, device: Device) -> Result<Self> {
        let config = ModelConfig::read(&folder.join("config.json"))?;
        let kind = kind(precision, device);
        let mut weights = Weights::open(folder, kind, device)?;
        let mut model = Self::build(config, kind, device, &mut weights)?;
        model.base_name = base_name(folder);
        // Some checkpoints store tensors that the architecture computes.
        weights.finish(|name| name.ends_with("rotary_emb.inv_freq"))?;
        Ok(model)
    }

    /// Creates a model in f32 whose weights are drawn from `seed`.
    ///
    /// # Errors
    /// Fails if the sizes do not fit together, or the device has no memory.
    pub fn random(config: ModelConfig, seed: u64, device: Device) -> Result<Self> {
        config.check().map_err(invalid_config)?;
        Self::build(
            config,
            Kind::Float,
            device,
            &mut Weights::Random { seed, kind: Kind::Float, device },
        )
    }

    /// Creates a model of noise from the device's own generator. It is fast and not reproducible:
    /// for measurements of time and memory.
    ///
    /// # Errors
    /// Fails as [`Model::random`].
    pub fn noise(config: ModelConfig, precision: Precision, device: Device) -> Result<Self> {
        config.check().map_err(invalid_config)?;
        let kind = kind(precision, device);
        Self::build(config, kind, device, &mut Weights::Noise { kind, device })
    }

    fn build(
        mut config: ModelConfig,
        kind: Kind,
        device: Device,
        weights: &mut Weights,
    ) -> Result<Self> {
        let d = config.hidden_size;
        let (embedding, head) = embedding_and_head(&config, weights)?;
        config.tie_embeddings = head.is_none();
        let mut layers = Vec::new();
        for n in 0..config.num_layers {
            layers.push(Layer::build(&config, n, weights)?);
        }
        let norm = weights.take("model.norm.weight", WeightRole::Norm, &[d])?;
        let rope = RotaryEmbedding::new(&config, kind, device)?;
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
            base_name: None,
        })
    }

    /// Writes config.json and model.safetensors as `transformers` reads them; creates the folder if
    /// needed.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
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

    /// Returns the architecture and its sizes.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Returns the device that holds the weights.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the dtype of the weights.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the base weights with their Hugging Face names.
    #[must_use]
    pub fn parameters(&self) -> Vec<(String, &Tensor)> {
        let mut parameters = vec![(EMBEDDING.to_owned(), &self.embedding)];
        for (n, layer) in self.layers.iter().enumerate() {
            layer.push_parameters(n, &mut parameters);
        }
        parameters.push(("model.norm.weight".into(), &self.norm));
        if let Some(head) = &self.head {
            parameters.push((HEAD.into(), head));
        }
        parameters
    }

    /// Sets whether gradients reach the base weights.
    pub fn train_all(&mut self, on: bool) {
        for (_, tensor) in self.parameters() {
            // The flag is set on the tensor itself; the returned handle is the same one.
            let _ = tensor.set_requires_grad(on);
        }
    }

    /// Returns the final hidden states `[B, T, D]` of `tokens` `[B, T]` i64, with causal attention.
    ///
    /// Shorter rows are padded **at the right** with any valid id. No token attends to a later one,
    /// so padding needs no mask and changes nothing.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn hidden(&self, tokens: &Tensor) -> Result<Tensor> {
        self.forward(tokens, &mut Pass::Full)
    }

    /// Returns the logits `[…, V]` f32 of hidden states `[…, D]`. The logits of one position are
    /// contiguous.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let contiguous = true; // as a draw needs them
        let logits = linear(hidden, self.head_weight(), None, contiguous)?;
        Ok(logits.f_to_kind(Kind::Float)?)
    }

    /// Returns the weight `[V, D]` of the output layer.
    pub(crate) fn head_weight(&self) -> &Tensor {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// Runs each prompt once, and a prefix that all share, such as a system prompt, once for all.
    /// Returns the keys and values of each prompt, and the logits `[Q, V]` of the token after it.
    pub(crate) fn prefill(&self, prompts: &[&[u32]]) -> Result<(PromptKeys, Tensor)> {
        let groups: Vec<_> = prompts.iter().map(|&prompt| (prompt, Vec::new())).collect();
        let packed = Packed::new(&self.config, self.kind, self.device, &groups)?;
        let mut keys = PromptKeys::with_capacity(self.layers.len());
        let mut pass = Pass::Prefill(&packed, &mut keys);
        let hidden = self.forward(&packed.tokens, &mut pass)?.f_squeeze_dim(0)?; // [N, D]
        let last_hidden =
            hidden.f_index_select(0, &upload(&packed.places.prompt_ends, self.device)?)?;
        let logits = self.logits(&last_hidden)?;
        Ok((packed.keys_of_prompts(prompts, keys)?, logits))
    }

    /// Returns a cache for `rows[p]` completions of prompt p, each with room for `room` tokens.
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

    /// Decodes one token per row of the cache: `tokens` `[N]` i64 → logits `[N, V]` of the next
    /// tokens.
    pub(crate) fn step(&self, tokens: &Tensor, cache: &mut KvCache) -> Result<Tensor> {
        let hidden = self.forward(&tokens.f_unsqueeze(1)?, &mut Pass::Step(cache))?;
        cache.advance();
        self.logits(&hidden.f_squeeze_dim(1)?)
    }

    /// Uploads rows of ids as `[B, T]` i64, padded at the right with 0.
    pub(crate) fn batch(&self, rows: &[&[u32]]) -> Result<Tensor> {
        let longest = rows.iter().map(|r| r.len()).max().unwrap_or(0);
        let mut flat = Vec::with_capacity(rows.len() * longest);
        for row in rows {
            check_sequence(&self.config, row)?;
            flat.extend(row.iter().map(|&id| i64::from(id)));
            flat.resize(flat.len() + longest - row.len(), 0);
        }
        Ok(upload(&flat, self.device)?.f_view([rows.len() as i64, longest as i64])?)
    }

    /// Returns the final hidden states `[N, D]` of prompts with their completions, in the order of
    /// the flat list.
    pub(crate) fn hidden_packed(&self, packed: &Packed) -> Result<Tensor> {
        Ok(self.forward(&packed.tokens, &mut Pass::Packed(packed))?.f_squeeze_dim(0)?)
    }

    /// Attends in the first layer, for tests of the layouts.
    #[cfg(test)]
    pub(crate) fn attend_packed(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        packed: &Packed,
    ) -> Result<Tensor> {
        self.layers[0].attention.attend_packed(q, k, v, packed)
    }

    fn forward(&self, tokens: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let angles = match pass {
            Pass::Step(cache) => cache.next_angles(&self.rope)?,
            Pass::Packed(packed) | Pass::Prefill(packed, _) => {
                self.rope.angles(&packed.positions)?
            }
            Pass::Full => {
                let positions = Tensor::f_arange(tokens.size()[1], (Kind::Int64, self.device))?;
                self.rope.angles(&positions)?
            }
        };
        let mut x = Tensor::f_embedding(&self.embedding, tokens, -1, false, false)?; // [B, T, D]
        for (n, layer) in self.layers.iter().enumerate() {
            x = layer.forward(x, |x| layer.attention.forward(x, &angles, pass, n))?;
        }
        rms_norm(&x, &self.norm, self.config.norm_eps)
    }
}

/// Takes the embedding `[V, D]`, and the output layer if it does not share its weights.
///
/// As in `transformers` 5, a stored output layer that differs is used even if config.json ties the
/// two, and a tied embedding that is not stored is the output layer.
fn embedding_and_head(
    config: &ModelConfig,
    weights: &mut Weights,
) -> Result<(Tensor, Option<Tensor>)> {
    let shape = [config.vocab_size, config.hidden_size];
    if !config.tie_embeddings {
        let embedding = weights.take(EMBEDDING, WeightRole::Matrix, &shape)?;
        return Ok((embedding, Some(weights.take(HEAD, WeightRole::Matrix, &shape)?)));
    }
    if !weights.has(HEAD) {
        return Ok((weights.take(EMBEDDING, WeightRole::Matrix, &shape)?, None));
    }
    let head = weights.take(HEAD, WeightRole::Matrix, &shape)?;
    if !weights.has(EMBEDDING) {
        return Ok((head, None));
    }
    let embedding = weights.take(EMBEDDING, WeightRole::Matrix, &shape)?;
    if embedding.f_equal(&head)? {
        return Ok((embedding, None));
    }
    tracing::warn!(
        "config.json ties the output layer to the embedding, and the folder has another one \
         ({HEAD}), which is used; set `tie_word_embeddings` to false"
    );
    Ok((embedding, Some(head)))
}

fn invalid_config((expected, got): (&'static str, String)) -> LearnError {
    LearnError::Input { what: "model config", expected: expected.into(), got }
}

/// Returns the name by which PEFT finds the model of a folder.
fn base_name(folder: &Path) -> Option<String> {
    let folder = std::path::absolute(folder).ok()?;
    hub_name(&folder).or_else(|| Some(folder.to_str()?.to_owned()))
}

/// Returns `OWNER/NAME` for `…/models--OWNER--NAME/snapshots/REVISION`, the layout of Hugging Face's
/// cache.
fn hub_name(folder: &Path) -> Option<String> {
    let snapshots = folder.parent().filter(|parent| parent.ends_with("snapshots"))?;
    let repository = snapshots.parent()?.file_name()?.to_str()?;
    Some(repository.strip_prefix("models--")?.replacen("--", "/", 1))
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
        let tensors: Vec<_> =
            files::read_tensors(&dir.path().join("model.safetensors"), None, Device::Cpu)
                .unwrap()
                .into_iter()
                .collect();
        std::fs::remove_file(dir.path().join("model.safetensors")).unwrap();
        let mut weight_map = serde_json::Map::new();
        for (n, part) in tensors.chunks(tensors.len() / 2 + 1).enumerate() {
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

    /// Writes a model with tied embeddings whose file also has an output layer.
    fn write_tied(folder: &Path, head: impl Fn(&Tensor) -> Option<Tensor>) -> Model {
        let model = tiny("llama", 5); // its output layer is its own
        model.save(folder).unwrap();
        let path = folder.join("config.json");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(
            &path,
            config.replace("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"),
        )
        .unwrap();
        let path = folder.join("model.safetensors");
        let mut tensors = files::read_tensors(&path, None, Device::Cpu).unwrap();
        let own = tensors.remove(HEAD).unwrap();
        if let Some(head) = head(&own) {
            tensors.insert(HEAD.to_owned(), head);
        }
        files::write_tensors(&path, &tensors.into_iter().collect::<Vec<_>>()).unwrap();
        model
    }

    /// `transformers` 5.24 loads such folders with `tie_word_embeddings` ignored, obeyed and obeyed.
    #[test]
    fn tied_output_layer_is_that_of_transformers() {
        let load = |folder: &Path| Model::load(folder, Precision::F32, Device::Cpu).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let model = write_tied(dir.path(), |own| Some(own.copy()));
        let loaded = load(dir.path());
        assert_eq!(differ(loaded.head_weight(), model.head_weight()), 0.0);
        assert!(!loaded.config().tie_embeddings);

        write_tied(dir.path(), |_| Some(model.embedding.copy()));
        let loaded = load(dir.path());
        assert!(loaded.head.is_none() && loaded.config().tie_embeddings);
        assert_eq!(differ(loaded.head_weight(), &model.embedding), 0.0);

        write_tied(dir.path(), |_| None);
        assert!(load(dir.path()).head.is_none());

        write_tied(dir.path(), |own| Some(own.copy()));
        let path = dir.path().join("model.safetensors");
        let mut tensors = files::read_tensors(&path, None, Device::Cpu).unwrap();
        tensors.remove(EMBEDDING);
        files::write_tensors(&path, &tensors.into_iter().collect::<Vec<_>>()).unwrap();
        let loaded = load(dir.path());
        assert!(loaded.head.is_none());
        assert_eq!(differ(&loaded.embedding, model.head_weight()), 0.0);
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
        let message = error.to_string();
        assert!(
            message.contains("model.safetensors")
                && message.contains("`x`")
                && message.contains("9223372036854775808"),
            "{message}"
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
