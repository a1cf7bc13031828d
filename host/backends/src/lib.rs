//! Backends that answer a rule's requests other than counts.
//!
//! ```text
//! passages     passages of the corpus, ranked by BM25
//! chat         a chat model behind an OpenAI-compatible endpoint
//! recording    recorded replies, without corpus, models or network
//! ```

pub mod chat;
pub mod passages;
pub mod recording;
