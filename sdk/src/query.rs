//! What a rule asks the corpus.

use std::fmt;

use crate::bindings;

/// Asks how often all clauses occur near each other in the corpus.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// AND of clauses; a clause is an OR of surface words, written as in running text. Where a clause has no words, or an
    /// empty one, there is no count.
    pub all_of: Vec<Vec<String>>,
    /// “I need not know the count beyond this”: the host may stop counting there.
    pub enough: Option<u64>,
}

/// Asks how often all of these words occur near each other. It borrows them: a query is written out only where
/// [`crate::Corpus::count`] has to ask it.
#[derive(Debug, Clone, PartialEq)]
pub struct WordQuery<'a> {
    words: Vec<&'a str>,
    enough: Option<u64>,
}

impl<'a> WordQuery<'a> {
    /// Takes each word once, however it is capitalised.
    pub fn new(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut once: Vec<&str> = Vec::with_capacity(8);
        // Mostly all of them are ASCII, and then nothing need be copied to be compared.
        let mut ascii = true;
        for word in words {
            ascii &= word.is_ascii();
            let is_word = |seen: &&str| {
                if ascii { seen.eq_ignore_ascii_case(word) } else { seen.to_lowercase() == word.to_lowercase() }
            };
            if !once.iter().any(is_word) {
                once.push(word);
            }
        }
        Self { words: once, enough: None }
    }

    /// In the order in which they were given.
    #[must_use]
    pub fn words(&self) -> &[&'a str] {
        &self.words
    }

    /// Spares the host all counting beyond `enough` occurrences: any larger number would not change the verdict.
    #[must_use]
    pub fn enough(self, enough: u64) -> Self {
        Self { enough: Some(enough), ..self }
    }
}

impl From<WordQuery<'_>> for Query {
    fn from(WordQuery { words, enough }: WordQuery<'_>) -> Self {
        Self { all_of: words.into_iter().map(|word| vec![word.to_owned()]).collect(), enough }
    }
}

/// As the contract has it: a clause a line, tabs between its words. Within a word, both are spaces.
impl From<Query> for bindings::Query {
    fn from(Query { all_of, enough }: Query) -> Self {
        let mut text = Vec::with_capacity(all_of.iter().flatten().map(|word| word.len() + 1).sum());
        // Words are short: one pass over their bytes measured no slower than a search and a copy.
        let written = |byte| if matches!(byte, b'\n' | b'\t') { b' ' } else { byte };
        for (i, clause) in all_of.iter().enumerate() {
            if i > 0 {
                text.push(b'\n');
            }
            for (i, word) in clause.iter().enumerate() {
                if i > 0 {
                    text.push(b'\t');
                }
                text.extend(word.bytes().map(written));
            }
        }
        let text = String::from_utf8(text).expect("only ASCII was changed");
        Self { all_of: text, enough }
    }
}

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
    fn each_word_is_there_once() {
        let query = WordQuery::new(["Paris", "PARIS", "Größe", "GRÖSSE", "größe"]).enough(3);
        assert_eq!(query.words(), ["Paris", "Größe", "GRÖSSE"]);
        let written = Query::from(query);
        assert_eq!((written.to_string().as_str(), written.enough), ("Paris AND Größe AND GRÖSSE", Some(3)));
    }

    #[test]
    fn a_query_crosses_as_one_text() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let query = Query { all_of: vec![words(&["red\nfox", "the\tden"]), words(&["Rome"])], enough: Some(20) };
        let bindings::Query { all_of, enough } = query.into();
        assert_eq!((all_of.as_str(), enough), ("red fox\tthe den\nRome", Some(20)));
    }
}
