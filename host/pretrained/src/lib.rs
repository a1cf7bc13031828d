//! The content of a pretrained model's folder in Hugging Face's layout: configuration, tokenizer, chat
//! template and weights. This crate does not compute with the model.
//!
//! ```text
//! config                      config.json: architecture and sizes of a decoder
//! text, spans, clean_up       text ─▶ ids;  ids ─▶ text, and the characters of each token
//! chat                        messages ─▶ text of a prompt
//! tokenizer                   text and chat together, with the stop condition
//! dialogue                    questions ─▶ prompts;  sampled tokens ─▶ rollouts
//! transcript                  a trainer's text ─▶ question and completion
//! weights                     model.safetensors, or its shards
//! ```

mod chat;
mod clean_up;
mod config;
mod dialogue;
mod error;
mod spans;
#[cfg(test)]
mod testing;
mod text;
mod tokenizer;
pub mod transcript;
mod weights;

pub use chat::{ChatTemplate, Switches, render_as_child};
pub use config::{Llama3Scaling, ModelConfig, ModelFamily};
pub use dialogue::Dialogue;
pub use error::{PretrainedError, Result};
pub use text::{Decoded, TextTokenizer, read_tokenizer};
pub use tokenizer::{ChatTokenizer, stop_tokens};
pub use weights::read_weights;
