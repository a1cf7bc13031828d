//! Natural language inference: [`Nli`] is a [`corver_core::NliModel`] over one of two published
//! models, in the folder that Hugging Face publishes.
//!
//! ```text
//! config               config.json ─▶ architecture and classes
//! folder               a folder ─▶ tokenizer, classes and session
//! graph                writes the graphs: the encoders of T5 and DeBERTa-v2
//! encode               a pair ─▶ tokens
//! model                pairs ─▶ batches of similar length ─▶ probabilities
//! ```

mod config;
mod encode;
mod error;
mod folder;
mod graph;
mod model;

pub use corver_settings::NliSettings;
pub use error::NliError;
pub use error::Result;
pub use model::Nli;
