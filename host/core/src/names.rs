//! Triplets without a model: the names of a sentence, each with the first. Not in the paper.
//!
//! A name is a run of capitalised words, a quoted title, or a number such as a year. The first one is
//! the subject, or the entity of the question if the sentence begins with a pronoun. For rules that
//! need head and tail only: the relation is empty.

use std::sync::LazyLock;

use regex::Regex;

use crate::{BoxError, Claim, Extractor, ExtractorInput, Triplet};

/// Most triplets of a sentence. A longer list of names states few facts about its first.
const MAX_TRIPLETS: usize = 8;

/// A quoted title, a run of capitalised words with short words between them, or a number.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?x)
        “(?<curly>[^“”]{2,80})” | "(?<straight>[^"]{2,80})" | «\s?(?<guillemets>[^«»]{2,80}?)\s?»
        | (?<run>\b\p{Lu}[\p{L}\p{M}\p{N}'’.-]*
            (?:\s(?:(?:of(?:\sthe)?|de(?:\s(?:la|las|los))?|del|della|di|da|do|dos|du|la|le|van(?:\sde[nr])?
                  |von(?:\sder)?|der|zu|y|al|bin|ibn)\s)?
               \p{Lu}[\p{L}\p{M}\p{N}'’.-]*)*)
        | (?<number>\b\d[\d,.]*\d\b|\b\d\b)"#,
    )
    .expect("the pattern is constant")
});

/// Capitalised words that begin a sentence or a question and name nothing.
const OPENERS: &[&str] = &[
    "a",
    "according",
    "after",
    "all",
    "also",
    "although",
    "among",
    "an",
    "and",
    "another",
    "are",
    "as",
    "at",
    "based",
    "because",
    "before",
    "both",
    "but",
    "by",
    "can",
    "did",
    "do",
    "does",
    "during",
    "each",
    "even",
    "every",
    "finally",
    "first",
    "for",
    "from",
    "given",
    "had",
    "has",
    "have",
    "here",
    "hence",
    "how",
    "however",
    "i",
    "if",
    "in",
    "indeed",
    "is",
    "its",
    "let",
    "many",
    "most",
    "my",
    "next",
    "no",
    "not",
    "now",
    "of",
    "on",
    "one",
    "or",
    "our",
    "please",
    "second",
    "several",
    "since",
    "so",
    "some",
    "such",
    "that",
    "the",
    "their",
    "then",
    "there",
    "therefore",
    "these",
    "this",
    "those",
    "though",
    "thus",
    "to",
    "today",
    "under",
    "until",
    "was",
    "we",
    "were",
    "what",
    "when",
    "where",
    "whether",
    "which",
    "while",
    "who",
    "whom",
    "whose",
    "why",
    "with",
    "yes",
    "you",
    "your",
];

/// Words at the start of a sentence that refer to the entity of the question.
const PRONOUNS: &[&str] = &[
    "he", "her", "hers", "his", "it", "its", "she", "that", "their", "they", "this", "these",
    "those",
];

/// Extractor without a model.
#[derive(Debug, Clone, Copy, Default)]
pub struct NameExtractor;

impl Extractor for NameExtractor {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        Ok(inputs.iter().map(|input| triplets_of_names(*input)).collect())
    }
}

