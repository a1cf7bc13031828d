//! Running text about the world, read clause by clause.

use std::collections::HashMap;

use crate::relation::{Kind, Relation};
use crate::sentence::REMARKS;
use crate::stated::{Clause, PRONOUNS, Stated, clauses, is_name};
use crate::world::World;

/// Knows the names of a world, and so of whom a pronoun speaks.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    kinds: HashMap<String, Kind>,
}

/// What a question asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Of whom.
    pub subject: String,
    /// `None` where the question is not worded as the world's are.
    pub relation: Option<Relation>,
}

impl Reader {
    pub fn of(world: &World) -> Self {
        Self {
            kinds: world
                .entities()
                .iter()
                .map(|entity| (entity.name.clone(), entity.kind))
                .collect(),
        }
    }

    /// The clauses of a text that say something of somebody; questions and remarks do not. A
    /// pronoun stands for the last subject of its kind before it, first of all for that of the
    /// question, and a name alone answers the question.
    pub fn clauses(&self, text: &str, asked: Option<&Asked>) -> Vec<Clause> {
        let mut subjects: Vec<String> = asked.iter().map(|asked| asked.subject.clone()).collect();
        let mut said = Vec::new();
        for sentence in sentences(text) {
            let sentence =
                answer(sentence, asked).unwrap_or_else(|| self.resolved(sentence, &subjects));
            let told = clauses(&sentence);
            let heads: Vec<&String> =
                told.iter().flat_map(|clause| &clause.facts).map(|fact| &fact.head).collect();
            if heads.is_empty() {
                subjects.extend(self.names(&sentence));
            } else {
                subjects.extend(heads.into_iter().cloned());
            }
            if !sentence.ends_with('?') && !is_remark(&sentence) {
                said.extend(told.into_iter().filter(|clause| self.says_something(clause)));
            }
        }
        said
    }

    /// All facts that a text states.
    pub fn facts(&self, text: &str, asked: Option<&Asked>) -> Vec<Stated> {
        self.clauses(text, asked).into_iter().flat_map(|clause| clause.facts).collect()
    }

    /// Whom a text is about first of all, and what it asks of them.
    pub fn asked(&self, question: &str) -> Option<Asked> {
        let question = question.trim();
        let wording = Relation::ALL.into_iter().find_map(|relation| {
            let wording = relation.wording();
            let mut patterns = wording.train_questions.iter().chain(wording.held_out_questions);
            let subject = patterns.find_map(|pattern| named_in(pattern, question))?;
            Some(Asked { subject: subject.to_owned(), relation: Some(relation) })
        });
        wording.or_else(|| {
            Some(Asked { subject: self.names(question).into_iter().next()?, relation: None })
        })
    }

    /// The names of the world in a text, in order.
    pub fn names(&self, text: &str) -> Vec<String> {
        let bare = |word: &'_ str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
        let words: Vec<String> = text.split_whitespace().map(bare).collect();
        words
            .windows(2)
            .map(|pair| pair.join(" "))
            .filter(|name| self.kinds.contains_key(name))
            .collect()
    }

    fn resolved(&self, sentence: &str, subjects: &[String]) -> String {
        let Some((pronoun, rest)) =
            sentence.split_once(' ').filter(|(word, _)| PRONOUNS.contains(word))
        else {
            return sentence.to_owned();
        };
        let is_person = |name: &String| self.kinds.get(name) == Some(&Kind::Person);
        match subjects.iter().rfind(|name| is_person(name) == (pronoun != "It")) {
            Some(subject) => format!("{subject} {rest}"),
            None => sentence.to_owned(),
        }
    }

    fn says_something(&self, clause: &Clause) -> bool {
        !clause.facts.is_empty() || (!is_name(&clause.text) && !self.names(&clause.text).is_empty())
    }
}

/// Names have no full stop in them, and tags end a sentence too.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let pieces =
        text.split(['<', '>', '\n']).flat_map(|piece| piece.split_inclusive(['.', '!', '?']));
    pieces.map(str::trim).filter(|sentence| !sentence.is_empty())
}

/// The answer to a question, where the sentence is a name alone, in whole words.
fn answer(sentence: &str, asked: Option<&Asked>) -> Option<String> {
    let Asked { subject, relation } = asked?;
    let name = sentence.trim_end_matches('.');
    let answers = is_name(name) && name.contains(' ') && name != subject;
    let (clause, _) = relation.filter(|_| answers)?.statements()[0].state(subject, name);
    Some(format!("{clause}."))
}

fn is_remark(sentence: &str) -> bool {
    REMARKS.iter().any(|remark| named_in(remark, sentence).is_some())
}

/// The name in the place of `{H}`.
fn named_in<'a>(pattern: &str, text: &'a str) -> Option<&'a str> {
    let (before, after) = pattern.split_once("{H}")?;
    text.strip_prefix(before)?.strip_suffix(after).filter(|name| is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Split, WorldSize};

    fn texts(clauses: &[Clause]) -> Vec<&str> {
        clauses.iter().map(|clause| clause.text.as_str()).collect()
    }

    #[test]
    fn reader_finds_only_true_facts_in_articles() {
        let world = World::generate(1, &WorldSize::default());
        let reader = Reader::of(&world);
        let true_facts = |fact: &Stated| {
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
        let reader = Reader::of(&world);
        for fact in world.facts() {
            for split in [Split::Train, Split::HeldOut] {
                for question in world.questions_of(fact, split) {
                    let expected = Asked {
                        subject: world.name(fact.head).to_owned(),
                        relation: Some(fact.relation),
                    };
                    assert_eq!(
                        reader.asked(&question.question),
                        Some(expected),
                        "{}",
                        question.question
                    );
                }
            }
        }
        let film = world.name(world.ids(Kind::Film).next().unwrap());
        let other = reader.asked(&format!("Is {film} any good?")).unwrap();
        assert_eq!((other.subject.as_str(), other.relation), (film, None));
        assert_eq!(reader.asked("Who are you?"), None);
    }

    #[test]
    fn reader_finds_clause_subjects_and_skips_remarks() {
        let world = World::generate(1, &WorldSize::default());
        let reader = Reader::of(&world);
        let [film, person, city] = [Kind::Film, Kind::Person, Kind::City]
            .map(|kind| world.name(world.ids(kind).next().unwrap()).to_owned());
        let asked = Asked { subject: film.clone(), relation: Some(Relation::SetIn) };
        let text = format!(
            "<think>Let me think about {film}. It starred {person} and is set in {city}. He was born in {city}. \
             {film} was shot by {person} and is loved in {city}. Who directed {film}?</think><answer>{city}</answer>"
        );
        let expected = [
            format!("{film} starred {person}"),
            format!("{film} is set in {city}"),
            format!("He was born in {city}"), // nobody was spoken of whom it could mean
            format!("{film} was shot by {person}"),
            format!("{film} is loved in {city}"),
            format!("{film} is set in {city}"),
        ];
        let said = reader.clauses(&text, Some(&asked));
        assert_eq!(texts(&said), expected.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(
            said.iter().map(|clause| clause.facts.len()).collect::<Vec<_>>(),
            [1, 1, 0, 0, 0, 1]
        );
        assert!(reader.clauses("I don't know. Let me think.", Some(&asked)).is_empty());
        assert!(reader.clauses(&city, None).is_empty(), "a name alone says nothing");
    }
}
