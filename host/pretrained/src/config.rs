//! The architecture and sizes of a decoder, from and to Hugging Face's config.json.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::{PretrainedError, Result};
use crate::json::read_json;

/// The architecture of a supported model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFamily {
    /// Llama 3.x, which the others are variations of.
    Llama,
    /// Qwen2 and 2.5: biases on q, k and v.
    Qwen2,
    /// Qwen3: RMS norm over each head of q and k.
    Qwen3,
    /// OLMo-2: norms after the blocks instead of before them, RMS norm over all heads of q and k.
    Olmo2,
}

impl ModelFamily {
    const ALL: &[Self] = &[Self::Llama, Self::Qwen2, Self::Qwen3, Self::Olmo2];

    /// Returns the family's `model_type`.
    fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Olmo2 => "olmo2",
        }
    }

    fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Olmo2 => "Olmo2ForCausalLM",
        }
    }
}

/// Llama 3.1's scaling of the low rotary frequencies, for longer contexts.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Llama3Scaling {
    /// Divisor of low frequencies.
    pub factor: f64,
    /// Bound of the low frequencies: wave lengths above `original_max_position_embeddings /
    /// low_freq_factor` are scaled in full.
    pub low_freq_factor: f64,
    /// Bound of the high frequencies: wave lengths below `original_max_position_embeddings /
    /// high_freq_factor` are not scaled.
    pub high_freq_factor: f64,
    /// Context length of pre-training, tokens.
    pub original_max_position_embeddings: f64,
}

impl Llama3Scaling {
    fn scale(&self, frequency: f64) -> f64 {
        let waves = self.original_max_position_embeddings * frequency / std::f64::consts::TAU;
        if waves < self.low_freq_factor {
            frequency / self.factor
        } else if waves > self.high_freq_factor {
            frequency
        } else {
            let share =
                (waves - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor);
            share * frequency + (1.0 - share) * frequency / self.factor
        }
    }
}

/// The architecture and sizes of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Architecture of the model.
    pub family: ModelFamily,
    /// Rows of the embedding, V.
    pub vocab_size: usize,
    /// Width of the residual stream, D.
    pub hidden_size: usize,
    /// Width of the feed-forward block.
    pub intermediate_size: usize,
    /// Number of decoder layers.
    pub num_layers: usize,
    /// Number of query heads.
    pub num_heads: usize,
    /// Number of key/value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// Most tokens of a sequence.
    pub max_positions: usize,
    /// Constant ε of every RMS norm.
    pub norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Llama 3.1's scaling; `None` if frequencies are not scaled.
    pub rope_scaling: Option<Llama3Scaling>,
    /// True if the output layer shares the weights of the embedding.
    pub tie_embeddings: bool,
}

/// The keys of config.json that decide a computation. Other keys are ignored.
#[derive(Deserialize)]
struct RawConfig {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f64>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    hidden_act: Option<String>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
    quantization_config: Option<Value>,
}

/// Largest accepted size. Products of two sizes fit every index type.
const MAX_SIZE: usize = 1 << 24;
/// Most accepted layers, heads, and dimensions of a head. Tables of these sizes are small.
const MAX_COUNT: usize = 1 << 12;

impl ModelConfig {
    /// Returns the architecture and sizes that a config.json states.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or asks for an architecture or variation that is not
    /// supported.
    pub fn read(path: &Path) -> Result<Self> {
        let value = read_json(path)?;
        // The architecture is checked before the fields, because another one has other fields and
        // the error would blame those.
        let model_type = value.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let Some(&family) = ModelFamily::ALL.iter().find(|family| family.name() == model_type)
        else {
            let names: Vec<&str> = ModelFamily::ALL.iter().map(|family| family.name()).collect();
            return Err(PretrainedError::InvalidModel(format!(
                "{}: model_type `{model_type}` is not supported; supported are {}",
                path.display(),
                names.join(", ")
            )));
        };
        let raw = RawConfig::deserialize(&value).map_err(|error| {
            PretrainedError::malformed(path, "a decoder's configuration", error)
        })?;
        raw.refuse_variations(family, path)?;
        let rope = RopeSettings::read(&value, raw.max_position_embeddings, path)?;
        let heads = raw.num_attention_heads;
        let kv_heads = match (value.get("num_key_value_heads"), family) {
            // The default of these families, which `transformers` uses whatever the other sizes are.
            (None, ModelFamily::Qwen2 | ModelFamily::Qwen3) => 32,
            _ => raw.num_key_value_heads.unwrap_or(heads),
        };
        let own_head_dim = match family {
            ModelFamily::Qwen3 => 128,
            _ => raw.hidden_size / heads.max(1),
        };
        let own_positions = match family {
            ModelFamily::Qwen2 | ModelFamily::Qwen3 => 32_768,
            ModelFamily::Llama | ModelFamily::Olmo2 => 2048,
        };
        let config = Self {
            family,
            vocab_size: raw.vocab_size,
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            num_layers: raw.num_hidden_layers,
            num_heads: heads,
            num_kv_heads: kv_heads,
            head_dim: raw.head_dim.unwrap_or(own_head_dim),
            max_positions: raw.max_position_embeddings.unwrap_or(own_positions),
            norm_eps: raw.rms_norm_eps.unwrap_or(if family == ModelFamily::Olmo2 {
                1e-5
            } else {
                1e-6
            }),
            rope_theta: rope.theta,
            rope_scaling: rope.scaling,
            tie_embeddings: raw.tie_word_embeddings.unwrap_or(false),
        };
        config
            .check()
            .map_err(|(expected, got)| PretrainedError::malformed(path, expected, got))?;
        Ok(config)
    }

