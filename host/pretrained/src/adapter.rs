//! adapter_config.json of an adapter in PEFT's layout.

use std::path::{Path, PathBuf};

use corver_core::LoraSettings;
use serde_json::{Map, Value, json};

use crate::error::{PretrainedError, Result};
use crate::json::read_json;

/// Largest `lora_alpha` that is read: far above any in use, and its square is finite in f32.
const MAX_ALPHA: f64 = 1e6;

/// Keys that say where an adapter comes from, or affect only its training.
const WITHOUT_EFFECT: [&str; 13] = [
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "eva_config",
    "inference_mode",
    "lora_dropout",
    "lora_ga_config",
    "loftq_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "task_type",
];

/// Initialisations that leave the base model unchanged. The others subtract the first adapter from
/// it, so that a trained adapter fits only the changed model.
const PLAIN_INITS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

/// The settings of a plain LoRA adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterConfig {
    /// Rank and scale.
    pub settings: LoraSettings,
    /// Name of the model that the adapter was trained on, as PEFT found it.
    pub base_model: Option<String>,
    /// The layers that have an adapter: names, or ends of them. `None`: an expression, which is not
    /// evaluated.
    targets: Option<Vec<String>>,
    path: PathBuf,
}

impl AdapterConfig {
    /// Reads the configuration in an adapter's folder.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or has a setting that plain LoRA does not have.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("adapter_config.json");
        if !path.exists() && folder.join("config.json").exists() {
            return Err(PretrainedError::InvalidModel(format!(
                "{}: this is the folder of a model; an adapter has adapter_config.json and \
                 adapter_model.safetensors (PEFT's save_pretrained writes them)",
                folder.display()
            )));
        }
        let config = read_json(&path)?;
        let malformed = |got: String| {
            PretrainedError::malformed(&path, "a plain LoRA configuration (r, lora_alpha)", got)
        };
        let config = config.as_object().ok_or_else(|| malformed(config.to_string()))?;
        refuse_variations(config, &path)?;
        let r = config.get("r").and_then(Value::as_u64).filter(|&r| r > 0);
        let r = r.ok_or_else(|| malformed("no r".to_owned()))?;
        let alpha = config.get("lora_alpha").and_then(Value::as_f64);
        let alpha = alpha.ok_or_else(|| malformed("no lora_alpha".to_owned()))?;
        if !(0.0..=MAX_ALPHA).contains(&alpha) {
            let got = format!("a lora_alpha of {alpha}; from 0 to {MAX_ALPHA} are possible");
            return Err(malformed(got));
        }
        let base_model = config.get("base_model_name_or_path").and_then(Value::as_str);
        let targets = config
            .get("target_modules")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        Ok(Self {
            settings: LoraSettings { r: r as usize, alpha },
            base_model: base_model.map(str::to_owned),
            targets,
            path,
        })
    }

    /// Checks that `target_modules` names a layer whose matrices the adapter has. PEFT would ignore
    /// them otherwise.
    ///
    /// # Errors
    /// Fails if it does not.
    pub fn check_target(&self, layer: &str) -> Result<()> {
        let Some(targets) = &self.targets else { return Ok(()) };
        let is_named = targets.iter().any(|target| {
            layer
                .strip_suffix(target.as_str())
                .is_some_and(|before| before.is_empty() || before.ends_with('.'))
        });
        if is_named {
            return Ok(());
        }
        let expected = format!("`target_modules` with {layer}, for which there are weights");
        Err(PretrainedError::malformed(&self.path, expected, targets.join(", ")))
    }
}

/// Refuses every setting that is not known to leave plain LoRA as it is.
fn refuse_variations(config: &Map<String, Value>, path: &Path) -> Result<()> {
    for (key, value) in config {
        let expected = match key.as_str() {
            "r" | "lora_alpha" | "target_modules" => continue,
            known if WITHOUT_EFFECT.contains(&known) => continue,
            "peft_type" if value == "LORA" || value.is_null() => continue,
            "peft_type" => "LORA",
            "init_lora_weights" if is_plain_init(value) => continue,
            "init_lora_weights" => {
                return Err(PretrainedError::InvalidModel(format!(
                    "{}: `init_lora_weights` is {value}: such an adapter changes the base model as \
                     well. Convert it with PEFT (save_pretrained with \
                     path_initial_model_for_weight_conversion), or merge it with PEFT \
                     (merge_and_unload) and use the merged model",
                    path.display()
                )));
            }
            "bias" if value == "none" => continue,
            _ if is_empty(value) => continue,
            _ => "plain LoRA without it",
        };
        return Err(PretrainedError::unsupported(path, key, value, expected));
    }
    Ok(())
}

