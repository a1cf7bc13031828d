//! From an entity to the words that stand for it in a query (paper, “Sentence to count”; details as the authors' code).

use std::fmt;

use crate::text::{is_space, strip};
use crate::{Query, Sentence, Triplet};

const STOP_WORDS: [&str; 35] = [
    "a", "an", "and", "are", "as", "at", "be", "been", "being", "but", "by", "did", "do", "does", "for", "from", "had",
    "has", "have", "if", "in", "is", "it", "its", "no", "not", "of", "on", "or", "so", "the", "to", "was", "were",
    "with",
];

const PRONOUNS: [&str; 46] = [
    "anyone",
    "anything",
    "everyone",
    "everything",
    "he",
    "her",
    "here",
    "hers",
    "herself",
    "him",
    "himself",
    "his",
    "i",
    "it",
    "its",
    "itself",
    "me",
    "mine",
    "my",
    "myself",
    "nobody",
    "nothing",
    "our",
    "ours",
    "she",
    "someone",
    "something",
    "that",
    "their",
    "theirs",
    "them",
    "themselves",
    "there",
    "these",
    "they",
    "this",
    "those",
    "us",
    "we",
    "which",
    "who",
    "whom",
    "you",
    "your",
    "yours",
    "yourself",
];

/// Whether `entity` is a word that names nothing by itself.
#[must_use]
pub fn is_pronoun(entity: &str) -> bool {
    is_among(strip(entity), &PRONOUNS, 10)
}

/// The words of `entity` that its queries are made of: its capitalised words; without any, its words of three and more
/// characters; without any, the whole of it. Stop words never count. Order and repetitions are kept.
#[must_use]
pub fn content_words(entity: &str) -> Vec<&str> {
    let mut words: Vec<&str> =
        entity.split(|c| c == ',' || is_space(c)).filter(|word| !word.is_empty() && !is_stop_word(word)).collect();
    let longer_than = |word: &str, length: usize| word.chars().nth(length).is_some();
    let proper = |word: &&str| longer_than(word, 1) && word.chars().next().is_some_and(char::is_uppercase);
    if words.iter().any(proper) {
        words.retain(proper);
    } else {
        words.retain(|word| longer_than(word, 2));
    }
    if words.is_empty() { vec![strip(entity)] } else { words }
}

/// The words of a relation; none where it is blank.
#[must_use]
pub fn relation_words(relation: &str) -> Vec<&str> {
    if strip(relation).is_empty() { Vec::new() } else { content_words(relation) }
}

/// Asks how often the content words of `head` and `tail` occur together; `None` where they are fewer than two.
#[must_use]
pub fn word_query(head: &str, tail: &str) -> Option<Query> {
    let query = Query::words(content_words(head).into_iter().chain(content_words(tail)));
    (query.all_of.len() >= 2).then_some(query)
}

fn is_stop_word(word: &str) -> bool {
    is_among(word, &STOP_WORDS, 5)
}

/// Whether `list`, whose longest word has `longest` characters, has this word, whatever its case.
fn is_among(word: &str, list: &[&str], longest: usize) -> bool {
    // Lower case never has fewer characters: most words need no look at the list.
    if word.chars().nth(longest).is_some() {
        false
    } else if word.is_ascii() {
        list.iter().any(|entry| entry.eq_ignore_ascii_case(word))
    } else {
        list.contains(&word.to_lowercase().as_str())
    }
}

impl Query {
    /// All of these words near each other, each once, however it is capitalised.
    pub fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all_of: Vec<Vec<String>> = Vec::new();
        // Mostly all of them are ASCII, and then nothing need be copied to be compared.
        let mut ascii = true;
        for word in words {
            ascii &= word.is_ascii();
            let is_word = |seen: &String| {
                if ascii { seen.eq_ignore_ascii_case(word) } else { seen.to_lowercase() == word.to_lowercase() }
            };
            if !all_of.iter().flatten().any(is_word) {
                all_of.push(vec![word.to_owned()]);
            }
        }
        Self { all_of, enough: None }
    }

    /// Spares the host all counting beyond `enough` occurrences: any larger number would not change the verdict.
    #[must_use]
    pub fn enough(self, enough: u64) -> Self {
        Self { enough: Some(enough), ..self }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clauses: Vec<String> = self.all_of.iter().map(|words| words.join(" OR ")).collect();
        f.write_str(&clauses.join(" AND "))
    }
}

impl Triplet {
    /// Names both its ends: neither is blank or a pronoun.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        [&self.head, &self.tail].into_iter().all(|end| !strip(end).is_empty() && !is_pronoun(end))
    }

    /// [`word_query`] of head and tail.
    #[must_use]
    pub fn word_query(&self) -> Option<Query> {
        word_query(&self.head, &self.tail)
    }

    /// [`Self::word_query`] with the relation's words added to the AND; equal to it where they add none.
    #[must_use]
    pub fn relation_query(&self) -> Option<Query> {
        let ends = content_words(&self.head).into_iter().chain(content_words(&self.tail));
        self.word_query().map(|_| Query::words(ends.chain(relation_words(&self.relation))))
    }
}

impl Sentence {
    /// Its valid triplets with their places in `triplets`, in the extractor's order.
    pub fn valid_triplets(&self) -> impl Iterator<Item = (usize, &Triplet)> {
        self.triplets.iter().enumerate().filter(|(_, triplet)| triplet.is_valid())
    }

    /// The first of [`Self::valid_triplets`].
    #[must_use]
    pub fn first_valid_triplet(&self) -> Option<(usize, &Triplet)> {
        self.valid_triplets().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capitalised_words_hide_the_others() {
        assert_eq!(content_words("theory of Albert Einstein, 1905"), ["Albert", "Einstein"]);
        assert_eq!(content_words("the second battle"), ["second", "battle"]);
        assert_eq!(content_words(" A OR B "), ["A OR B"]);
    }

    #[test]
    fn a_query_has_each_word_once_and_at_least_two() {
        let query = word_query("Paris, France", "paris Texas").expect("three words");
        assert_eq!(query.to_string(), "Paris AND France AND Texas");
        assert_eq!(word_query("Paris", "PARIS"), None);
    }

    #[test]
    fn a_blank_relation_adds_nothing() {
        let triplet = Triplet { head: "Paris".into(), relation: " ".into(), tail: "Peru".into() };
        assert_eq!(triplet.relation_query(), triplet.word_query());
    }

    #[test]
    fn lists_are_sorted_and_their_longest_words_are_found() {
        assert!(STOP_WORDS.is_sorted() && PRONOUNS.is_sorted());
        assert!(PRONOUNS.iter().all(|word| is_pronoun(word)) && STOP_WORDS.iter().all(|word| is_stop_word(word)));
    }
}
