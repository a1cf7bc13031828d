//! Sentences of the world, true or not, with their triplets.
//!
//! Articles, the policy's reasoning and the extractor's training data use the same wordings.

use corver_core::Triplet;
use rand::Rng;

use crate::name::pick;
use crate::relation::{EntityKind, Relation, Statement};
use crate::world::{EntityId, World};

/// A sentence with the triplets that an extractor should find in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Text with its punctuation, trimmed.
    pub text: String,
    /// Triplets in the order of the text. The first name of a clause is the head.
    pub triplets: Vec<Triplet>,
}

/// Remarks about an entity `{H}`, which state no fact.
pub(crate) const REMARKS: [&str; 8] = [
    "{H} is well known.",
    "Little has been written about {H}.",
    "This is about {H}.",
    "The question is about {H}.",
    "Many people have heard of {H}.",
    "{H} is mentioned in several sources.",
    "Let me think about {H}.",
    "{H} deserves a closer look.",
];

/// Sentences that name no entity.
const EMPTY_REMARKS: [&str; 8] = [
    "I don't know.",
    "I do not know the answer.",
    "unknown",
    "I am not certain.",
    "This is hard to say.",
    "There is no record of it.",
    "Let me think.",
    "The answer is not known.",
];

impl Statement {
    /// Returns the clause without a full stop, and its triplet.
    #[must_use]
    pub fn state(&self, head: &str, tail: &str) -> (String, Triplet) {
        let clause = self.pattern.replace("{H}", head).replace("{T}", tail);
        let head_first = self.pattern.find("{H}") < self.pattern.find("{T}");
        let (first, second) = if head_first { (head, tail) } else { (tail, head) };
        let triplet = Triplet {
            head: first.to_owned(),
            relation: self.relation.to_owned(),
            tail: second.to_owned(),
        };
        (clause, triplet)
    }
}

impl World {
    /// Returns a statement about two entities as a sentence.
    #[must_use]
    pub fn sentence_with(&self, head: EntityId, statement: &Statement, tail: EntityId) -> Sample {
        let (clause, triplet) = statement.state(self.name(head), self.name(tail));
        Sample { text: format!("{clause}."), triplets: vec![triplet] }
    }

    /// Returns a random sentence about random entities, true or not: one fact (half of them), two
    /// facts, a pronoun as the subject, a remark, a question, a refusal or a bare name.
    pub fn sentence(&self, rng: &mut impl Rng) -> Sample {
        match rng.random_range(0..20) {
            0..10 => self.one_fact(rng),
            10..13 => self.two_facts(rng),
            13 => self.pronoun_fact(rng),
            14..16 => without_triplets(
                pick(&REMARKS, rng).replace("{H}", self.name(self.random_entity(rng))),
            ),
            16..18 => {
                let relation = *pick(&Relation::ALL, rng);
                let wording = relation.wording();
                let questions = if rng.random_bool(0.7) {
                    wording.train_questions
                } else {
                    wording.held_out_questions
                };
                without_triplets(
                    pick(questions, rng)
                        .replace("{H}", self.name(self.random_id(wording.head, rng))),
                )
            }
            18 => without_triplets((*pick(&EMPTY_REMARKS, rng)).to_owned()),
            _ => {
                let stop = if rng.random_bool(0.2) { "." } else { "" };
                without_triplets(format!("{}{stop}", self.name(self.random_entity(rng))))
            }
        }
    }

    fn one_fact(&self, rng: &mut impl Rng) -> Sample {
        let (clause, triplet) = self.clause(rng);
        Sample { text: format!("{clause}."), triplets: vec![triplet] }
    }

    /// Returns two clauses joined by “and”, or two verbs of one subject.
    fn two_facts(&self, rng: &mut impl Rng) -> Sample {
        if rng.random_bool(0.5) {
            let (first, first_triplet) = self.clause(rng);
            let (second, second_triplet) = self.clause(rng);
            let text = format!("{first}, and {}.", mid_sentence(&second));
            return Sample { text, triplets: vec![first_triplet, second_triplet] };
        }
        let first = *pick(&Relation::ALL, rng);
        let same_head: Vec<Relation> = Relation::ALL
            .into_iter()
            .filter(|relation| relation.kinds().0 == first.kinds().0)
            .collect();
        let second = *pick(&same_head, rng);
        let head = self.random_id(first.kinds().0, rng);
        let [(first_clause, first_triplet), (second_clause, second_triplet)] =
            [first, second].map(|relation| {
                let statement = pick(&relation.statements()[..2], rng);
                let tail = self.random_id(relation.kinds().1, rng);
                statement.state(self.name(head), self.name(tail))
            });
        // The first two statements of a relation are the head followed by a verb.
        let verb_phrase = &second_clause[self.name(head).len()..];
        Sample {
            text: format!("{first_clause} and{verb_phrase}."),
            triplets: vec![first_triplet, second_triplet],
        }
    }

