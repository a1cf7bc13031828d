// The host's default limits for a rule. The host and the SDK's testing kit both include this file:
// they share no crate.

/// Rounds of replies to an instance.
pub const ROUNDS: u32 = 4;
/// Requests of any kind for one sentence, all rounds together.
pub const REQUESTS_PER_SENTENCE: usize = 64;
/// Requests of any kind that a response rule sends for one completion, all rounds together.
pub const REQUESTS_PER_COMPLETION: usize = 1024;
/// Words of one query, all clauses together.
pub const WORDS_PER_QUERY: usize = 256;
/// Words of one clause of a query.
pub const WORDS_PER_CLAUSE: usize = 64;
/// Messages of one prompt.
pub const MESSAGES_PER_PROMPT: usize = 16;
/// Longest reply to a prompt, tokens.
pub const REPLY_TOKENS: u32 = 4096;
/// Passages of one search.
pub const PASSAGES_PER_SEARCH: u32 = 64;
/// Any single text that a rule returns, and each word of a query, bytes.
pub const TEXT_BYTES: usize = 64 << 10;
/// The label of a grade, bytes. No setting changes it.
pub const LABEL_BYTES: usize = 64;
