//! Words and texts: the tokenizer, queries in words, and matches to read.

mod bpe_cache;
pub(crate) mod corpus;
pub(crate) mod passage;
pub(crate) mod tokenizer;
