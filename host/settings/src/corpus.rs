//! Section `corpus`: the index that counts come from.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::text::{TextOrTexts, one_or_many};

/// Index and counting of co-occurrences; the defaults are the paper's, except the mode.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CorpusSection {
    /// Index folder, `OWNER/NAME` of a downloaded one, `URL#NAME` of an index on a server, `demo`, or
    /// a list of those, such as the shards of one index on several servers. The counts of all are
    /// added.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "TextOrTexts")]
    pub index: Vec<String>,
    /// File with counts of known queries (`corver-host index pack`), which are not looked up in the
    /// index.
    #[schemars(length(min = 1))]
    pub pack: Option<PathBuf>,
    /// Treatment of queries that the pack does not have.
    pub pack_misses: PackMisses,
    /// Definition of a match. The paper used `compatible`, as its configurations in `configs/` set;
    /// it misses matches in short documents.
    pub mode: CountMode,
    /// Occurrences of a clause above which `compatible` sub-samples it.
    #[default = 500_000]
    #[schemars(range(min = 1, max = 9_000_000_000_000_000_u64))]
    pub max_clause_freq: u64,
    /// Window within which words occur together, in tokens.
    #[default = 1000]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_diff_tokens: u64,
    /// Memory for the sorted positions of frequent words, in MiB, for each index folder.
    #[default = 256]
    #[schemars(range(min = 0, max = 1_048_576))]
    pub cache_mib: u64,
    /// Time limit of the look-ups of one round in an index folder, in milliseconds. It bounds the
    /// cost of a rule.
    #[default = 120_000]
    #[schemars(range(min = 1, max = 86_400_000_000_u64))]
    pub count_timeout_ms: u64,
    /// Requests to index servers.
    pub remote: RemoteSettings,
}

/// Definition of a match of several clauses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CountMode {
    /// Equal to the official engine, sub-sampling included; what the paper used.
    Compatible,
    /// Occurrences of the rarest clause that have all others within `max_diff_tokens` in the same
    /// document.
    #[default]
    Exact,
    /// Stretches of at most `max_diff_tokens` tokens of one document that hold a term of every
    /// clause.
    Span,
}

/// Treatment of queries that a pack of counts does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PackMisses {
    /// Counts them in `corpus.index`.
    #[default]
    Index,
    /// Gives them no count: the rule decides the reward, usually 0. No index is needed.
    Abstain,
}

/// Requests to index servers.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RemoteSettings {
    /// Largest number of concurrent requests.
    #[default = 8]
    #[schemars(range(min = 1, max = 1024))]
    pub connections: usize,
    /// Rate limit, in requests per second; ten is polite towards a public server. Not set: no
    /// limit.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub requests_per_second: Option<f64>,
    /// Time limit of one attempt, in seconds: longer than the server's own.
    #[default = 60.0]
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub timeout_s: f64,
    /// Time limit of all retries of a query, in seconds, before the run stops with an error.
    /// Waiting for the rate limit does not count.
    #[default = 180.0]
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub retry_timeout_s: f64,
    /// Caches counts on disk without expiry, by server, index, query and options.
    #[default = true]
    pub cache: bool,
    /// File with the server's bearer token. Not set: the environment variable `CORVER_TOKEN`, if it
    /// is set.
    pub token_file: Option<PathBuf>,
}
