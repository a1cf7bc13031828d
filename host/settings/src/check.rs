//! Section `check`: thresholds of `corver-host check`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::reward::SentenceSplitter;

/// Counts below which `check` reports something as unsupported; the defaults are those of QuCo-RAG's
/// published settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckSettings {
    /// Mean count of a question's entities below which they are rare. QuCo-RAG: 1,000 for
    /// 2WikiMultihopQA, 100,000 for HotpotQA.
    #[default = 1000]
    #[schemars(range(min = 0, max = 9_000_000_000_000_000_u64))]
    pub question_entity: u64,
    /// Co-occurrences of head and tail below which a claim is unsupported.
    #[default = 1]
    #[schemars(range(min = 0, max = 9_000_000_000_000_000_u64))]
    pub pair: u64,
    /// Occurrences of an entity below which a claim about it alone is unsupported.
    #[default = 20]
    #[schemars(range(min = 0, max = 9_000_000_000_000_000_u64))]
    pub entity: u64,
    /// Authority on what is unsupported.
    pub by: DecidedBy,
    /// Splitter of texts into sentences.
    #[default(SentenceSplitter::Prose)]
    pub sentences: SentenceSplitter,
}

/// Authority on what is unsupported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// The two-stage test of counts.
    #[default]
    Test,
    /// The rule: a reward below 0.
    Rule,
    /// The test or the rule.
    Either,
}
