//! The JSON of Infini-gram's HTTP API, as client and server share it.
//!
//! A POST holds a [`Request`], and a [`Reply`] comes back. What goes beyond the public API is
//! optional, so that each side works with others' programs: a request may name a mode, say when a
//! count is large enough, and hold many queries; an answer says whether the count is the number of
//! matches (`approx` does not always tell). A GET tells what is served ([`About`]), and only what
//! it says is asked for.

use corver_core::{Count, CountPrecision};
use corver_corpus::{CnfOptions, Mode, Part};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// Asks for the count of one query. An [`Answer`] comes back.
pub const COUNT: &str = "count";
/// Asks for the counts of many. [`Counts`] come back. The public API has no such thing.
pub const COUNTS: &str = "counts";

/// Asks for counts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The index, by the server's name for it.
    #[serde(alias = "corpus")]
    pub index: String,
    /// [`COUNT`] or [`COUNTS`].
    pub query_type: String,
    /// `a AND b OR c`, as [`corver_corpus::parse_query`] reads it; or else `query_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The same in token ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_ids: Option<TokenIds>,
    /// Many, each as `query` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queries: Option<Vec<String>>,
    /// Occurrences of a clause above which it is sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_clause_freq: Option<u64>,
    /// The window, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_diff_tokens: Option<u64>,
    /// How to count. Left out unless wanted: other servers refuse fields that they do not know.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,
    /// Counts matter up to this number only, as [`corver_core::Query::limit`] says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enough: Option<u64>,
    // What some clients send along and the public server ignores.
    #[serde(rename = "engine", default, skip_serializing)]
    _engine: IgnoredAny,
    #[serde(rename = "source", default, skip_serializing)]
    _source: IgnoredAny,
    #[serde(rename = "timestamp", default, skip_serializing)]
    _timestamp: IgnoredAny,
}

impl Request {
    /// Asks for a whole count of `query`, as these options say.
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

    /// Asks for counts of many queries, as far as is `enough`.
    #[must_use]
    pub fn of_many(
        index: &str,
        queries: Vec<String>,
        options: &CnfOptions,
        enough: Option<u64>,
    ) -> Self {
        Self {
            query_type: COUNTS.to_owned(),
            query: None,
            queries: Some(queries),
            enough,
            ..Self::new(index, "", options)
        }
    }
}

fn is_default(mode: &Mode) -> bool {
    *mode == Mode::default()
}

/// One n-gram, or AND of ORs of n-grams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Nested<T> {
    /// One after the other.
    Ngram(Vec<T>),
    /// Clauses of n-grams.
    Cnf(Vec<Vec<Vec<T>>>),
}

/// A query in token ids.
pub type TokenIds = Nested<u32>;

/// What comes back: an [`Answer`] or [`Counts`], or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reply<T> {
    /// No answer.
    Error {
        /// Why not, for people.
        error: String,
    },
    /// What was asked for.
    Answer(T),
}

/// A count, with what a person may want to see of it; our client reads the count alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Matches, or an estimate of them.
    pub count: u64,
    /// The official engine's flag: the count was scaled up from a sample.
    pub approx: bool,
    /// Whether `count` is the number of matches. Only our server says.
    pub exact: Option<bool>,
    /// Milliseconds.
    #[serde(skip_deserializing)]
    pub latency: f64,
    /// The query in token ids.
    #[serde(skip_deserializing)]
    pub token_ids: Option<TokenIds>,
    /// The vocabulary's piece for every id; `null` where there is none.
    #[serde(skip_deserializing)]
    pub tokens: Option<Nested<Option<String>>>,
}

/// The counts of many queries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// One per query, in order; `null` where a word has no tokens.
    pub counts: Vec<Option<Counted>>,
    /// Milliseconds.
    #[serde(skip_deserializing)]
    pub latency: f64,
}

/// One of [`Counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Matches, or an estimate of them, or so many that it is enough.
    pub count: u64,
    /// The official engine's flag: the count was scaled up from a sample.
    pub approx: bool,
    /// Whether `count` is the number of matches.
    pub exact: bool,
}

impl Counted {
    /// Returns the count of a query with this limit. The reply does not say why a count is not exact:
    /// one that reaches the limit, and was not scaled up from a sample, is taken for a lower bound.
    #[must_use]
    pub fn count(self, limit: Option<u64>) -> Count {
        let reached_limit = limit.is_some_and(|limit| self.count >= limit);
        let precision = match (self.exact, self.approx) {
            (true, _) => CountPrecision::Exact,
            (false, false) if reached_limit => CountPrecision::AtLeast,
            (false, _) => CountPrecision::Estimate,
        };
        Count { occurrences: Some(self.count), precision }
    }
}

/// What a GET tells of a server of ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The name of its index.
    pub index: String,
    /// Documents of the index.
    pub documents: u64,
    /// Tokens of the index.
    pub tokens: u64,
    /// blake3 of the tokenizer that built it, where that is recorded.
    pub tokenizer: Option<String>,
    /// The shards that it has, and of which index, where that is recorded.
    pub part: Option<Part>,
    /// Which values of [`Request::query_type`] it answers.
    pub query_types: Vec<String>,
    /// In which modes it counts.
    pub modes: Vec<Mode>,
    /// How many queries a request of [`COUNTS`] may hold.
    pub queries: usize,
    /// How many bytes a request may have.
    pub body_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_requests_match_public_api() {
        let request = |mode| {
            let options = CnfOptions { mode, ..CnfOptions::default() };
            serde_json::to_string(&Request::new("v4_pileval_llama", "red AND fox", &options))
                .unwrap()
        };
        assert_eq!(
            request(Mode::Compatible),
            r#"{"index":"v4_pileval_llama","query_type":"count","query":"red AND fox","max_clause_freq":500000,"max_diff_tokens":1000}"#
        );
        assert!(request(Mode::Span).ends_with(r#","mode":"span"}"#));
        let many =
            Request::of_many("wiki", vec!["red AND fox".into()], &CnfOptions::default(), Some(20));
        assert_eq!(
            serde_json::to_string(&many).unwrap(),
            r#"{"index":"wiki","query_type":"counts","queries":["red AND fox"],"max_clause_freq":500000,"max_diff_tokens":1000,"enough":20}"#
        );
    }

    #[test]
    fn count_replies_match_public_api() {
        let read = |json: &str| serde_json::from_str::<Reply<Answer>>(json);
        let public = r#"{"count":2349754,"approx":false,"latency":0.73,"token_ids":[3014],"tokens":["▁University"]}"#;
        assert_eq!(
            read(public).unwrap(),
            Reply::Answer(Answer { count: 2_349_754, ..Answer::default() })
        );
        assert_eq!(
            read(r#"{"count":9,"approx":false,"exact":false,"token_ids":"in another form"}"#)
                .unwrap(),
            Reply::Answer(Answer { count: 9, exact: Some(false), ..Answer::default() })
        );
        let error = r#"{"error":"no such index","latency":1}"#;
        assert_eq!(read(error).unwrap(), Reply::Error { error: "no such index".into() });
        for garbage in ["{}", "[]", "7", r#"{"count":-1,"approx":false}"#, r#"{"count":7}"#] {
            assert!(read(garbage).is_err(), "{garbage}");
        }
    }
}
