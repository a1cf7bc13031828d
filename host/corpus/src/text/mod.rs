//! Words and texts: the tokenizer, queries in words, and matches to read.

pub(crate) mod agreement;
mod bpe_cache;
pub(crate) mod corpus;
pub(crate) mod passage;
pub(crate) mod tokenizer;
mod word_context;
