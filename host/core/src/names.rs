//! Triplets without a model: the names of a sentence, each with the first. Not in the paper.
//!
//! A name is a run of capitalised words, a quoted title, or a number such as a year. The first one is
//! the subject, or the entity of the question if the sentence begins with a pronoun. A pair is left
//! out if all words of one name are in the other. The relation is empty, so these triplets suit rules
//! that need head and tail only. A question states nothing, so it has no triplets.

use std::sync::LazyLock;

use regex::Regex;

use crate::language::{LanguageWords, words_of};
use crate::{BoxError, Claim, Extractor, ExtractorInput, Language, Triplet};

/// Most triplets of a sentence. A longer list of names states few facts about its first.
const MAX_TRIPLETS: usize = 8;

/// Patterns of a name, by language: a quoted title, a run of capitalised words with short words between
/// them, or a number. Chinese has no capitals.
static NAME: LazyLock<Vec<(Language, Regex)>> = LazyLock::new(|| {
    let languages = [Language::English, Language::German, Language::Spanish, Language::French];
    languages.map(|language| (language, name_pattern(words_of(language)))).into()
});

fn name_pattern(words: &LanguageWords) -> Regex {
    let LanguageWords { particles, elided_particles, title, .. } = words;
    let pattern = format!(
        r#"(?x)
        “(?<curly>[^“”]{{2,80}})” | "(?<straight>[^"]{{2,80}})" | {title}
        | „(?<low>[^„“”]{{2,80}})[“”]
        | (?<run>\b\p{{Lu}}[\p{{L}}\p{{M}}\p{{N}}'’.-]*
            (?:\s(?:(?:{particles})\s|{elided_particles})?\p{{Lu}}[\p{{L}}\p{{M}}\p{{N}}'’.-]*)*)
        | (?<number>\b\d[\d,.]*\d\b|\b\d\b)"#,
    );
    Regex::new(&pattern).expect("the patterns are constant")
}

/// Extractor without a model.
#[derive(Debug, Clone, Copy)]
pub struct NameExtractor {
    pattern: &'static Regex,
    words: &'static LanguageWords,
}

impl Extractor for NameExtractor {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        let mut triplets = Vec::with_capacity(inputs.len());
        for input in inputs {
            let is_question = is_question(input.sentence);
            triplets.push(if is_question { Vec::new() } else { self.triplets(*input) });
        }
        Ok(triplets)
    }
}

impl NameExtractor {
    /// Creates the extractor of a language; `None` for Chinese, whose names have no capitals.
    #[must_use]
    pub fn new(language: Language) -> Option<Self> {
        let (_, pattern) = NAME.iter().find(|(known, _)| *known == language)?;
        Some(Self { pattern, words: words_of(language) })
    }

    /// Returns the names of a text, in order, each once.
    #[must_use]
    pub fn names<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for found in self.pattern.captures_iter(text) {
            let quoted =
                ["curly", "straight", "guillemets", "low"].iter().find_map(|name| found.name(name));
            let name = match (quoted, found.name("run"), found.name("number")) {
                (Some(title), ..) => title.as_str().trim(),
                (_, Some(run), _) => self.without_openers(run.as_str()),
                (.., Some(number)) => number.as_str(),
                _ => continue,
            };
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns a run of capitalised words without words at its start that name nothing, elided words,
    /// possessive endings and full stops.
    fn without_openers<'a>(&self, run: &'a str) -> &'a str {
        let mut run = run;
        loop {
            let first = run.split(char::is_whitespace).next().unwrap_or_default();
            let word = first.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
            let word = word.replace('’', "'");
            if let Some((before, rest)) = first.split_once(['\'', '’'])
                && self.words.elided.contains(&before.to_lowercase().as_str())
                && rest.starts_with(char::is_uppercase)
            {
                run = &run[first.len() - rest.len()..]; // L'Europe
                continue;
            }
            let names_nothing = self.words.name_nothing(&word) || self.is_contraction(first);
            if first.is_empty() || !names_nothing {
                break;
            }
            run = run[first.len()..].trim_start();
        }
        without_possessive(run.trim_end_matches(['.', '-', '\'', '’']))
    }

    /// Returns true for a word such as “It's” or “C'est”, which “O'Donnell” is not.
    fn is_contraction(&self, word: &str) -> bool {
        let LanguageWords { pronouns, function_words, elided, .. } = self.words;
        let Some((start, rest)) = word.split_once(['\'', '’']) else { return false };
        let start = start.to_lowercase();
        rest.starts_with(char::is_lowercase)
            && [pronouns, function_words, elided].iter().any(|list| list.contains(&start.as_str()))
    }

    /// Returns true if the first word of a sentence is a pronoun.
    fn begins_with_pronoun(&self, sentence: &str) -> bool {
        let first = sentence.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty());
        first.is_some_and(|word| self.words.is_pronoun(word))
    }

    /// Returns the triplets of a text, or if it has none a mention of its first name.
    #[must_use]
    pub fn claims(&self, input: ExtractorInput<'_>) -> Vec<Claim> {
        let facts = self.triplets(input);
        if facts.is_empty()
            && let Some(&first) = self.names(input.sentence).first()
        {
            return vec![Claim::Mention { head: first.to_owned(), relation: String::new() }];
        }
        facts.into_iter().map(Claim::Fact).collect()
    }

    /// Returns the triplets of a sentence: its first name with each other, without a relation.
    #[must_use]
    pub fn triplets(&self, input: ExtractorInput<'_>) -> Vec<Triplet> {
        let mut names_of_sentence = self.names(input.sentence);
        if self.begins_with_pronoun(input.sentence) {
            let Some(&subject) = self.names(input.question).first() else { return Vec::new() };
            names_of_sentence.retain(|&name| name != subject);
            names_of_sentence.insert(0, subject);
        }
        let Some((&head, others)) = names_of_sentence.split_first() else { return Vec::new() };
        let tails = others.iter().filter(|tail| !within(tail, head) && !within(head, tail));
        let mut triplets = Vec::new();
        for &tail in tails.take(MAX_TRIPLETS) {
            triplets.push(Triplet {
                head: head.to_owned(),
                relation: String::new(),
                tail: tail.to_owned(),
            });
        }
        triplets
    }
}

