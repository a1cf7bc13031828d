//! Sections `rule`, `judge` and `format`: reward rules and their limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smart_default::SmartDefault;

use crate::text::{TextOrTexts, one_or_many};

/// Defaults that the SDK's tests apply to a rule, too.
pub mod limits {
    include!("../../../wit/limits.rs");
}

/// Rules that reward sentences.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSection {
    /// Reward rule: a WebAssembly file, the name of a shipped one, or a URL (`https://…`, `oci://…`).
    /// `FILE@blake3:HEX` names the file of this hash; a URL needs it. Or a list of rules,
    /// `FILE:WEIGHT`, whose weighted rewards are added. A rule of weight 0 is recorded and not
    /// added.
    #[default(vec!["first.wasm".into()])]
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "TextOrTexts")]
    pub plugin: Vec<String>,
    /// Settings of the rule itself; `corver-host plugin check` prints them. With several rules: a
    /// table for each, under its name.
    pub settings: Map<String, Value>,
    /// Limits of each rule, `judge` and `format` included.
    pub limits: Limits,
}

/// Rule that rewards a whole completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GraderSection {
    /// Response rule, named as `rule.plugin`. Not set: the paper's, which is built in.
    #[schemars(length(min = 1))]
    pub plugin: Option<String>,
    /// Settings of the rule itself.
    pub settings: Map<String, Value>,
}

/// Limits of a rule. The defaults leave a wide margin over the shipped rules.
#[derive(Debug, Clone, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest plugin file, in bytes.
    #[default(64 << 20)]
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub file_bytes: u64,
    /// Processor seconds, all cores together, for compiling each MiB of a file; the last MiB counts
    /// whole.
    #[default = 8]
    #[schemars(range(min = 0, max = 86_400))]
    pub compile_s: u64,
    /// Memory for compiling a file, in bytes.
    #[default(1 << 30)]
    #[schemars(range(min = 1, max = 1_099_511_627_776_u64))]
    pub compile_bytes: u64,
    /// Wall-clock time of one call, in milliseconds, for a batch of any size; enforced in steps of
    /// 10.
    #[default = 10_000]
    #[schemars(range(min = 0, max = 86_400_000_000_u64))]
    pub call_ms: u64,
    /// All linear memories of one instance together, in bytes. A large batch has up to 16
    /// instances, or one per core on more cores, and three batches may run together.
    #[default(256 << 20)]
    #[schemars(range(min = 0, max = 8_589_934_592_u64))]
    pub memory_bytes: usize,
    /// All tables together, in elements.
    #[default = 100_000]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub table_elements: usize,
    /// Native stack of a call, in bytes.
    #[default(512 << 10)]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub stack_bytes: usize,
    /// Results of one call, in bytes of the host's memory.
    #[default(128 << 20)]
    #[schemars(range(min = 0, max = 8_589_934_592_u64))]
    pub output_bytes: usize,
    /// Any single text, each word of a query included, in bytes.
    #[default(limits::TEXT_BYTES)]
    #[schemars(range(min = 0, max = 1_073_741_824))]
    pub text_bytes: usize,
    /// Requests of any kind for one sentence, all rounds together.
    #[default(limits::REQUESTS_PER_SENTENCE)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub requests_per_sentence: usize,
    /// Requests of any kind of a response rule for one completion, all rounds together.
    #[default(limits::REQUESTS_PER_COMPLETION)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub requests_per_completion: usize,
    /// Words of one query, all clauses together.
    #[default(limits::WORDS_PER_QUERY)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub words_per_query: usize,
    /// Words of one clause of a query.
    #[default(limits::WORDS_PER_CLAUSE)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub words_per_clause: usize,
    /// Counts of one batch, all rounds together.
    #[default = 1_000_000]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub queries_per_batch: usize,
    /// NLI pairs of one batch, all rounds together.
    #[default = 200_000]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub pairs_per_batch: usize,
    /// Chat prompts of one batch, all rounds together.
    #[default = 20_000]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub prompts_per_batch: usize,
    /// Passage searches of one batch, all rounds together.
    #[default = 100_000]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub searches_per_batch: usize,
    /// Messages of one chat prompt.
    #[default(limits::MESSAGES_PER_PROMPT)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub messages_per_prompt: usize,
    /// Longest reply to a chat prompt, in tokens.
    #[default(limits::REPLY_TOKENS)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub reply_tokens: u32,
    /// Passages of one search.
    #[default(limits::PASSAGES_PER_SEARCH)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub passages_per_search: u32,
    /// Rounds of requests and answers of one call.
    #[default(limits::ROUNDS)]
    #[schemars(range(min = 0, max = 10_000))]
    pub rounds: u32,
    /// Diagnostic messages of one call, each cut at `text_bytes`; further ones are dropped.
    #[default = 16]
    #[schemars(range(min = 0, max = 10_000))]
    pub reports: usize,
}
