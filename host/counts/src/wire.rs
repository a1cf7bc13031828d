//! The JSON of Infini-gram's HTTP API, as client and server share it.
//!
//! A POST holds a [`Request`], and a [`Reply`] comes back. What goes beyond the public API is optional, so that each side
//! works with others' programs: `exact` in a request counts every match, `exact` in an answer says whether the count is
//! the number of matches (`approx` does not always tell), and a GET tells what is served ([`About`]).

use corver_corpus::{CnfOptions, Mode};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// The one kind of query that there is here.
pub const COUNT: &str = "count";

/// Asks for a count.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The index, by the server's name for it.
    #[serde(alias = "corpus")]
    pub index: String,
    /// [`COUNT`].
    pub query_type: String,
    /// `a AND b OR c`, as [`corver_corpus::parse_query`] reads it; or else `query_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The same in token ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_ids: Option<TokenIds>,
    /// Occurrences of a clause above which it is sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_clause_freq: Option<u64>,
    /// The window, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_diff_tokens: Option<u64>,
    /// Counts every match. Left out unless wanted: other servers refuse fields that they do not know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
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
            exact: options.mode == Mode::Exact,
            ..Self::default()
        }
    }
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

/// What comes back: a count, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reply {
    /// No count.
    Error {
        /// Why not, for people.
        error: String,
    },
    /// A count.
    Count(Answer),
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
    /// Which values of [`Request::query_type`] it answers.
    pub query_types: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_public_api() {
        let request = |mode| {
            let options = CnfOptions { mode, ..CnfOptions::default() };
            serde_json::to_string(&Request::new("v4_pileval_llama", "red AND fox", &options)).unwrap()
        };
        assert_eq!(
            request(Mode::Compatible),
            r#"{"index":"v4_pileval_llama","query_type":"count","query":"red AND fox","max_clause_freq":500000,"max_diff_tokens":1000}"#
        );
        assert!(request(Mode::Exact).ends_with(r#","exact":true}"#));
    }

    #[test]
    fn replies_are_those_of_the_public_api() {
        let read = |json: &str| serde_json::from_str::<Reply>(json);
        let public = r#"{"count":2349754,"approx":false,"latency":0.73,"token_ids":[3014],"tokens":["▁University"]}"#;
        assert_eq!(read(public).unwrap(), Reply::Count(Answer { count: 2_349_754, ..Answer::default() }));
        assert_eq!(
            read(r#"{"count":9,"approx":false,"exact":false,"token_ids":"in another form"}"#).unwrap(),
            Reply::Count(Answer { count: 9, exact: Some(false), ..Answer::default() })
        );
        let error = r#"{"error":"no such index","latency":1}"#;
        assert_eq!(read(error).unwrap(), Reply::Error { error: "no such index".into() });
        for garbage in ["{}", "[]", "7", r#"{"count":-1,"approx":false}"#, r#"{"count":7}"#] {
            assert!(read(garbage).is_err(), "{garbage}");
        }
    }
}
