//! The truth of sentences about the world. Evaluations and the demo's backends ([`crate::answers`])
//! use it; rewards from counts do not.

use std::collections::HashSet;

use crate::clause::{StatedFact, clauses};
use crate::world::World;

/// All facts of a world, to decide sentences in its wordings.
#[derive(Debug, Clone)]
pub struct WorldTruth {
    facts: HashSet<StatedFact>,
}

impl WorldTruth {
    /// Collects the facts of a world.
    #[must_use]
    pub fn new(world: &World) -> Self {
        let mut facts = HashSet::new();
        for fact in world.facts() {
            for &tail in &fact.tails {
                facts.insert(StatedFact {
                    head: world.name(fact.head).to_owned(),
                    relation: fact.relation,
                    tail: world.name(tail).to_owned(),
                });
            }
        }
        Self { facts }
    }

    /// True if all facts of a sentence are true. `None`: it states no fact, or true ones and a clause
    /// that cannot be decided, because its subject is a pronoun or its wording is unknown. A fact
    /// about an unknown name is false.
    #[must_use]
    pub fn is_true(&self, sentence: &str) -> Option<bool> {
        if sentence.ends_with('?') {
            return None;
        }
        let mut is_decided = true;
        for clause in clauses(sentence) {
            if clause.facts.is_empty() {
                is_decided = false;
            // One reading suffices: “A starred in B” is also read as “B starred A”.
            } else if !clause.facts.iter().any(|fact| self.facts.contains(fact)) {
                return Some(false);
            }
        }
        is_decided.then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::clause::PRONOUNS;
    use crate::sentence::mid_sentence;
    use crate::{EntityKind, Relation, WorldSize};

    #[test]
    fn truth_accepts_every_wording_and_rejects_wrong_tails() {
        let world = World::generate(1, &WorldSize::default());
        let truth = WorldTruth::new(&world);
        for fact in world.facts() {
            let tail_kind = fact.relation.kinds().1;
            let wrong = world
                .ids(tail_kind)
                .find(|id| !fact.tails.contains(id) && *id != fact.head)
                .unwrap();
            for statement in fact.relation.statements() {
                let right = world.sentence_with(fact.head, statement, fact.tails[0]).text;
                let wrong = world.sentence_with(fact.head, statement, wrong).text;
                assert_eq!(truth.is_true(&right), Some(true), "{right}");
                assert_eq!(truth.is_true(&wrong), Some(false), "{wrong}");
                let joined = |second: &str| {
                    format!("{}, and {}", right.trim_end_matches('.'), mid_sentence(second))
                };
                assert_eq!(truth.is_true(&joined(&right)), Some(true), "{}", joined(&right));
                assert_eq!(truth.is_true(&joined(&wrong)), Some(false), "{}", joined(&wrong));
            }
        }
    }

    #[test]
    fn coordinated_verb_shares_first_subject() {
        let world = World::generate(1, &WorldSize::default());
        let truth = WorldTruth::new(&world);
        let film = world.ids(EntityKind::Film).next().unwrap();
        let [directed, set_in] = [Relation::Directed, Relation::SetIn].map(|relation| {
            world.facts_of(film).iter().find(|fact| fact.relation == relation).unwrap()
        });
        let [director, city] = [directed, set_in].map(|fact| world.name(fact.tails[0]));
        let text = |city: &str| {
            format!("{} was directed by {director} and is set in {city}.", world.name(film))
        };
        assert_eq!(truth.is_true(&text(city)), Some(true));
        assert_eq!(truth.is_true(&text("Nowhere Atall")), Some(false));
    }

    #[test]
    fn truth_is_unknown_without_statement() {
        let world = World::generate(1, &WorldSize::default());
        let truth = WorldTruth::new(&world);
        for text in [
            "",
            "I don't know.",
            "Little has been written about Abc Def.",
            "Abc Def",
            "It was directed by Abc Def and is set in Old Abc.",
        ] {
            assert_eq!(truth.is_true(text), None, "{text}");
        }
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for _ in 0..2_000 {
            let sample = world.sentence(&mut rng);
            let states =
                sample.triplets.iter().any(|triplet| !PRONOUNS.contains(&triplet.head.as_str()));
            assert_eq!(truth.is_true(&sample.text).is_some(), states, "{sample:?}");
        }
    }
}
