//! Reading running text about the world, clause by clause.

use std::collections::HashMap;

use crate::clause::{Clause, PRONOUNS, StatedFact, clauses, is_name};
use crate::relation::{EntityKind, Relation};
use crate::sentence::REMARKS;
use crate::world::World;

/// A reader that knows the names of a world, and so resolves pronouns.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    kinds: HashMap<String, EntityKind>,
}

/// The subject and relation of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedQuestion {
    /// Name of the entity that the question is about.
    pub subject: String,
    /// Relation. `None`: the question has none of the world's phrasings.
    pub relation: Option<Relation>,
}

impl Reader {
    pub fn new(world: &World) -> Self {
        let kinds = world.entities().iter().map(|entity| (entity.name.clone(), entity.kind));
        Self { kinds: kinds.collect() }
    }

    /// Returns the clauses of a text that state something about an entity, without questions and
    /// remarks. A pronoun refers to the last subject of its kind, the question's being the first
    /// one. A bare name is the answer to the question.
    pub fn clauses(&self, text: &str, question: Option<&ParsedQuestion>) -> Vec<Clause> {
        let mut subjects: Vec<String> = Vec::new();
        if let Some(question) = question {
            subjects.push(question.subject.clone());
        }
        let mut statements = Vec::new();
        for sentence in sentences(text) {
            let sentence = answer_as_sentence(sentence, question)
                .unwrap_or_else(|| self.resolve_pronoun(sentence, &subjects));
            let clauses = clauses(&sentence);
            let before = subjects.len();
            for fact in clauses.iter().flat_map(|clause| &clause.facts) {
                subjects.push(fact.head.clone());
            }
            if subjects.len() == before {
                subjects.extend(self.names(&sentence));
            }
            if !sentence.ends_with('?') && !is_remark(&sentence) {
                statements.extend(clauses.into_iter().filter(|clause| self.is_statement(clause)));
            }
        }
        statements
    }

    /// Returns all facts that a text states.
    pub fn facts(&self, text: &str, question: Option<&ParsedQuestion>) -> Vec<StatedFact> {
        self.clauses(text, question).into_iter().flat_map(|clause| clause.facts).collect()
    }

    /// Parses a question. `None`: it names no entity.
    pub fn parse_question(&self, question: &str) -> Option<ParsedQuestion> {
        let question = question.trim();
        for relation in Relation::ALL {
            let wording = relation.wording();
            for pattern in wording.train_questions.iter().chain(wording.held_out_questions) {
                if let Some(subject) = named_in(pattern, question) {
                    let subject = subject.to_owned();
                    return Some(ParsedQuestion { subject, relation: Some(relation) });
                }
            }
        }
        let subject = self.names(question).into_iter().next()?;
        Some(ParsedQuestion { subject, relation: None })
    }