fn is_question(sentence: &str) -> bool {
    sentence.trim_end_matches(|c: char| c.is_whitespace() || "\"'”’)".contains(c)).ends_with('?')
}

/// Returns true if every word of `part` is in `whole`. Each text with “New York City” has “New York”, so
/// their count is no evidence. Words are compared without punctuation and possessive endings.
fn within(part: &str, whole: &str) -> bool {
    let words: Vec<&str> = whole.split_whitespace().map(bare).collect();
    part.split_whitespace().all(|word| words.contains(&bare(word)))
}

fn bare(word: &str) -> &str {
    without_possessive(word.trim_matches(|c: char| !c.is_alphanumeric()))
}

fn without_possessive(name: &str) -> &str {
    name.strip_suffix("'s").or_else(|| name.strip_suffix("’s")).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(sentence: &str, question: &str) -> Vec<String> {
        pairs_in(Language::English, sentence, question)
    }

    fn pairs_in(language: Language, sentence: &str, question: &str) -> Vec<String> {
        let extractor = NameExtractor::new(language).expect("it has capitals");
        let triplets = extractor.triplets(ExtractorInput { sentence, question });
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
        assert_eq!(
            pairs("New York City is in New York, as New York City Hall and Yorktown are.", ""),
            ["New York City | Yorktown"]
        );
        assert_eq!(pairs("U.S. Army is in U.S.", ""), [""; 0]);
        assert_eq!(pairs("“New York's Broadway” is in New York, as the Met is.", "").len(), 1);
        assert_eq!(pairs("The film is Italian.", ""), [""; 0]);
        assert_eq!(pairs("it rains. so what?", ""), [""; 0]);
    }

    #[test]
    fn questions_state_nothing() {
        let mut extractor = NameExtractor::new(Language::English).unwrap();
        let sentences =
            ["Was Bach in Rome?", "(“Was Bach in Rome?”) ", "Bach wrote “Who?” in Rome."];
        let inputs = sentences.map(ExtractorInput::of_sentence);
        let found: Vec<usize> = extractor.extract(&inputs).unwrap().iter().map(Vec::len).collect();
        assert_eq!(found, [0, 0, 2]);
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
    fn text_without_triplet_mentions_its_first_name() {
        let claims = NameExtractor::new(Language::English)
            .unwrap()
            .claims(ExtractorInput::of_sentence("Where was Mario Camerini born?"));
        let mention = Claim::Mention { head: "Mario Camerini".to_owned(), relation: String::new() };
        assert_eq!(claims, [mention]);
        let nested = ExtractorInput::of_sentence("Is New York City in New York?");
        let mention = Claim::Mention { head: "New York City".to_owned(), relation: String::new() };
        assert_eq!(NameExtractor::new(Language::English).unwrap().claims(nested), [mention]);
    }

    #[test]
    fn names_of_other_languages_have_their_articles_particles_and_pronouns() {
        let pairs = |language, sentence| pairs_in(language, sentence, "Wo wurde Goethe geboren?");
        assert_eq!(
            pairs(Language::German, "Im Jahr 1774 schrieb er „Die Leiden“ in Frankfurt am Main."),
            ["Jahr | 1774", "Jahr | Die Leiden", "Jahr | Frankfurt am Main"]
        );
        assert_eq!(
            pairs(Language::German, "Er starb 1832 in Weimar."),
            ["Goethe | 1832", "Goethe | Weimar"]
        );
        assert_eq!(
            pairs(Language::French, "L'Arc de Triomphe de l'Étoile est à Paris."),
            ["Arc de Triomphe de l'Étoile | Paris"]
        );
        assert_eq!(
            pairs(Language::French, "C'est Jeanne d'Arc qui vit Charles VII à Chinon et Rome."),
            ["Jeanne d'Arc | Charles VII", "Jeanne d'Arc | Chinon", "Jeanne d'Arc | Rome"]
        );
        assert_eq!(
            pairs(Language::German, "Goethe schrieb »Faust« und »Egmont« in Weimar und Rom."),
            ["Goethe | Faust", "Goethe | Egmont", "Goethe | Weimar", "Goethe | Rom"]
        );
        assert_eq!(
            pairs(Language::Spanish, "O'Donnell gobernó Cuba y España."),
            ["O'Donnell | Cuba", "O'Donnell | España"]
        );
        assert_eq!(
            pairs(Language::Spanish, "En 1605, Miguel de Cervantes publicó «El Quijote»."),
            ["1605 | Miguel de Cervantes", "1605 | El Quijote"]
        );
        assert!(NameExtractor::new(Language::Chinese).is_none());
    }

    #[test]
    fn contractions_leave_no_fragment() {
        let question = "Where was Mario Camerini born?";
        assert_eq!(pairs("It's in Rome.", question), ["Mario Camerini | Rome"]);
        assert_eq!(pairs("A'ja Wilson plays in Las Vegas.", ""), ["A'ja Wilson | Las Vegas"]);
    }

    #[test]
    fn list_of_names_is_bounded() {
        let list = ('A'..='Z').map(|letter| format!("{letter}a")).collect::<Vec<_>>().join(", ");
        assert_eq!(pairs(&list, "").len(), MAX_TRIPLETS);
    }
}
