//! A chat model behind an OpenAI-compatible endpoint: OpenAI's own, vLLM, llama.cpp, Ollama and
//! many more.
//!
//! [`ChatClient`] is a [`corver_core::ChatModel`]. It sends requests concurrently, retries
//! transient errors, caches every reply on disk, and stops at a cost ceiling.

mod cache;
mod client;
mod cost;
mod error;
mod settings;
mod wire;

pub use client::ChatClient;
pub use corver_settings::{ChatPrices, ChatSettings, LengthField};
pub use cost::{ReplyTotals, Spending};
pub use error::ChatError;
