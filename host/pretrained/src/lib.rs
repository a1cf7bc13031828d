//! What a pretrained model's folder holds, as Hugging Face's tools write it; nothing here computes with it.
//!
//! ```text
//! config                      config.json: the shape of a decoder
//! tokenizer, spans, clean_up  text ─▶ ids;  ids ─▶ text, and the characters of each token
//! chat                        messages ─▶ the prompt's text
//! dialogue                    questions ─▶ prompts;  drawn tokens ─▶ rollouts
//! transcript                  a trainer's text of both ─▶ what was asked, what was answered
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
mod tokenizer;
pub mod transcript;
mod weights;

pub use chat::{Chat, Switches, render_as_child};
pub use config::{Family, Llama3Scaling, ModelConfig};
pub use dialogue::Dialogue;
pub use error::{PretrainedError, Result};
pub use tokenizer::{ChatTokenizer, Decoded, read_tokenizer, stop_tokens};
pub use weights::read_weights;