    /// Checks that the sizes and constants are possible.
    ///
    /// # Errors
    /// Fails with what is expected and what was found.
    pub fn check(&self) -> std::result::Result<(), (&'static str, String)> {
        let sizes = [
            self.vocab_size,
            self.hidden_size,
            self.intermediate_size,
            self.num_layers,
            self.num_heads,
            self.num_kv_heads,
            self.head_dim,
            self.max_positions,
        ];
        if sizes.contains(&0) {
            return Err(("sizes above 0", format!("{self:?}")));
        }
        if let Some(size) = sizes.into_iter().find(|&size| size > MAX_SIZE) {
            return Err(("sizes of at most 16,777,216", size.to_string()));
        }
        let counts = [self.num_layers, self.num_heads, self.num_kv_heads, self.head_dim];
        if let Some(count) = counts.into_iter().find(|&count| count > MAX_COUNT) {
            return Err((
                "at most 4,096 layers, heads and dimensions of a head",
                count.to_string(),
            ));
        }
        let Self { norm_eps, rope_theta, .. } = *self;
        if !(norm_eps > 0.0 && norm_eps <= 1.0) {
            return Err(("rms_norm_eps above 0 and at most 1", norm_eps.to_string()));
        }
        if !(1.0..=1e12).contains(&rope_theta) {
            return Err(("rope_theta from 1 to 1e12", rope_theta.to_string()));
        }
        if let Some(scaling) = &self.rope_scaling {
            let Llama3Scaling {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } = *scaling;
            let numbers =
                [factor, low_freq_factor, high_freq_factor, original_max_position_embeddings];
            if !(numbers.iter().all(|x| (1e-6..=1e9).contains(x))
                && high_freq_factor > low_freq_factor)
            {
                return Err((
                    "rope_scaling of numbers above 0, high_freq_factor the larger one",
                    format!("{scaling:?}"),
                ));
            }
        }
        if !self.num_heads.is_multiple_of(self.num_kv_heads) {
            let got =
                format!("{} heads over {} key/value heads", self.num_heads, self.num_kv_heads);
            return Err(("num_key_value_heads that divides num_attention_heads", got));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(("an even head_dim", self.head_dim.to_string()));
        }
        Ok(())
    }

    /// Returns the rotary frequencies `[head_dim / 2]`, radians per position: θ^(−2i/d).
    ///
    /// Llama 3.1's scaling divides low frequencies by `factor` and leaves high ones unchanged.
    /// Between, it interpolates linearly in the number of waves per context.
    #[must_use]
    pub fn rope_frequencies(&self) -> Vec<f64> {
        let d = self.head_dim;
        let mut frequencies = Vec::with_capacity(d / 2);
        for i in 0..d / 2 {
            let frequency = self.rope_theta.powf(-2.0 * i as f64 / d as f64);
            frequencies.push(match &self.rope_scaling {
                Some(scaling) => scaling.scale(frequency),
                None => frequency,
            });
        }
        frequencies
    }

    /// Returns the content of a config.json that `transformers` loads; `dtype` is its name of the
    /// stored precision.
    #[must_use]
    pub fn to_json(&self, dtype: &str) -> Value {
        let mut json = json!({
            "architectures": [self.family.architecture()],
            "model_type": self.family.name(),
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tie_embeddings,
            "hidden_act": "silu",
            "torch_dtype": dtype,
        });
        if self.family != ModelFamily::Qwen2 {
            json["attention_bias"] = json!(false);
        }
        if let Some(s) = &self.rope_scaling {
            json["rope_scaling"] = json!({
                "rope_type": "llama3",
                "factor": s.factor,
                "low_freq_factor": s.low_freq_factor,
                "high_freq_factor": s.high_freq_factor,
                // `transformers` requires an integer.
                "original_max_position_embeddings": s.original_max_position_embeddings as u64,
            });
        }
        json
    }
}

