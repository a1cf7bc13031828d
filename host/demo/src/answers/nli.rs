//! Does one text follow from another?

use corver_core::{BoxError, Entailment, NliModel, NliPair};

use super::Errors;
use crate::reader::{Asked, Reader};
use crate::stated::Stated;
use crate::world::World;

/// What the model is sure of, and what it leaves to each of the two others.
const SURE: f32 = 0.98;
const LEFT: f32 = 0.01;

const ENTAIL: Entailment = Entailment { entail: SURE, neutral: Some(LEFT), contradict: Some(LEFT) };
const NEUTRAL: Entailment =
    Entailment { entail: LEFT, neutral: Some(SURE), contradict: Some(LEFT) };
const CONTRADICT: Entailment =
    Entailment { entail: LEFT, neutral: Some(LEFT), contradict: Some(SURE) };

/// Knows the world's wordings and names, and of its facts those that the premise states.
///
/// A hypothesis follows where the premise states all its facts. It is contradicted where the
/// premise gives one of its facts another value. Anything else is neutral: also what states no
/// fact.
#[derive(Debug, Clone)]
pub struct DemoNli {
    reader: Reader,
    errors: Errors,
}

impl DemoNli {
    /// Of a world.
    #[must_use]
    pub fn new(world: &World, errors: Errors) -> Self {
        Self { reader: Reader::of(world), errors }
    }

    fn right(&self, NliPair { premise, hypothesis }: &NliPair) -> Entailment {
        let known = self.reader.facts(premise, None);
        // “It was directed by A B” is said of whom the premise is about.
        let about = known.first().map(|fact| Asked { subject: fact.head.clone(), relation: None });
        let stated = self.reader.facts(hypothesis, about.as_ref());
        let has_another_value = |fact: &Stated| {
            let is_of_fact =
                |other: &&Stated| other.head == fact.head && other.relation == fact.relation;
            !known.contains(fact) && known.iter().any(|other| is_of_fact(&other))
        };
        if stated.iter().any(has_another_value) {
            CONTRADICT
        } else if !stated.is_empty() && stated.iter().all(|fact| known.contains(fact)) {
            ENTAIL
        } else {
            NEUTRAL
        }
    }
}

impl NliModel for DemoNli {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let answer = |pair: &NliPair| {
            let right = self.right(pair);
            let wrong =
                [ENTAIL, NEUTRAL, CONTRADICT].into_iter().filter(|other| *other != right).collect();
            self.errors.answer(&[&pair.premise, &pair.hypothesis], right, wrong)
        };
        Ok(pairs.iter().map(answer).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Split, WorldSize};

    fn pair(premise: &str, hypothesis: &str) -> NliPair {
        NliPair { premise: premise.into(), hypothesis: hypothesis.into() }
    }

    #[test]
    fn nli_entails_evidence_and_contradicts_other_values() {
        let world = World::generate(1, &WorldSize::default());
        let mut model = DemoNli::new(&world, Errors::new(0.0, 1).unwrap());
        for fact in world.facts() {
            let evidence =
                world.questions_of(fact, Split::Train).next().unwrap().evidence.join(" ");
            let tail_kind = fact.relation.kinds().1;
            let wrong = world
                .ids(tail_kind)
                .find(|id| !fact.tails.contains(id) && *id != fact.head)
                .unwrap();
            for statement in fact.relation.statements() {
                let [right, wrong] = [fact.tails[0], wrong]
                    .map(|tail| world.sentence_with(fact.head, statement, tail).text);
                let pairs = [
                    pair(&evidence, &right),
                    pair(&evidence, &wrong),
                    pair("Little is known.", &right),
                    pair(&evidence, &format!("{} and nothing else", world.name(fact.head))),
                ];
                assert_eq!(
                    model.entail(&pairs).unwrap(),
                    [ENTAIL, CONTRADICT, NEUTRAL, NEUTRAL],
                    "{right}"
                );
            }
        }
    }

    #[test]
    fn nli_resolves_pronoun_to_premise_subject() {
        let world = World::generate(1, &WorldSize::default());
        let mut model = DemoNli::new(&world, Errors::new(0.0, 1).unwrap());
        let film =
            &world.facts()[world.fact_numbers(world.ids(crate::Kind::Film).next().unwrap())][0];
        let told =
            world.sentence_with(film.head, &film.relation.statements()[0], film.tails[0]).text;
        let hypothesis = told.replace(world.name(film.head), "It");
        assert_eq!(model.entail(&[pair(&told, &hypothesis)]).unwrap(), [ENTAIL]);
    }

    #[test]
    fn nli_errors_pick_another_label() {
        let world = World::generate(1, &WorldSize::default());
        let told = |n: usize| {
            let fact = &world.facts()[n];
            world.sentence_with(fact.head, &fact.relation.statements()[0], fact.tails[0]).text
        };
        let pairs: Vec<NliPair> = (0..200).map(|n| pair(&told(n), &told(n))).collect();
        let answers = DemoNli::new(&world, Errors::new(1.0, 1).unwrap()).entail(&pairs).unwrap();
        let of = |answer: Entailment| answers.iter().filter(|given| **given == answer).count();
        assert_eq!(of(ENTAIL), 0);
        assert!(of(NEUTRAL) > 60 && of(CONTRADICT) > 60, "{} {}", of(NEUTRAL), of(CONTRADICT));
        for Entailment { entail, neutral, contradict } in [ENTAIL, NEUTRAL, CONTRADICT] {
            assert!((entail + neutral.unwrap() + contradict.unwrap() - 1.0).abs() < 1e-6);
        }
    }
}
