//! Queries of words.

use std::fmt;

use crate::Query;

impl Query {
    /// Returns the query for all of these words near each other. Words that differ in capitals only
    /// are taken once.
    pub fn all_of<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all_of: Vec<Vec<String>> = Vec::with_capacity(8);
        for word in words {
            if !all_of.iter().flatten().any(|seen| is_same_word(seen, word)) {
                all_of.push(vec![word.to_owned()]);
            }
        }
        Self { all_of, limit: None }
    }

    /// Returns the words of all clauses, in order.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.all_of.iter().flatten().map(String::as_str)
    }

    /// Lets the host stop counting at `limit` occurrences: a larger number would not change the
    /// verdict.
    #[must_use]
    pub fn limit(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }
}

/// Returns true if two words differ in capitals at most.
fn is_same_word(a: &str, b: &str) -> bool {
    if a.is_ascii() && b.is_ascii() {
        a.eq_ignore_ascii_case(b)
    } else {
        a.to_lowercase() == b.to_lowercase()
    }
}

/// For example `Paris AND city OR town`.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clauses: Vec<String> = self.all_of.iter().map(|words| words.join(" OR ")).collect();
        f.write_str(&clauses.join(" AND "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_contains_each_word_once() {
        let query = Query::all_of(["Paris", "PARIS", "Größe", "GRÖSSE", "größe"]).limit(3);
        assert!(query.words().eq(["Paris", "Größe", "GRÖSSE"]));
        assert_eq!(
            (query.to_string().as_str(), query.limit),
            ("Paris AND Größe AND GRÖSSE", Some(3))
        );
    }
}
