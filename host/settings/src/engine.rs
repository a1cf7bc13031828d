//! Section `engine`: an inference server that samples in place of the policy.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Inference server that samples completions in place of the policy (docs/integrations.md).
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSection {
    /// API of the server. Not set: the policy samples itself; `url`, `model` and `adapters` are then
    /// refused, and the rest has no effect.
    pub kind: Option<EngineKind>,
    /// Root of the server, such as `http://localhost:8000`.
    #[schemars(length(min = 1))]
    pub url: Option<String>,
    /// The server's name for the policy's model (`--served-model-name`).
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// Folder for the adapters that the server reads, used by this run alone. Not set: `adapters`
    /// in the run's folder.
    #[schemars(length(min = 1))]
    pub adapters: Option<PathBuf>,
    /// The server's path of the folder `adapters`. Not set: the same path.
    #[schemars(length(min = 1))]
    pub adapters_on_server: Option<PathBuf>,
    /// Precision of the adapters that the server reads. Checkpoints are always f32.
    pub adapter_precision: AdapterPrecision,
    /// File with the server's key (`--api-key`). Not set: no key.
    pub token_file: Option<PathBuf>,
    /// Largest number of concurrent requests; each samples all completions of a question.
    #[default = 64]
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: usize,
    /// Time limit of one attempt, in seconds: all completions of a question.
    #[default = 600.0]
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub timeout_s: f64,
    /// Time limit of all retries of a request, in seconds, before the run stops with an error.
    #[default = 120.0]
    #[schemars(range(min = 0.0, max = 86_400.0))]
    pub retry_timeout_s: f64,
}

/// Precision of the adapters that an inference server reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdapterPrecision {
    /// 32-bit floats.
    #[default]
    F32,
    /// bfloat16, half the size.
    Bf16,
}

/// API of an inference server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// The API of vLLM.
    Vllm,
    /// The API of SGLang.
    Sglang,
}
