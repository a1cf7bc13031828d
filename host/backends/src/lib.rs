//! What answers a rule's requests, beside counts.
//!
//! ```text
//! passages     passages of the corpus, by BM25
//! chat         a chat model behind an OpenAI-compatible endpoint
//! recording    earlier answers, without corpus, models or network
//! ```

pub mod chat;
pub mod passages;
pub mod recording;
