//! Rollouts from an inference server: vLLM or SGLang, over HTTP.
//!
//! ```text
//! server        one server: its routes, its models, patience with it
//! draw          what is drawn from one prompt: a request;  vllm, sglang: in the words of each API
//! batch         many of them at a time
//! probe         which log-probabilities the server gives, found out before a run
//! adapters      LoRA adapters: a folder and a name for each version, the former one unloaded
//! engine        the whole of it, as core's Sampler
//! ```
//!
//! Tokens go in and tokens come out: a text is never tokenised twice. Every setting of a request is
//! sent, so that nothing of the server's own defaults (a model's generation_config.json, say)
//! decides a draw.

mod adapters;
mod batch;
mod draw;
mod engine;
mod error;
mod probe;
mod server;
mod settings;
mod sglang;
mod vllm;

pub use adapters::{AdapterPlace, copy_adapter};
pub use engine::{Engine, ModelShape};
pub use error::{EngineError, Result};
pub use settings::{EngineSettings, Kind};
