//! What a pretrained model's folder holds, as Hugging Face's tools write it; nothing here computes
//! with it.
//!
//! ```text
//! config                      config.json: the shape of a decoder
//! text, spans, clean_up       text ─▶ ids;  ids ─▶ text, and the characters of each token
//! chat                        messages ─▶ the prompt's text
//! tokenizer                   text and chat together, and where an answer ends
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
mod text;
mod tokenizer;
pub mod transcript;
mod weights;

pub use chat::{Chat, Switches, render_as_child};
pub use config::{Family, Llama3Scaling, ModelConfig};
pub use dialogue::Dialogue;
pub use error::{PretrainedError, Result};
pub use text::{Decoded, TextTokenizer, read_tokenizer};
pub use tokenizer::{ChatTokenizer, stop_tokens};
pub use weights::read_weights;
