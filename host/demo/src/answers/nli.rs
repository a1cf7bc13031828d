//! An NLI model that reads the world's wordings.

use corver_core::{BoxError, Entailment, NliModel, NliPair};

use super::InjectedErrors;
use crate::clause::StatedFact;
use crate::reader::{ParsedQuestion, Reader};
use crate::world::World;

/// Probability of the label that the model predicts.
const SURE: f32 = 0.98;
/// Probability of each other label.
const OTHER: f32 = 0.01;

const ENTAIL: Entailment =
    Entailment { entail: SURE, neutral: Some(OTHER), contradict: Some(OTHER) };
const NEUTRAL: Entailment =
    Entailment { entail: OTHER, neutral: Some(SURE), contradict: Some(OTHER) };
const CONTRADICT: Entailment =
    Entailment { entail: OTHER, neutral: Some(OTHER), contradict: Some(SURE) };

/// A model that knows the world's wordings and names, and of its facts those in the premise alone.
///
/// A hypothesis is entailed if the premise states all its facts, and contradicted if the premise
/// states another value of one of them. Otherwise it is neutral, also if it states no fact.
#[derive(Debug, Clone)]
pub struct DemoNli {
    reader: Reader,
    errors: InjectedErrors,
}

impl DemoNli {
    /// Returns a model that knows the names of `world` and answers with `errors`.
    #[must_use]
    pub fn new(world: &World, errors: InjectedErrors) -> Self {
        Self { reader: Reader::new(world), errors }
    }

    fn right(&self, NliPair { premise, hypothesis }: &NliPair) -> Entailment {
        let known = self.reader.facts(premise, None);
        // The pronoun in “It was directed by A B” refers to the first subject of the premise.
        let context =
            known.first().map(|fact| ParsedQuestion { subject: fact.head.clone(), relation: None });
        let stated = self.reader.facts(hypothesis, context.as_ref());
        if stated.iter().any(|fact| has_another_value(fact, &known)) {
            CONTRADICT
        } else if !stated.is_empty() && stated.iter().all(|fact| known.contains(fact)) {
            ENTAIL
        } else {
            NEUTRAL
        }
    }
}

/// True if the known facts have the head and relation of a fact, but not its tail.
fn has_another_value(fact: &StatedFact, known: &[StatedFact]) -> bool {
    !known.contains(fact)
        && known.iter().any(|other| other.head == fact.head && other.relation == fact.relation)
}

impl NliModel for DemoNli {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let mut answers = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let right = self.right(pair);
            let mut wrong = vec![ENTAIL, NEUTRAL, CONTRADICT];
            wrong.retain(|other| *other != right);
            answers.push(self.errors.answer(&[&pair.premise, &pair.hypothesis], right, wrong));
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{QuestionSplit, WorldSize};

    fn pair(premise: &str, hypothesis: &str) -> NliPair {
        NliPair { premise: premise.into(), hypothesis: hypothesis.into() }
    }

    #[test]
    fn nli_entails_evidence_and_contradicts_other_values() {
        let world = World::generate(1, &WorldSize::default());
        let mut model = DemoNli::new(&world, InjectedErrors::new(0.0, 1).unwrap());
        for fact in world.facts() {
            let evidence =
                world.questions_of(fact, QuestionSplit::Train).next().unwrap().evidence.join(" ");
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
        let mut model = DemoNli::new(&world, InjectedErrors::new(0.0, 1).unwrap());
        let film = &world.facts()
            [world.fact_numbers(world.ids(crate::EntityKind::Film).next().unwrap())][0];
        let premise =
            world.sentence_with(film.head, &film.relation.statements()[0], film.tails[0]).text;
        let hypothesis = premise.replace(world.name(film.head), "It");
        assert_eq!(model.entail(&[pair(&premise, &hypothesis)]).unwrap(), [ENTAIL]);
    }

    #[test]
    fn nli_errors_pick_another_label() {
        let world = World::generate(1, &WorldSize::default());
        let statement = |n: usize| {
            let fact = &world.facts()[n];
            world.sentence_with(fact.head, &fact.relation.statements()[0], fact.tails[0]).text
        };
        let pairs: Vec<NliPair> = (0..200).map(|n| pair(&statement(n), &statement(n))).collect();
        let answers =
            DemoNli::new(&world, InjectedErrors::new(1.0, 1).unwrap()).entail(&pairs).unwrap();
        let number_of =
            |answer: Entailment| answers.iter().filter(|given| **given == answer).count();
        assert_eq!(number_of(ENTAIL), 0);
        assert!(
            number_of(NEUTRAL) > 60 && number_of(CONTRADICT) > 60,
            "{} {}",
            number_of(NEUTRAL),
            number_of(CONTRADICT)
        );
        for Entailment { entail, neutral, contradict } in [ENTAIL, NEUTRAL, CONTRADICT] {
            assert!((entail + neutral.unwrap() + contradict.unwrap() - 1.0).abs() < 1e-6);
        }
    }
}