/// Returns the names of a text, in order, each once.
#[must_use]
pub fn names(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for found in NAME.captures_iter(text) {
        let quoted = ["curly", "straight", "guillemets"].iter().find_map(|name| found.name(name));
        let name = match (quoted, found.name("run"), found.name("number")) {
            (Some(title), ..) => title.as_str().trim(),
            (_, Some(run), _) => without_openers(run.as_str()),
            (.., Some(number)) => number.as_str(),
            _ => continue,
        };
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns a run of capitalised words without openers and pronouns at its start, possessive endings
/// and full stops.
fn without_openers(run: &str) -> &str {
    let mut run = run;
    loop {
        let first = run.split(char::is_whitespace).next().unwrap_or_default();
        let word = first.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        if first.is_empty()
            || !(OPENERS.contains(&word.as_str()) || PRONOUNS.contains(&word.as_str()))
        {
            break;
        }
        run = run[first.len()..].trim_start();
    }
    let run = run.trim_end_matches(['.', '-', '\'', '’']);
    run.strip_suffix("'s").or_else(|| run.strip_suffix("’s")).unwrap_or(run)
}

/// True if the first word of a sentence is a pronoun.
fn begins_with_pronoun(sentence: &str) -> bool {
    let first = sentence.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty());
    first.is_some_and(|word| PRONOUNS.contains(&word.to_lowercase().as_str()))
}

/// Returns the triplets of a text, or a mention of its only name.
#[must_use]
pub fn claims_of_names(input: ExtractorInput<'_>) -> Vec<Claim> {
    let facts = triplets_of_names(input);
    if let ([], [only]) = (&facts[..], &names(input.sentence)[..]) {
        return vec![Claim::Mention { head: (*only).to_owned(), relation: String::new() }];
    }
    facts.into_iter().map(Claim::Fact).collect()
}

/// Returns the triplets of a sentence: its first name with each other, without a relation.
#[must_use]
pub fn triplets_of_names(input: ExtractorInput<'_>) -> Vec<Triplet> {
    let mut names_of_sentence = names(input.sentence);
    if begins_with_pronoun(input.sentence) {
        let Some(&subject) = names(input.question).first() else { return Vec::new() };
        names_of_sentence.retain(|&name| name != subject);
        names_of_sentence.insert(0, subject);
    }
    let Some((&head, tails)) = names_of_sentence.split_first() else { return Vec::new() };
    let mut triplets = Vec::new();
    for &tail in tails.iter().take(MAX_TRIPLETS) {
        triplets.push(Triplet {
            head: head.to_owned(),
            relation: String::new(),
            tail: tail.to_owned(),
        });
    }
    triplets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(sentence: &str, question: &str) -> Vec<String> {
        let triplets = triplets_of_names(ExtractorInput { sentence, question });
        triplets.iter().map(|triplet| format!("{} | {}", triplet.head, triplet.tail)).collect()
    }

    #[test]
    fn first_name_is_paired_with_the_others() {
        assert_eq!(
            pairs("In 1954, Mario Camerini directed “The Seducer” at the University of Rome.", ""),
            ["1954 | Mario Camerini", "1954 | The Seducer", "1954 | University of Rome"]
        );
        assert_eq!(pairs("Émile Zola's novel is from Paris.", ""), ["Émile Zola | Paris"]);
        assert_eq!(
            pairs("Ludwig van Beethoven met J. W. Goethe.", ""),
            ["Ludwig van Beethoven | J. W. Goethe"]
        );
        assert_eq!(
            pairs("Paris and Rome host the Bank of the West.", ""),
            ["Paris | Rome", "Paris | Bank of the West"]
        );
        assert_eq!(pairs("The film is Italian.", ""), [""; 0]);
        assert_eq!(pairs("it rains. so what?", ""), [""; 0]);
    }

    #[test]
    fn pronoun_stands_for_entity_of_question() {
        let question = "Where was Mario Camerini born?";
        assert_eq!(pairs("He was born in Rome.", question), ["Mario Camerini | Rome"]);
        assert_eq!(
            pairs("His films include Il Seduttore, of 1954.", question),
            ["Mario Camerini | Il Seduttore", "Mario Camerini | 1954"]
        );
        assert_eq!(pairs("He was born in Rome.", "who is it?"), [""; 0]);
        assert_eq!(pairs("Rome is where he was born.", question), [""; 0]);
    }

    #[test]
    fn single_name_is_mention() {
        let claims = claims_of_names(ExtractorInput::of_sentence("Where was Mario Camerini born?"));
        let mention = Claim::Mention { head: "Mario Camerini".to_owned(), relation: String::new() };
        assert_eq!(claims, [mention]);
    }

    #[test]
    fn list_of_names_is_bounded() {
        let list = ('A'..='Z').map(|letter| format!("{letter}a")).collect::<Vec<_>>().join(", ");
        assert_eq!(pairs(&list, "").len(), MAX_TRIPLETS);
    }
}
