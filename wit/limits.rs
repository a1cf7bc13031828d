// What the host allows a rule by default. The host and the SDK's testing kit both include this file: they share no crate.

/// How often an instance may be resumed with replies.
pub const ROUNDS: u32 = 4;
/// Queries that one sentence may ask, all rounds together.
pub const QUERIES_PER_SENTENCE: usize = 64;
/// Words of one query, all clauses together.
pub const WORDS_PER_QUERY: usize = 256;
/// Words of one clause of a query.
pub const WORDS_PER_CLAUSE: usize = 64;
/// Any single text that a rule answers, and each word of a query, bytes.
pub const TEXT_BYTES: usize = 64 << 10;
/// The label of a grade, bytes. No setting changes it.
pub const LABEL_BYTES: usize = 64;
