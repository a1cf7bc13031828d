//! The JSON of Infini-gram's HTTP API, shared by client and server.
//!
//! A POST request has the body [`CountRequest`], and its response [`ApiReply`]. A GET request returns
//! a [`ServerInfo`].
//!
//! Extensions to the public API are optional, so that either side works with other programs. A
//! request may have a mode, a limit, and many queries; a reply may state the precision of its count, which
//! `approx` alone does not. The client uses only the extensions that [`ServerInfo`] lists.

use corver_core::{Count, CountMode, CountPrecision};
use corver_corpus::{CnfCount, CnfOptions, Mode, Part};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// Query type of a request for one count. The reply is a [`CountReply`].
pub const COUNT: &str = "count";
/// Query type of a request for many counts, which the public API does not have. The reply is
/// [`Counts`].
pub const COUNTS: &str = "counts";

/// A request for one or many counts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountRequest {
    /// Name of the index on the server.
    #[serde(alias = "corpus")]
    pub index: String,
    /// Type of the query: [`COUNT`] or [`COUNTS`].
    pub query_type: String,
    /// Query in words, `a AND b OR c`, as [`corver_corpus::parse_query`] parses it. `None` if
    /// `query_ids` or `queries` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Query in token ids, instead of `query`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_ids: Option<TokenIds>,
    /// Queries in words, for [`COUNTS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queries: Option<Vec<String>>,
    /// Number of occurrences of a clause above which it is sampled; `None` for the server's
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_clause_freq: Option<u64>,
    /// Width of the window that clauses must co-occur in, tokens; `None` for the server's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_diff_tokens: Option<u64>,
    /// Mode of counting. The default is not serialised: other servers refuse unknown fields.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,
    /// Limit of [`corver_core::Query`]: the count matters up to this number. `None` sets no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    // Some clients send these fields, and the public server ignores them.
    #[serde(rename = "engine", default, skip_serializing)]
    _engine: IgnoredAny,
    #[serde(rename = "source", default, skip_serializing)]
    _source: IgnoredAny,
    #[serde(rename = "timestamp", default, skip_serializing)]
    _timestamp: IgnoredAny,
}

impl CountRequest {
    /// Creates a request for the count of one query, without a limit.
    #[must_use]
    pub fn new(index: &str, query: &str, options: &CnfOptions) -> Self {
        Self {
            index: index.to_owned(),
            query_type: COUNT.to_owned(),
            query: Some(query.to_owned()),
            max_clause_freq: Some(options.max_clause_freq),
            max_diff_tokens: Some(options.max_diff_tokens),
            mode: options.mode,
            ..Self::default()
        }
    }

    /// Creates a request for the counts of many queries with one limit.
    #[must_use]
    pub fn batch(
        index: &str,
        queries: Vec<String>,
        options: &CnfOptions,
        limit: Option<u64>,
    ) -> Self {
        Self {
            query_type: COUNTS.to_owned(),
            query: None,
            queries: Some(queries),
            limit,
            ..Self::new(index, "", options)
        }
    }
}

fn is_default(mode: &Mode) -> bool {
    *mode == Mode::default()
}

/// An n-gram, or an AND of ORs of n-grams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Nested<T> {
    /// Elements that are consecutive in the text.
    Ngram(Vec<T>),
    /// AND of clauses, each an OR of n-grams.
    Cnf(Vec<Vec<Vec<T>>>),
}

/// A query in token ids.
pub type TokenIds = Nested<u32>;

/// The body of a response: a [`CountReply`] or [`Counts`], or an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ApiReply<T> {
    /// The request failed; the server may use any status.
    Error {
        /// Reason for people, with the remedy.
        error: String,
    },
    /// The request succeeded, with status 2xx.
    Success(T),
}

/// The reply to a [`COUNT`] request. The client deserialises the count and its flags only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CountReply {
    /// Number of matches, or an estimate.
    pub count: u64,
    /// Flag of the official engine: true if the count was extrapolated from a sample.
    pub approx: bool,
    /// Relation of `count` to the true number. `None` if the server is not `corver-host`.
    pub precision: Option<CountPrecision>,
    /// Time that the server needed, milliseconds.
    #[serde(skip_deserializing)]
    pub latency: f64,
    /// Token ids of the query.
    #[serde(skip_deserializing)]
    pub token_ids: Option<TokenIds>,
    /// Vocabulary piece of each token id; `null` if it has none.
    #[serde(skip_deserializing)]
    pub tokens: Option<Nested<Option<String>>>,
}