impl RawConfig {
    /// Refuses variations that would be computed wrongly without an error.
    fn refuse_variations(&self, family: ModelFamily, path: &Path) -> Result<()> {
        for (key, flag) in [
            // Qwen2 always has biases, and does not read the key.
            ("attention_bias", self.attention_bias.filter(|_| family != ModelFamily::Qwen2)),
            ("mlp_bias", self.mlp_bias),
            ("use_sliding_window", self.use_sliding_window),
        ] {
            if flag == Some(true) {
                return Err(PretrainedError::unsupported(path, key, "true", "false"));
            }
        }
        if let Some(activation) = &self.hidden_act
            && activation != "silu"
            && activation != "swish"
        {
            return Err(PretrainedError::unsupported(path, "hidden_act", activation, "silu"));
        }
        let layer_types = self.layer_types.iter().flatten();
        if let Some(kind) = layer_types.into_iter().find(|kind| *kind != "full_attention") {
            return Err(PretrainedError::unsupported(path, "layer_types", kind, "full_attention"));
        }
        if let Some(quantization) = &self.quantization_config {
            let expected = "an unquantised model";
            let key = "quantization_config";
            return Err(PretrainedError::unsupported(path, key, quantization, expected));
        }
        Ok(())
    }
}

/// The rotary settings of a config.json.
struct RopeSettings {
    theta: f64,
    scaling: Option<Llama3Scaling>,
}

