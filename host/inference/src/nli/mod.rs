//! Natural language inference: does a hypothesis follow from a premise? Answers
//! [`corver_core::NliModel`] with one of two published models, read from the folder that Hugging
//! Face hands out.
//!
//! ```text
//! config               what config.json says
//! folder               a folder ─▶ tokenizer, labels, and a graph that is loaded
//! graph                writes that graph: the encoders of T5 and DeBERTa-v2
//! encode               a pair ─▶ tokens
//! nli                  pairs ─▶ batches of about one length ─▶ answers
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
