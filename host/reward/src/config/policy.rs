//! Configuration of the model that is trained or sampled.

use std::path::PathBuf;

use corver_data::hub;
use corver_settings::{EngineKind, EngineSection, Settings};

use super::{DemoOrPath, Problems, Resolve, resolve_hub_path};

/// Model of the policy, and the server that samples in its place.
#[derive(Debug, Clone)]
pub struct PolicyConfig {
    /// Folder of the policy's model.
    pub model: DemoOrPath,
    /// Folder of the adapter that training continues from. `None`: a fresh one.
    pub adapter: Option<PathBuf>,
    /// Inference server. `None`: the policy samples itself.
    pub engine: Option<EngineConfig>,
}

/// Inference server that samples in place of the policy.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// API that the server has.
    pub kind: EngineKind,
    /// URL of the server's root.
    pub url: String,
    /// The server's name for the policy's model.
    pub model: String,
}

impl Resolve for PolicyConfig {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let engine = engine(&mut settings.engine, problems);
        let policy = &mut settings.policy;
        problems.make_absolute("policy.adapter", &mut policy.adapter);
        if let Some(adapter) = &policy.adapter {
            problems.require_path("policy.adapter", &adapter.join("adapter_config.json"));
        }
        let text = problems.required("policy.model", policy.model.as_mut(), "--model DIR|NAME")?;
        let model =
            problems.record("policy.model", resolve_hub_path(hub::RepoKind::Model, text))?;
        *text = model.to_setting(|path| path.display().to_string());
        Some(Self { model, adapter: policy.adapter.clone(), engine: engine? })
    }
}

/// Returns `Some(None)` if no engine is named, and `None` if something about it is missing.
fn engine(section: &mut EngineSection, problems: &mut Problems) -> Option<Option<EngineConfig>> {
    problems.make_absolute("engine.adapters", &mut section.adapters);
    problems.make_absolute("engine.token_file", &mut section.token_file);
    let Some(kind) = section.kind else {
        if section.url.is_none() && section.model.is_none() && section.adapters.is_none() {
            return Some(None);
        }
        problems.add("engine.kind", "not set, but other settings of an engine are; vllm or sglang");
        return None;
    };
    if section.url.is_none() {
        problems
            .add("engine.url", "not set; the root of the server, such as http://localhost:8000");
    }
    if section.model.is_none() {
        problems
            .add("engine.model", "not set; the server's name for the model (--served-model-name)");
    }
    Some(Some(EngineConfig { kind, url: section.url.clone()?, model: section.model.clone()? }))
}