impl RopeSettings {
    /// Reads the settings with the precedence of `transformers` 5.
    ///
    /// The section `rope_scaling`, which is the older name, replaces `rope_parameters`. A key of the
    /// section takes precedence over the same key outside.
    fn read(config: &Value, max_positions: Option<usize>, path: &Path) -> Result<Self> {
        let none = Map::new();
        let mut section = &none;
        let mut name = "rope_parameters";
        for key in ["rope_scaling", "rope_parameters"] {
            match config.get(key) {
                None | Some(Value::Null) => {}
                Some(Value::Object(found)) if section.is_empty() => {
                    name = key;
                    section = found;
                }
                Some(Value::Object(_)) => {}
                Some(other) => {
                    let expected = format!("an object as `{key}`");
                    return Err(PretrainedError::malformed(path, expected, other));
                }
            }
        }
        if let Some((layers, _)) = section.iter().find(|(_, value)| value.is_object()) {
            let got = format!("different for {layers}");
            return Err(PretrainedError::unsupported(path, name, got, "one for all layers"));
        }
        let setting = |key: &str| section.get(key).or_else(|| config.get(key));
        let number = |key: &str, value: &Value| match value.as_f64() {
            Some(number) => Ok(number),
            None => Err(PretrainedError::malformed(path, format!("a number as `{key}`"), value)),
        };
        let theta = match setting("rope_theta").filter(|value| !value.is_null()) {
            Some(value) => number("rope_theta", value)?,
            None => 10_000.0,
        };
        let share = setting("partial_rotary_factor").filter(|value| !value.is_null());
        if let Some(share) = share.filter(|value| value.as_f64() != Some(1.0)) {
            return Err(PretrainedError::unsupported(path, "partial_rotary_factor", share, "1"));
        }
        let kind = section.get("rope_type").or_else(|| section.get("type"));
        let scaling = match kind.map(|kind| kind.as_str().ok_or(kind)) {
            None | Some(Ok("default")) => None,
            Some(Ok("llama3")) => {
                let mut settings = section.clone();
                // The number outside takes precedence, and `max_position_embeddings` is the default.
                let key = "original_max_position_embeddings";
                if let Some(outside) = config.get(key) {
                    settings.insert(key.into(), outside.clone());
                } else if !settings.contains_key(key) {
                    settings.insert(key.into(), json!(max_positions));
                }
                Some(Llama3Scaling::deserialize(Value::Object(settings)).map_err(|error| {
                    PretrainedError::malformed(path, "llama3 rope settings", error)
                })?)
            }
            Some(Ok(other)) => {
                let expected = "`default` or `llama3`";
                return Err(PretrainedError::unsupported(path, name, other, expected));
            }
            Some(Err(other)) => {
                let expected = format!("a text as `rope_type` of `{name}`");
                return Err(PretrainedError::malformed(path, expected, other));
            }
        };
        Ok(Self { theta, scaling })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<ModelConfig> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, json).unwrap();
        ModelConfig::read(&path)
    }

    const LLAMA: &str = r#"{"model_type":"llama","vocab_size":128256,"hidden_size":3072,"intermediate_size":8192,
        "num_hidden_layers":28,"num_attention_heads":24,"num_key_value_heads":8,"head_dim":128,
        "max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":500000.0,"tie_word_embeddings":true,
        "attention_bias":false,"mlp_bias":false,"hidden_act":"silu",
        "rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,
                        "original_max_position_embeddings":8192,"rope_type":"llama3"}}"#;

    #[test]
    fn llama_3_2_config_is_parsed() {
        let config = read(LLAMA).unwrap();
        assert_eq!(
            (config.family, config.num_kv_heads, config.tie_embeddings),
            (ModelFamily::Llama, 8, true)
        );
        assert_eq!(config.rope_scaling.unwrap().factor, 32.0);
    }

    #[test]
    fn model_config_round_trips() {
        let config = read(LLAMA).unwrap();
        assert_eq!(read(&config.to_json("bfloat16").to_string()).unwrap(), config);
    }

    const SIZES: &str = r#""vocab_size":32,"hidden_size":16,"intermediate_size":16,
        "num_hidden_layers":1,"num_attention_heads":2"#;

    /// The frequencies are `LlamaRotaryEmbedding(config).inv_freq` of `transformers` 5.24.
    #[test]
    fn rope_settings_have_precedence_of_transformers() {
        let llama3 = r#""rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
            "high_freq_factor":4.0"#;
        let old = r#""original_max_position_embeddings":64"#;
        let default700 = r#""rope_parameters":{"rope_type":"default","rope_theta":700.0}"#;
        for (settings, expected) in [
            ("".to_owned(), [1.0, 0.1, 0.01, 0.001]),
            (r#","rope_theta":500.0"#.to_owned(), [1.0, 0.211474, 0.0447214, 0.00945742]),
            (
                format!(r#","rope_theta":500.0,{default700}"#),
                [1.0, 0.194413, 0.0377964, 0.00734812],
            ),
            (
                format!(r#","rope_theta":500.0,"rope_scaling":{{{llama3},{old}}},{default700}"#),
                [1.0, 0.0976166, 0.00559017, 0.00118218],
            ),
            (
                format!(
                    r#","rope_theta":500.0,"rope_scaling":{{{llama3},{old},"rope_theta":900.0}}"#
                ),
                [1.0, 0.0686007, 0.00416667, 0.000760726],
            ),
            (
                format!(r#","rope_scaling":{{{llama3},{old}}},{default700}"#),
                [1.0, 0.0130423, 0.00125, 0.000125],
            ),
            (
                format!(r#","rope_scaling":{{}},{default700}"#),
                [1.0, 0.194413, 0.0377964, 0.00734812],
            ),
            (
                format!(
                    r#","rope_scaling":null,"rope_parameters":{{{llama3},{old},"rope_theta":700.0}}"#
                ),
                [1.0, 0.079887, 0.00472456, 0.000918515],
            ),
            (
                format!(
                    r#","original_max_position_embeddings":128,
                       "rope_parameters":{{{llama3},{old},"rope_theta":700.0}}"#
                ),
                [1.0, 0.192176, 0.00472456, 0.000918515],
            ),
            (
                format!(r#","rope_parameters":{{{llama3},"rope_theta":700.0}}"#),
                [1.0, 0.194413, 0.0377964, 0.00734812],
            ),
        ] {
            let json = format!(
                r#"{{"model_type":"llama",{SIZES},"max_position_embeddings":4096{settings}}}"#
            );
            let got = read(&json).unwrap().rope_frequencies();
            assert_eq!(got.len(), 4);
            for (got, expected) in got.iter().zip(expected) {
                assert!((got / expected - 1.0).abs() < 1e-5, "{settings}: {got} {expected}");
            }
        }
    }

    #[test]
    fn unknown_rope_settings_are_refused_by_name() {
        for (settings, message) in [
            (r#""partial_rotary_factor":0.5"#, "`partial_rotary_factor` is 0.5"),
            (r#""rope_scaling":{"type":"yarn"}"#, "`rope_scaling` is yarn"),
            (r#""rope_parameters":{"rope_type":"linear"}"#, "`rope_parameters` is linear"),
            (r#""rope_parameters":{"full_attention":{}}"#, "different for full_attention"),
            (r#""rope_parameters":3"#, "an object as `rope_parameters`"),
            (r#""rope_theta":NaN"#, "a number as `rope_theta`, got \"NaN\""),
            (r#""rope_theta":-1"#, "rope_theta from 1 to 1e12"),
            (r#""rope_parameters":{"rope_type":3}"#, "a text as `rope_type`"),
        ] {
            let error = read(&format!(r#"{{"model_type":"llama",{SIZES},{settings}}}"#));
            let error = error.unwrap_err().to_string();
            assert!(error.contains(message), "{settings}: {error}");
        }
    }

    /// The sizes are those of `AutoConfig.from_pretrained` of `transformers` 5.24.
    #[test]
    fn absent_keys_have_the_defaults_of_their_family() {
        for (family, rest, expected) in [
            ("llama", "", (8, 2, 2048, 1e-6)),
            ("qwen2", r#","num_key_value_heads":null"#, (8, 2, 32_768, 1e-6)),
            ("qwen3", r#","num_key_value_heads":2"#, (128, 2, 32_768, 1e-6)),
            ("olmo2", r#","initializer_range":NaN,"x":[Infinity]"#, (8, 2, 2048, 1e-5)),
        ] {
            let config = read(&format!(r#"{{"model_type":"{family}",{SIZES}{rest}}}"#)).unwrap();
            let ModelConfig { head_dim, num_kv_heads, max_positions, norm_eps, .. } = config;
            assert_eq!((head_dim, num_kv_heads, max_positions, norm_eps), expected, "{family}");
        }
        let error = read(&format!(r#"{{"model_type":"qwen2",{SIZES}}}"#)).unwrap_err();
        assert!(error.to_string().contains("2 heads over 32"), "{error}");
    }

    #[test]
    fn huge_sizes_are_refused() {
        for (key, size) in [
            ("num_hidden_layers", "10000"),
            ("head_dim", "1000000"),
            ("num_attention_heads", "5000"),
            ("vocab_size", "100000000"),
        ] {
            let mut json: Value = serde_json::from_str(LLAMA).unwrap();
            json[key] = serde_json::from_str(size).unwrap();
            let error = read(&json.to_string()).unwrap_err().to_string();
            assert!(error.contains("at most") && error.contains(size), "{key}: {error}");
        }
    }

    #[test]
    fn unknown_architecture_error_lists_supported() {
        let error = read(r#"{"model_type":"gpt2"}"#).unwrap_err().to_string();
        assert!(error.contains("gpt2") && error.contains("llama, qwen2, qwen3, olmo2"), "{error}");
    }

    #[test]
    fn unsupported_config_variations_are_rejected() {
        let error = read(&LLAMA.replace("\"attention_bias\":false", "\"attention_bias\":true"))
            .unwrap_err();
        assert!(error.to_string().contains("`attention_bias` is true; only false "), "{error}");
        let error = read(&LLAMA.replace("\"llama3\"", "\"yarn\"")).unwrap_err();
        assert!(error.to_string().contains("`rope_scaling` is yarn; only "), "{error}");
        let error = read(&LLAMA.replace("\"num_key_value_heads\":8", "\"num_key_value_heads\":7"))
            .unwrap_err();
        assert!(error.to_string().contains("24 heads over 7"), "{error}");
    }

    fn small(rope_scaling: Option<Llama3Scaling>) -> ModelConfig {
        ModelConfig {
            family: ModelFamily::Llama,
            vocab_size: 4,
            hidden_size: 8,
            intermediate_size: 8,
            num_layers: 1,
            num_heads: 1,
            num_kv_heads: 1,
            head_dim: 8,
            max_positions: 64,
            norm_eps: 1e-6,
            rope_theta: 10_000.0,
            rope_scaling,
            tie_embeddings: true,
        }
    }

    #[test]
    fn frequencies_fall_by_powers_of_theta() {
        for (got, expected) in small(None).rope_frequencies().iter().zip([1.0, 0.1, 0.01, 0.001]) {
            assert!((got - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn llama3_scaling_stretches_only_low_frequencies() {
        let scaling = Llama3Scaling {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 1000.0,
        };
        // Waves per 1,000 positions: 159, 15.9, 1.59, 0.159.
        let got = small(Some(scaling)).rope_frequencies();
        let share = (1000.0 * 0.01 / std::f64::consts::TAU - 1.0) / 3.0;
        let expected = [1.0, 0.1, 0.01 * (share + (1.0 - share) / 8.0), 0.001 / 8.0];
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-12, "{got} {expected}");
        }
    }
}
