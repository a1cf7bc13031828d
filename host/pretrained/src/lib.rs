//! The content of a pretrained model's folder in Hugging Face's layout: configuration, tokenizer, chat
//! template and weights. This crate does not compute with the model.
//!
//! ```text
//! config                      config.json: architecture and sizes of a decoder
//! json, special_tokens, stop  JSON as Python writes it; special tokens by name; stop tokens
//! text, spans, clean_up       text ─▶ ids;  ids ─▶ text, and the characters of each token
//! chat                        messages ─▶ text of a prompt
//! tokenizer                   text and chat together, with the stop condition
//! dialogue                    questions ─▶ prompts;  sampled tokens ─▶ rollouts
//! transcript                  a trainer's text ─▶ question and completion
//! weights                     model.safetensors, or its shards
//! adapter                     adapter_config.json
//! ```

mod adapter;
mod chat;
mod clean_up;
mod config;
mod dialogue;
mod error;
mod json;
mod spans;
mod special_tokens;
mod stop;
#[cfg(test)]
mod testing;
mod text;
mod tokenizer;
pub mod transcript;
mod weights;

pub use adapter::AdapterConfig;
pub use chat::{ChatTemplate, Switches, render_as_child};
pub use clean_up::CleanUp;
pub use config::{Llama3Scaling, ModelConfig, ModelFamily};
pub use dialogue::Dialogue;
pub use error::{PretrainedError, Result};
pub use json::read_json;
pub use stop::StopTokens;
pub use text::{Decoded, TextTokenizer, check_vocabulary, read_tokenizer};
pub use tokenizer::ChatTokenizer;
pub use weights::{check_shape, read_weights, weight_shapes};
