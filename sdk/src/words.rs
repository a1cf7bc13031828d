//! Query words of an entity (paper, “Sentence to count”; details as in the authors' code).

use crate::text::{is_space, strip};
use crate::{Query, Sentence, Triplet};

/// Returns true if `entity` is a pronoun, which names nothing by itself.
#[must_use]
pub fn is_pronoun(entity: &str) -> bool {
    in_lower_case::<{ "themselves".len() }>(strip(entity), is_listed_pronoun)
}

/// Returns the words of `entity` for queries: its capitalised words; without any, its words of three
/// characters or more; without any, all of it. Stop words are left out. Order and repetitions stay.
#[must_use]
pub fn content_words(entity: &str) -> Vec<&str> {
    let words = words_that_count(entity);
    if words.is_empty() { vec![strip(entity)] } else { words }
}

/// Returns the content words of a relation: as of an entity, but none for “was for”, since the
/// entire phrase as a query word would rarely occur (paper, “RelCheck”).
#[must_use]
pub fn relation_words(relation: &str) -> Vec<&str> {
    words_that_count(relation)
}

fn words_that_count(text: &str) -> Vec<&str> {
    let longer_than = |word: &str, length: usize| word.chars().nth(length).is_some();
    let mut words = Vec::with_capacity(4);
    let mut capitalised = false;
    for word in text.split(|c| c == ',' || is_space(c)) {
        let proper = longer_than(word, 1) && word.starts_with(char::is_uppercase);
        let counts = proper || (!capitalised && longer_than(word, 2));
        if counts && !is_stop_word(word) {
            if proper && !capitalised {
                capitalised = true;
                words.clear();
            }
            words.push(word);
        }
    }
    words
}

/// Returns the query for the content words of `head` and `tail`; `None` if they are fewer than two.
#[must_use]
pub fn word_query(head: &str, tail: &str) -> Option<Query> {
    let query = Query::all_of(content_words(head).into_iter().chain(content_words(tail)));
    (query.all_of.len() >= 2).then_some(query)
}

fn is_stop_word(word: &str) -> bool {
    in_lower_case::<{ "being".len() }>(word, is_listed_stop_word)
}

// Written by tests/words.rs from the files named.

#[rustfmt::skip]
fn is_listed_stop_word(word: &[u8]) -> bool {
    matches!(
        word,
        // words/stop_words.txt
        | b"a" | b"an" | b"and" | b"are" | b"as" | b"at" | b"be" | b"been" | b"being" | b"but"
        | b"by" | b"did" | b"do" | b"does" | b"for" | b"from" | b"had" | b"has" | b"have"
        | b"if" | b"in" | b"is" | b"it" | b"its" | b"no" | b"not" | b"of" | b"on" | b"or"
        | b"so" | b"the" | b"to" | b"was" | b"were" | b"with"
        // end of words/stop_words.txt
    )
}

#[rustfmt::skip]
fn is_listed_pronoun(word: &[u8]) -> bool {
    matches!(
        word,
        // words/pronouns.txt
        | b"anyone" | b"anything" | b"everyone" | b"everything" | b"he" | b"her" | b"here"
        | b"hers" | b"herself" | b"him" | b"himself" | b"his" | b"i" | b"it" | b"its"
        | b"itself" | b"me" | b"mine" | b"my" | b"myself" | b"nobody" | b"nothing" | b"our"
        | b"ours" | b"she" | b"someone" | b"something" | b"that" | b"their" | b"theirs"
        | b"them" | b"themselves" | b"there" | b"these" | b"they" | b"this" | b"those" | b"us"
        | b"we" | b"which" | b"who" | b"whom" | b"you" | b"your" | b"yours" | b"yourself"
        // end of words/pronouns.txt
    )
}

/// Returns true if `is` holds for the word in lower case and the word has at most `LONGEST` bytes.
///
/// A longer word needs neither a copy nor the decision tree that the patterns of bytes become.
fn in_lower_case<const LONGEST: usize>(word: &str, is: impl Fn(&[u8]) -> bool) -> bool {
    if !word.is_ascii() {
        return is(word.to_lowercase().as_bytes());
    }
    let mut lower = [0; LONGEST];
    let Some(lower) = lower.get_mut(..word.len()) else { return false };
    lower.iter_mut().zip(word.bytes()).for_each(|(lower, byte)| *lower = byte.to_ascii_lowercase());
    is(lower)
}

impl Triplet {
    /// Returns true if both head and tail name something: neither is blank or a pronoun.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        [&self.head, &self.tail].into_iter().all(|end| !strip(end).is_empty() && !is_pronoun(end))
    }

    /// Returns the [`word_query`] of head and tail.
    #[must_use]
    pub fn word_query(&self) -> Option<Query> {
        word_query(&self.head, &self.tail)
    }

    /// Returns [`Self::word_query`] with the relation's words; equal to it if they add none.
    #[must_use]
    pub fn relation_query(&self) -> Option<Query> {
        let ends = content_words(&self.head).into_iter().chain(content_words(&self.tail));
        self.word_query().map(|_| Query::all_of(ends.chain(relation_words(&self.relation))))
    }
}

impl Sentence {
    /// Returns the valid triplets with their indices in `triplets`, in the extractor's order.
    pub fn valid_triplets(&self) -> impl Iterator<Item = (usize, &Triplet)> {
        self.triplets.iter().enumerate().filter(|(_, triplet)| triplet.is_valid())
    }

    /// Returns the first of [`Self::valid_triplets`].
    #[must_use]
    pub fn first_valid_triplet(&self) -> Option<(usize, &Triplet)> {
        self.valid_triplets().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capitalised_words_replace_other_content_words() {
        assert_eq!(content_words("theory of Albert Einstein, 1905"), ["Albert", "Einstein"]);
        assert_eq!(content_words("the second battle"), ["second", "battle"]);
        assert_eq!(content_words(" A OR B "), ["A OR B"]);
    }

    #[test]
    fn word_query_needs_two_distinct_words() {
        let query = word_query("Paris, France", "paris Texas").expect("three words");
        assert!(query.words().eq(["Paris", "France", "Texas"]));
        assert_eq!(word_query("Paris", "PARIS"), None);
    }

    #[test]
    fn relation_without_content_words_adds_nothing() {
        for relation in [" ", "was for", "is", "OF THE", "to be"] {
            let triplet =
                Triplet { head: "Paris".into(), relation: relation.into(), tail: "Peru".into() };
            assert_eq!(triplet.relation_query(), triplet.word_query(), "{relation:?}");
        }
        assert_eq!(relation_words("was the capital of"), ["capital"]);
    }

    #[test]
    fn every_listed_word_is_known() {
        let words = |list: &'static str| list.split_whitespace();
        assert!(words(include_str!("../words/pronouns.txt")).all(is_pronoun));
        assert!(words(include_str!("../words/stop_words.txt")).all(is_stop_word));
    }

    #[test]
    fn pronouns_and_stop_words_ignore_case() {
        assert!(["I", "themselves", "THEMSELVES", " Anything "].into_iter().all(is_pronoun));
        assert!(["a", "Being", "WITH"].into_iter().all(is_stop_word));
        assert!(!["", "themselvess", "i̇t", "thém", "Paris"].into_iter().any(is_pronoun));
        assert!(!["", "bein", "beings", "withoutadoubt"].into_iter().any(is_stop_word));
    }
}
