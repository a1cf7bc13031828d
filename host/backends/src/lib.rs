//! Backends that answer a rule's requests other than counts.
//!
//! ```text
//! passages     passages of the corpus, by BM25
//! chat         a chat model behind an OpenAI-compatible endpoint
//! recording    earlier answers, without corpus, models or network
//! ```

pub mod chat;
pub mod passages;
pub mod recording;
