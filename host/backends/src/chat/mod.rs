//! A chat model behind an OpenAI-compatible endpoint: OpenAI's own, vLLM, llama.cpp, Ollama and
//! many more.
//!
//! [`Chat`] is a [`corver_core::ChatModel`]. It asks for many replies at a time, patiently, keeps every one on disk, and stops where a ceiling of cost is reached.

mod client;
mod cost;
mod error;
mod kept;
mod settings;
mod wire;

pub use client::Chat;
pub use corver_settings::{ChatPrices, ChatSettings};
pub use cost::{Paid, Spent};
pub use error::ChatError;