/// The reply to a [`COUNTS`] request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Count of each query, in order; `null` if a word has no tokens.
    pub counts: Vec<Option<CountResult>>,
    /// Time that the server needed, milliseconds.
    #[serde(skip_deserializing)]
    pub latency: f64,
}

/// The count of one query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountResult {
    /// Number of matches, an estimate, or a lower bound that reaches the limit.
    pub count: u64,
    /// Flag of the official engine: true if the count was extrapolated from a sample.
    pub approx: bool,
    /// Relation of `count` to the true number.
    pub precision: CountPrecision,
}

impl CountResult {
    /// Converts it to the count of a query.
    #[must_use]
    pub fn to_count(self) -> Count {
        Count { occurrences: Some(self.count), precision: self.precision }
    }
}

/// Returns the precision of an index's count.
#[must_use]
pub fn precision(count: &CnfCount) -> CountPrecision {
    match count {
        CnfCount { sampled: true, .. } => CountPrecision::Estimate,
        CnfCount { at_least: true, .. } => CountPrecision::AtLeast,
        _ => CountPrecision::Exact,
    }
}

/// Returns the mode as settings name it.
#[must_use]
pub fn count_mode(mode: Mode) -> CountMode {
    match mode {
        Mode::Compatible => CountMode::Compatible,
        Mode::Exact | Mode::ExactFirst => CountMode::Exact,
        Mode::Span => CountMode::Span,
    }
}

/// The description of a `corver-host` server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Name of the served index.
    pub index: String,
    /// Number of documents in the index.
    pub documents: u64,
    /// Number of tokens in the index.
    pub tokens: u64,
    /// blake3 hash of the tokenizer that built the index; `None` if it is not recorded.
    pub tokenizer: Option<String>,
    /// Shards that the server has; `None` if they are not recorded.
    pub part: Option<Part>,
    /// Supported values of [`CountRequest::query_type`].
    pub query_types: Vec<String>,
    /// Supported modes of counting.
    pub modes: Vec<Mode>,
    /// Largest number of queries in a [`COUNTS`] request.
    pub queries: usize,
    /// Largest request body, bytes.
    pub body_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_requests_match_public_api() {
        let request = |mode| {
            let options = CnfOptions { mode, ..CnfOptions::default() };
            serde_json::to_string(&CountRequest::new("v4_pileval_llama", "red AND fox", &options))
                .unwrap()
        };
        assert_eq!(
            request(Mode::Compatible),
            r#"{"index":"v4_pileval_llama","query_type":"count","query":"red AND fox","max_clause_freq":500000,"max_diff_tokens":1000}"#
        );
        assert!(request(Mode::Span).ends_with(r#","mode":"span"}"#));
        let many = CountRequest::batch(
            "wiki",
            vec!["red AND fox".into()],
            &CnfOptions::default(),
            Some(20),
        );
        assert_eq!(
            serde_json::to_string(&many).unwrap(),
            r#"{"index":"wiki","query_type":"counts","queries":["red AND fox"],"max_clause_freq":500000,"max_diff_tokens":1000,"limit":20}"#
        );
    }

    #[test]
    fn count_replies_match_public_api() {
        let read = |json: &str| serde_json::from_str::<ApiReply<CountReply>>(json);
        let public = r#"{"count":2349754,"approx":false,"latency":0.73,"token_ids":[3014],"tokens":["▁University"]}"#;
        assert_eq!(
            read(public).unwrap(),
            ApiReply::Success(CountReply { count: 2_349_754, ..CountReply::default() })
        );
        assert_eq!(
            read(
                r#"{"count":9,"approx":false,"precision":"at_least","token_ids":"in another form"}"#
            )
            .unwrap(),
            ApiReply::Success(CountReply {
                count: 9,
                precision: Some(CountPrecision::AtLeast),
                ..CountReply::default()
            })
        );
        let error = r#"{"error":"no such index","latency":1}"#;
        assert_eq!(read(error).unwrap(), ApiReply::Error { error: "no such index".into() });
        for garbage in ["{}", "[]", "7", r#"{"count":-1,"approx":false}"#, r#"{"count":7}"#] {
            assert!(read(garbage).is_err(), "{garbage}");
        }
    }
}