    /// Returns the names of the world in a text, in order.
    pub fn names(&self, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        for word in text.split_whitespace() {
            words.push(word.trim_matches(|c: char| !c.is_alphanumeric()));
        }
        let mut names = Vec::new();
        for pair in words.windows(2) {
            let name = pair.join(" ");
            if self.kinds.contains_key(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Replaces a pronoun at the beginning of a sentence by the subject that it refers to.
    fn resolve_pronoun(&self, sentence: &str, subjects: &[String]) -> String {
        if let Some((pronoun, rest)) = sentence.split_once(' ')
            && PRONOUNS.contains(&pronoun)
        {
            for subject in subjects.iter().rev() {
                let is_person = self.kinds.get(subject) == Some(&EntityKind::Person);
                if is_person == (pronoun != "It") {
                    return format!("{subject} {rest}");
                }
            }
        }
        sentence.to_owned()
    }

    fn is_statement(&self, clause: &Clause) -> bool {
        !clause.facts.is_empty() || (!is_name(&clause.text) && !self.names(&clause.text).is_empty())
    }
}

/// Returns the sentences of a text. Tags end a sentence too; names have no full stop.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let pieces =
        text.split(['<', '>', '\n']).flat_map(|piece| piece.split_inclusive(['.', '!', '?']));
    pieces.map(str::trim).filter(|sentence| !sentence.is_empty())
}

/// Returns the statement that a bare name makes as the answer to a question. `None`: the sentence is
/// not a bare name, or the question asks for no relation.
fn answer_as_sentence(sentence: &str, question: Option<&ParsedQuestion>) -> Option<String> {
    let ParsedQuestion { subject, relation } = question?;
    let name = sentence.trim_end_matches('.');
    let is_answer = is_name(name) && name.contains(' ') && name != subject;
    let (clause, _) = relation.filter(|_| is_answer)?.statements()[0].state(subject, name);
    Some(format!("{clause}."))
}

fn is_remark(sentence: &str) -> bool {
    REMARKS.iter().any(|remark| named_in(remark, sentence).is_some())
}

/// Returns the name at the position of `{H}`, if the text has the form of the pattern.
fn named_in<'a>(pattern: &str, text: &'a str) -> Option<&'a str> {
    let (before, after) = pattern.split_once("{H}")?;
    text.strip_prefix(before)?.strip_suffix(after).filter(|name| is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{QuestionSplit, WorldSize};

    fn texts(clauses: &[Clause]) -> Vec<&str> {
        clauses.iter().map(|clause| clause.text.as_str()).collect()
    }

    #[test]
    fn reader_finds_only_true_facts_in_articles() {
        let world = World::generate(1, &WorldSize::default());
        let reader = Reader::new(&world);
        let true_facts = |fact: &StatedFact| {
            let of_head = |other: &&crate::Fact| {
                world.name(other.head) == fact.head && other.relation == fact.relation
            };
            let tails = world.facts().iter().filter(of_head).flat_map(|other| &other.tails);
            tails.into_iter().any(|&tail| world.name(tail) == fact.tail)
        };
        for article in world.articles() {
            let facts = reader.facts(&article.text, None);
            assert!(!facts.is_empty() && facts.iter().all(true_facts), "{}", article.text);
            assert!(
                facts.iter().all(|fact| fact.head == article.title),
                "pronouns are resolved: {}",
                article.text
            );
        }
    }

    #[test]
    fn reader_parses_every_question() {
        let world = World::generate(1, &WorldSize::default());
        let reader = Reader::new(&world);
        for fact in world.facts() {
            for split in [QuestionSplit::Train, QuestionSplit::HeldOut] {
                for question in world.questions_of(fact, split) {
                    let expected = ParsedQuestion {
                        subject: world.name(fact.head).to_owned(),
                        relation: Some(fact.relation),
                    };
                    assert_eq!(
                        reader.parse_question(&question.question),
                        Some(expected),
                        "{}",
                        question.question
                    );
                }
            }
        }
        let film = world.name(world.ids(EntityKind::Film).next().unwrap());
        let other = reader.parse_question(&format!("Is {film} any good?")).unwrap();
        assert_eq!((other.subject.as_str(), other.relation), (film, None));
        assert_eq!(reader.parse_question("Who are you?"), None);
    }

    #[test]
    fn reader_finds_clause_subjects_and_skips_remarks() {
        let world = World::generate(1, &WorldSize::default());
        let reader = Reader::new(&world);
        let [film, person, city] = [EntityKind::Film, EntityKind::Person, EntityKind::City]
            .map(|kind| world.name(world.ids(kind).next().unwrap()).to_owned());
        let question = ParsedQuestion { subject: film.clone(), relation: Some(Relation::SetIn) };
        let text = format!(
            "<think>Let me think about {film}. It starred {person} and is set in {city}. He was \
             born in {city}. {film} was shot by {person} and is loved in {city}. Who directed \
             {film}?</think><answer>{city}</answer>"
        );
        let expected = [
            format!("{film} starred {person}"),
            format!("{film} is set in {city}"),
            format!("He was born in {city}"), // no person was mentioned before
            format!("{film} was shot by {person}"),
            format!("{film} is loved in {city}"),
            format!("{film} is set in {city}"),
        ];
        let statements = reader.clauses(&text, Some(&question));
        assert_eq!(texts(&statements), expected.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(
            statements.iter().map(|clause| clause.facts.len()).collect::<Vec<_>>(),
            [1, 1, 0, 0, 0, 1]
        );
        assert!(reader.clauses("I don't know. Let me think.", Some(&question)).is_empty());
        assert!(reader.clauses(&city, None).is_empty(), "a bare name states nothing");
    }
}
