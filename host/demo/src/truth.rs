//! What is true of the world. No reward that counts knows it: evaluations do, and the demo's own
//! verifiers ([`crate::answers`]).

use std::collections::HashSet;

use crate::stated::{Stated, clauses};
use crate::world::World;

/// Decides sentences of the world's family of wordings.
#[derive(Debug, Clone)]
pub struct Truth {
    facts: HashSet<Stated>,
}

impl Truth {
    /// Everything that is true of a world.
    #[must_use]
    pub fn of(world: &World) -> Self {
        let facts = world.facts().iter().flat_map(|fact| {
            let name = |id| world.name(id).to_owned();
            let stated = move |&tail| Stated {
                head: name(fact.head),
                relation: fact.relation,
                tail: name(tail),
            };
            fact.tails.iter().map(stated)
        });
        Self { facts: facts.collect() }
    }

    /// Whether all that a sentence states is true; `None` where it states no fact, or, beside true
    /// ones, something that cannot be decided: of a pronoun, or in other words. What is stated of a
    /// name that nobody has is false.
    #[must_use]
    pub fn is_true(&self, sentence: &str) -> Option<bool> {
        if sentence.ends_with('?') {
            return None;
        }
        // True where any reading is: “A starred in B” is read as “B starred A” too.
        let truth = |facts: Vec<Stated>| {
            facts.iter().map(|fact| self.facts.contains(fact)).reduce(|one, other| one || other)
        };
        let truths = clauses(sentence).into_iter().map(|clause| truth(clause.facts));
        truths.reduce(|one, other| {
            if one == Some(false) || other == Some(false) { Some(false) } else { one.and(other) }
        })?
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::sentence::mid_sentence;
    use crate::stated::PRONOUNS;
    use crate::{Kind, Relation, WorldSize};

    #[test]
    fn truth_accepts_every_wording_and_rejects_wrong_tails() {
        let world = World::generate(1, &WorldSize::default());
        let truth = Truth::of(&world);
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
        let truth = Truth::of(&world);
        let film = world.ids(Kind::Film).next().unwrap();
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
        let truth = Truth::of(&world);
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