    fn pronoun_fact(&self, rng: &mut impl Rng) -> Sample {
        let relation = *pick(&Relation::ALL, rng);
        let (head_kind, tail_kind) = relation.kinds();
        let subject = pronoun(head_kind, self.random_id(head_kind, rng));
        let statement = pick(&relation.statements()[..2], rng);
        let (clause, triplet) = statement.state(subject, self.name(self.random_id(tail_kind, rng)));
        Sample { text: format!("{clause}."), triplets: vec![triplet] }
    }

    fn clause(&self, rng: &mut impl Rng) -> (String, Triplet) {
        let relation = *pick(&Relation::ALL, rng);
        let (head_kind, tail_kind) = relation.kinds();
        let head = self.random_id(head_kind, rng);
        let tail = self.random_id(tail_kind, rng);
        pick(relation.statements(), rng).state(self.name(head), self.name(tail))
    }

    fn random_entity(&self, rng: &mut impl Rng) -> EntityId {
        self.random_id(*pick(&EntityKind::ALL, rng), rng)
    }
}

/// Returns “He”, “She” or “It”. An entity always has the same pronoun.
pub(crate) fn pronoun(kind: EntityKind, id: EntityId) -> &'static str {
    match (kind, id.0 % 2) {
        (EntityKind::Person, 0) => "She",
        (EntityKind::Person, _) => "He",
        _ => "It",
    }
}

/// Returns texts with every name and every beginning of a sentence, to train a tokenizer on.
pub fn text_for_vocabulary(world: &World) -> impl Iterator<Item = String> + '_ {
    let names = world
        .entities()
        .iter()
        .flat_map(|entity| [entity.name.clone(), format!("the {}", entity.name)]);
    let remarks = REMARKS.iter().chain(&EMPTY_REMARKS).map(|remark| remark.repeat(2));
    names.chain(remarks)
}

fn without_triplets(text: String) -> Sample {
    Sample { text, triplets: Vec::new() }
}

/// Returns a clause with a leading article in lower case, as within a sentence.
#[must_use]
pub fn mid_sentence(clause: &str) -> String {
    clause.strip_prefix("The ").map_or_else(|| clause.to_owned(), |rest| format!("the {rest}"))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::WorldSize;

    #[test]
    fn first_name_in_statement_is_head() {
        let passive = Relation::Directed.statements()[0].state("Silent Abc", "Dora Efg");
        assert_eq!(passive.0, "Silent Abc was directed by Dora Efg");
        assert_eq!((passive.1.head.as_str(), passive.1.tail.as_str()), ("Silent Abc", "Dora Efg"));
        let active = Relation::Directed.statements()[2].state("Silent Abc", "Dora Efg");
        assert_eq!(active.0, "Dora Efg directed Silent Abc");
        assert_eq!((active.1.head.as_str(), active.1.relation.as_str()), ("Dora Efg", "directed"));
    }

    #[test]
    fn every_triplet_is_copied_from_its_sentence() {
        let world = World::generate(1, &WorldSize::default());
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let mut by_number_of_facts = [0; 3];
        for _ in 0..2000 {
            let sample = world.sentence(&mut rng);
            by_number_of_facts[sample.triplets.len()] += 1;
            for triplet in &sample.triplets {
                assert!(sample.text.contains(&triplet.head), "{sample:?}");
                assert!(sample.text.contains(&triplet.tail), "{sample:?}");
                assert!(sample.text.contains(&triplet.relation), "{sample:?}");
            }
        }
        assert!(by_number_of_facts.iter().all(|&count| count > 200), "{by_number_of_facts:?}");
    }

    #[test]
    fn shared_subject_is_named_once() {
        let world = World::generate(1, &WorldSize::default());
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let shared = std::iter::repeat_with(|| world.two_facts(&mut rng))
            .find(|sample| !sample.text.contains(", and"))
            .expect("half of them share a subject");
        assert_eq!(shared.triplets[0].head, shared.triplets[1].head);
        assert_eq!(shared.text.matches(&shared.triplets[0].head).count(), 1);
    }
}
