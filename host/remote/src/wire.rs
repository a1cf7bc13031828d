//! The JSON of the API.

use corver_corpus::{CnfOptions, Mode, WordCount};
use serde::{Deserialize, Serialize};

/// A request as the client sends it.
#[derive(Debug, Serialize)]
pub(crate) struct CountRequest<'a> {
    index: &'a str,
    query_type: &'static str,
    query: &'a str,
    max_clause_freq: u64,
    max_diff_tokens: u64,
    /// Left out unless wanted: other servers refuse fields that they do not know.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    exact: bool,
}

impl<'a> CountRequest<'a> {
    pub(crate) fn new(index: &'a str, query: &'a str, options: &CnfOptions) -> Self {
        Self {
            index,
            query_type: "count",
            query,
            max_clause_freq: options.max_clause_freq,
            max_diff_tokens: options.max_diff_tokens,
            exact: options.mode == Mode::Exact,
        }
    }
}

/// An answer as the client reads it: a count, or the reason why there is none.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum CountAnswer {
    Error {
        error: String,
    },
    Count {
        count: u64,
        approx: bool,
        /// Only our server says.
        exact: Option<bool>,
    },
}

impl CountAnswer {
    pub(crate) fn into_count(self) -> Result<WordCount, String> {
        match self {
            Self::Error { error } => Err(error),
            Self::Count { count, approx, exact } => {
                Ok(WordCount { count, approx, sampled: exact.map_or(approx, |exact| !exact), at_least: false })
            }
        }
    }
}

/// AND of ORs as the API writes it; `None` where the text would mean something else or nothing: a term is empty, or holds an
/// operator.
pub(crate) fn query_text(all_of: &[Vec<String>]) -> Option<String> {
    let mut text = String::new();
    for (number, clause) in all_of.iter().enumerate() {
        if number > 0 {
            text.push_str(" AND ");
        }
        if clause.is_empty() {
            return None;
        }
        for (number, term) in clause.iter().enumerate() {
            if number > 0 {
                text.push_str(" OR ");
            }
            text.push_str(term.trim());
        }
    }
    // Read back by the very rules of the other side.
    let trimmed = |clause: &Vec<String>| clause.iter().map(|term| term.trim().to_owned()).collect::<Vec<_>>();
    let same = corver_corpus::parse_query(&text)
        .is_ok_and(|read| read.iter().eq(&all_of.iter().map(trimmed).collect::<Vec<_>>()));
    same.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clauses(all_of: &[&[&str]]) -> Vec<Vec<String>> {
        all_of.iter().map(|clause| clause.iter().map(|&term| term.to_owned()).collect()).collect()
    }

    #[test]
    fn queries_are_written_so_that_they_read_back() {
        let text = |all_of: &[&[&str]]| query_text(&clauses(all_of));
        assert_eq!(
            text(&[&["Levi Stadium"], &["Denver", "Colorado "]]).as_deref(),
            Some("Levi Stadium AND Denver OR Colorado")
        );
        assert_eq!(text(&[&["Band and Order"]]).as_deref(), Some("Band and Order"));
        for unspeakable in
            [&[&["this AND that"][..]][..], &[&["a"], &["b OR c"]], &[&["a"], &[" "]], &[&["a"], &[]], &[]]
        {
            assert_eq!(text(unspeakable), None, "{unspeakable:?}");
        }
    }

    #[test]
    fn requests_are_those_of_the_public_api() {
        let request = |mode| {
            let options = CnfOptions { mode, ..CnfOptions::default() };
            serde_json::to_string(&CountRequest::new("v4_pileval_llama", "red AND fox", &options)).unwrap()
        };
        assert_eq!(
            request(Mode::Compatible),
            r#"{"index":"v4_pileval_llama","query_type":"count","query":"red AND fox","max_clause_freq":500000,"max_diff_tokens":1000}"#
        );
        assert!(request(Mode::Exact).ends_with(r#","exact":true}"#));
    }

    #[test]
    fn answers_are_those_of_the_public_api() {
        let read = |json: &str| serde_json::from_str::<CountAnswer>(json).map(CountAnswer::into_count);
        let public = r#"{"count":2349754,"approx":false,"latency":0.73,"token_ids":[3014],"tokens":["▁University"]}"#;
        assert_eq!(read(public).unwrap(), Ok(WordCount { count: 2_349_754, ..WordCount::default() }));
        let sampled = WordCount { count: 9, approx: true, sampled: true, at_least: false };
        assert_eq!(read(r#"{"count":9,"approx":true}"#).unwrap(), Ok(sampled));
        assert_eq!(
            read(r#"{"count":9,"approx":false,"exact":false}"#).unwrap(),
            Ok(WordCount { approx: false, ..sampled })
        );
        assert_eq!(read(r#"{"error":"no such index","latency":1}"#).unwrap(), Err("no such index".to_owned()));
        for garbage in ["{}", "[]", "7", r#"{"count":-1,"approx":false}"#, r#"{"count":7}"#] {
            assert!(read(garbage).is_err(), "{garbage}");
        }
    }
}
