//! Rollouts from an inference server: vLLM or SGLang, over HTTP.
//!
//! ```text
//! server        one server: routes, models, retries
//! request       a request for completions of one prompt;  vllm, sglang: its form in each API
//! batch         concurrent requests
//! probe         detects the temperature of the server's log-probabilities, before a run
//! adapters      LoRA adapters: a folder and a name for each version
//! engine        all of it as core's Sampler
//! ```
//!
//! Requests and replies hold token ids, so no text is tokenised twice. Every sampling setting is in
//! the request, so that no default of the server (a model's generation_config.json, say) decides a
//! draw.

mod adapters;
mod batch;
mod engine;
mod error;
mod probe;
mod request;
mod server;
mod settings;
mod sglang;
mod vllm;

pub use adapters::{AdapterFolder, copy_adapter};
pub use engine::{Engine, ModelShape};
pub use error::{EngineError, Result};
pub use settings::{EngineApi, EngineSettings};