fn is_plain_init(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::String(name) => PLAIN_INITS.contains(&name.as_str()),
        _ => false,
    }
}

/// Returns true for the values by which PEFT says that a setting is not used.
fn is_empty(value: &Value) -> bool {
    [json!(null), json!(false), json!({}), json!([])].contains(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PEFT 0.21.2 writes for `LoraConfig(r=8, target_modules=["q_proj"])`.
    fn published() -> Value {
        json!({
            "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
            "auto_mapping": null, "base_model_name_or_path": "org/model", "bias": "none",
            "corda_config": null, "ensure_weight_tying": false, "eva_config": null,
            "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true,
            "init_lora_weights": true, "kasa_config": null, "layer_replication": null,
            "layers_pattern": null, "layers_to_transform": null, "loftq_config": {},
            "lora_alpha": 8, "lora_bias": false, "lora_dropout": 0.1, "lora_ga_config": null,
            "megatron_config": null, "megatron_core": "megatron.core", "modules_to_save": null,
            "monteclora_config": null, "peft_type": "LORA", "peft_version": "0.21.2",
            "qalora_group_size": 16, "r": 8, "rank_pattern": {}, "revision": null,
            "target_modules": ["q_proj"], "target_parameters": null, "task_type": "CAUSAL_LM",
            "trainable_token_indices": null, "use_bdlora": null, "use_dora": false,
            "use_qalora": false, "use_rslora": false, "velora_config": null
        })
    }

    fn read(config: &Value) -> Result<AdapterConfig> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("adapter_config.json"), config.to_string()).unwrap();
        AdapterConfig::read(folder.path())
    }

    #[test]
    fn plain_lora_is_read() {
        let config = read(&published()).unwrap();
        assert_eq!(config.settings, LoraSettings { r: 8, alpha: 8.0 });
        assert_eq!(config.base_model.as_deref(), Some("org/model"));
        config.check_target("model.layers.0.self_attn.q_proj").unwrap();
        let error = config.check_target("model.layers.0.self_attn.kq_proj").unwrap_err();
        assert!(error.to_string().contains("`target_modules`"), "{error}");
        for init in [json!(false), json!("gaussian"), json!("eva"), json!("orthogonal")] {
            let mut config = published();
            config["init_lora_weights"] = init;
            read(&config).unwrap();
        }
    }

    /// `peft` 0.21.2 changes the base model, or computes something else, for each of these.
    #[test]
    fn every_other_setting_is_refused_by_name() {
        for (key, value) in [
            ("init_lora_weights", json!("pissa")),
            ("init_lora_weights", json!("pissa_niter_4")),
            ("init_lora_weights", json!("olora")),
            ("init_lora_weights", json!("loftq")),
            ("init_lora_weights", json!("corda")),
            ("init_lora_weights", json!("lora_ga")),
            ("init_lora_weights", json!("mica")),
            ("alora_invocation_tokens", json!([1, 2])),
            ("rank_pattern", json!({"q_proj": 4})),
            ("alpha_pattern", json!({"q_proj": 4})),
            ("modules_to_save", json!(["lm_head"])),
            ("use_dora", json!(true)),
            ("use_rslora", json!(true)),
            ("use_qalora", json!(true)),
            ("lora_bias", json!(true)),
            ("bias", json!("all")),
            ("fan_in_fan_out", json!(true)),
            ("layer_replication", json!([[0, 2], [1, 3]])),
            ("layers_to_transform", json!([0])),
            ("trainable_token_indices", json!([5])),
            ("target_parameters", json!(["experts"])),
            ("peft_type", json!("IA3")),
            ("a_key_of_tomorrow", json!(1)),
        ] {
            let mut config = published();
            config[key] = value;
            let error = read(&config).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}` is ")), "{error}");
        }
    }

    #[test]
    fn model_folder_is_no_adapter() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        let error = AdapterConfig::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("this is the folder of a model"), "{error}");
    }
}
